"""Who a journal in a database belongs to.

A broker of a high-availability cluster by its row, or the live of a shared store by its lock.

Why a seam: both have a number that grows whenever somebody else begins to own the rows, and both
prove it in the statement that goes before a batch. What the journal does with that proof is the
same.
"""

from __future__ import annotations

from typing import Protocol

from broker.storage.database import Row, Statement


class StoreOwner(Protocol):
    """An ownership that somebody else may end at any time."""

    @property
    def cluster_id(self) -> str:
        """Which of the stores in the database."""
        ...

    @property
    def name(self) -> str:
        """Who it is, for messages."""
        ...

    @property
    def epoch(self) -> int:
        """Grows with each change of owner; a proof with an older one concerns no row."""
        ...

    @property
    def session(self) -> int:
        """The high bits of the ids of what is stored from now on."""
        ...

    def prove(self) -> Statement:
        """The proof of whatever is no batch of the journal: it must concern one row."""
        ...

    def ours(self) -> tuple[str, Row]:
        """The condition (and its parameters) on which rows with a ``session`` are ours now."""
        ...

    def prove_batch(self, before: int, after: int) -> Statement:
        """The proof of a batch that brings the journal from entry ``before`` to ``after``.

        It must concern one row, and tried twice it happens once.
        """
        ...

    def position(self) -> Statement:
        """One row (epoch, entry): what became of a batch whose end nobody heard."""
        ...
