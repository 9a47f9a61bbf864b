"""The seam between policy ``shared-store`` and the store itself.

Who may be live, what the last live left behind, and the data.

Why a seam: AMQ 17.3.2 promises the same on a directory and on a database (17.3.2.2). Who waits for
whom, when a live is certain and what it does when it is not any more is the policy's and the same
for both; how a lock is held, and how a life that lost it is kept from writing, is the store's.

Every call may hang, or raise OSError where the store fails; deadlines are the caller's. A call that
was given up may take effect later, once; a store lets none of these reach the data of a later life.
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
    """What the last live left: the state, its data's node ID, its own name."""

    state: str
    node_id: str | None
    name: str


Place = Literal["live", "backup", "master"]
"""At a store: the live's, the next backup's, a waiting master's."""


class Places(Protocol):
    """Who has which place at a store."""

    async def prepare(self) -> None:
        """Make what has to be there before anybody can ask for a place."""
        ...

    async def take(self, place: Place) -> HeldLock | None:
        """The lock of a place, None while somebody else has it."""
        ...

    async def held(self, place: Place) -> bool:
        """Whether somebody has a place."""
        ...

    async def read(self) -> StoreMark:
        """What the last live left; meaningful for whoever holds the live lock."""
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
    """What a store keeps, for whoever holds its live lock."""

    async def inherit(self, live: HeldLock, require: Callable[[], None]) -> Inherited:
        """Begin a life with all that is in the store.

        Nothing that an earlier life does from now on changes it.

        ``require`` raises when it is not certain any more that the live lock is ours. Raises
        StartError for data that cannot be read; OSError.
        """
        ...

    async def leave(self, live: HeldLock, state: str) -> None:
        """Say in which state we leave the live lock; LIVE: it is for whoever waits for it."""
        ...

    async def tidy(self, life: int) -> None:
        """Remove what lives before this one left and nobody needs."""
        ...


class BrokerStore(SharedData, Protocol):
    """A store as one broker has it."""

    @property
    def places(self) -> Places:
        """Its locks."""
        ...

    async def close(self) -> None:
        """Give back what was opened here."""
        ...
