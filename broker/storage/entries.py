"""The interface between an engine and the store of its entries.

The store is a journal on a disk, or one on the rows of a database.

Why a protocol: the rules about messages and their owners do not depend on where messages are
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.storage.blobs import Blobs
from broker.storage.entry import Operation
from broker.storage.errors import JournalFailedError
from broker.storage.volume import Space


class EntryStore(Protocol):
    """A store of entries; ``storage.journal.Journal`` says what each of these promises."""

    @property
    def large(self) -> Blobs | None:
        """The large bodies; None if none can be stored outside the entries."""
        ...

    @property
    def pages(self) -> Blobs | None:
        """The pages of messages; None if none can be stored."""
        ...

    on_synced: Callable[[int], None] | None
    on_failed: Callable[[JournalFailedError], None] | None

    @property
    def synced(self) -> int:
        """The highest durable sequence."""
        ...

    @property
    def last_sequence(self) -> int:
        """The highest sequence appended."""
        ...

    @property
    def live(self) -> int:
        """The number of live records."""
        ...

    def append(self, operations: Sequence[Operation]) -> int:
        """Append one entry, all or nothing, and return its sequence (dense from 1)."""
        ...

    def next_id(self) -> int:
        """Return an id that was never given out before."""
        ...

    async def sweep(self) -> None:
        """Remove the blobs that no record names; call this once all named ones are held."""
        ...

    async def space(self) -> Space | None:
        """Return how much room there is; None if it is unknown, or not ours to watch."""
        ...

    async def flush(self) -> None:
        """Return when everything appended before the call is durable."""
        ...

    async def close(self) -> None:
        """Close the store."""
        ...
