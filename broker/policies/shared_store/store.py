"""The seam between policy ``shared-store`` and the store itself.

The store says who may be live and what the last live left, and has the data.

Why a seam: AMQ 17.3.2 promises the same on a directory and on a database (17.3.2.2). The policy
decides, in the same way for both, who waits for whom, when a live is certain, and what it does when
it is not any more. The store decides how a lock is held, and how a life that lost it is kept from
writing.

Every call may hang, or raise OSError if the store fails; the caller sets the deadlines. A call that
was given up may take effect later, once. A store lets no such call reach the data of a later life.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol

from broker.policies.ownership.candidacy import HeldLock
from broker.storage.entries import EntryStore
from broker.storage.journal import Recovered

LIVE: Final = "L"
PAUSED: Final = "P"
FAILING_BACK: Final = "F"
NOT_STARTED: Final = ""


class StoreMark(NamedTuple):
    """The mark that the last live left: the state, its data's node ID, its own name."""

    state: str
    node_id: str | None
    name: str


Place = Literal["live", "backup", "master"]
"""A place at a store: the live's, the next backup's, a waiting master's."""


class Places(Protocol):
    """The places at a store, and the brokers that have them."""

    async def prepare(self) -> None:
        """Make what must exist before a broker can ask for a place.

        Raises StartError if the present live has other settings of the store.
        """
        ...

    async def take(self, place: Place) -> HeldLock | None:
        """Take the lock of a place, None if another broker has it."""
        ...

    async def held(self, place: Place) -> bool:
        """Return whether any broker has a place."""
        ...

    async def read(self) -> StoreMark:
        """Return the mark of the last live; it is meaningful to the holder of the live lock.

        Raises StartError as ``prepare`` does, since the live may be younger than this broker.
        """
        ...


class Inherited(NamedTuple):
    """A life that has begun: its number grows from life to life of one store.

    ``recovered`` is what the lives before it left in ``journal``.
    """

    life: int
    node_id: str
    journal: EntryStore
    recovered: Recovered


class SharedData(Protocol):
    """The data of a store, for the holder of its live lock."""

    async def inherit(self, live: HeldLock, require: Callable[[], None]) -> Inherited:
        """Begin a life with all data of the store.

        No later action of an earlier life changes them.

        ``require`` raises when it is not certain any more that the live lock is ours. Raises
        StartError for data that cannot be read; OSError.
        """
        ...

    async def leave(self, live: HeldLock, state: str) -> None:
        """Write the state in which we leave the live lock; LIVE: the next candidate may have it."""
        ...

    async def tidy(self, life: int) -> None:
        """Remove what lives before this one left and none needs any more."""
        ...


class BrokerStore(SharedData, Protocol):
    """A store, from the point of view of one broker."""

    @property
    def places(self) -> Places:
        """The locks of the store."""
        ...

    async def close(self) -> None:
        """Close what was opened here."""
        ...
