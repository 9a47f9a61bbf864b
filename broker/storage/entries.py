"""What an engine needs of whatever keeps its entries.

A journal on a disk, or one on the rows of a database.

Why a protocol: what a message is and who may have it does not depend on where it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.storage.blobs import Blobs
from broker.storage.entry import Operation
from broker.storage.errors import JournalFailedError
from broker.storage.volume import Space


class EntryStore(Protocol):
    """See ``storage.journal.Journal`` for what each of these promises."""

    @property
    def large(self) -> Blobs | None:
        """Large bodies; None where none can be kept apart."""
        ...

    @property
    def pages(self) -> Blobs | None:
        """Pages of messages; None where none can be kept."""
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
        """How many records live."""
        ...

    def append(self, operations: Sequence[Operation]) -> int:
        """Take one entry, all or nothing, and return its sequence (dense from 1)."""
        ...

    def next_id(self) -> int:
        """An id that was never given out before."""
        ...

    async def sweep(self) -> None:
        """Remove the blobs that no record names, once all that are named are held."""
        ...

    async def space(self) -> Space | None:
        """How much room there is; None where that is not known, or not ours to watch."""
        ...

    async def flush(self) -> None:
        """Return when everything appended before the call is durable."""
        ...

    async def close(self) -> None:
        """Give it back."""
        ...
