"""The owner of a journal in a database.

It is a broker of a high-availability cluster, by its row, or the live of a shared store, by its
lock.

Why a seam: both have a number that grows whenever somebody else begins to own the rows, and both
prove it in the statement that precedes a batch. The journal uses that proof in the same way for
both.
"""

from __future__ import annotations

from typing import Protocol

from broker.storage.database import Row, Statement


class StoreOwner(Protocol):
    """An ownership that another broker may end at any time."""

    @property
    def cluster_id(self) -> str:
        """The name of the store within the database."""
        ...

    @property
    def name(self) -> str:
        """The name of the owner in messages."""
        ...

    @property
    def epoch(self) -> int:
        """A number that grows with each change of owner; an older proof concerns no row."""
        ...

    @property
    def session(self) -> int:
        """The high bits of the ids of everything that is stored from now on."""
        ...

    def prove(self) -> Statement:
        """Return the proof for a transaction that is not a batch; it must concern one row."""
        ...

    def ours(self) -> tuple[str, Row]:
        """Return the condition (and its parameters) for rows with a ``session`` that are ours."""
        ...

    def prove_batch(self, before: int, after: int) -> Statement:
        """Return the proof for a batch that brings the journal from entry ``before`` to ``after``.

        It must concern one row; a batch that is tried twice happens once.
        """
        ...

    def position(self) -> Statement:
        """Return a query for one row (epoch, entry): the outcome of an unconfirmed batch."""
        ...
