"""The journal: what a broker must not forget, as records that are added, updated and deleted.

Why a log: a sequential write and one sync make any number of changes durable, and the same bytes,
sent on, keep a backup equal. ``entry`` has the format, ``log`` the group commit, ``recovery`` what
happens after a crash, ``compaction`` how space is given back.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from broker.storage.blobs import LARGE_MESSAGES, PAGING, BlobFiles, Blobs
from broker.storage.compaction import Compactor
from broker.storage.entry import ADD, DELETE, Operation, encode_entry
from broker.storage.errors import JournalError, JournalFailedError, JournalIncompleteError, JournalLockedError
from broker.storage.liveness import check
from broker.storage.log import SegmentLog
from broker.storage.manifest import Manifest, write_manifest
from broker.storage.options import JournalOptions
from broker.storage.records import Record
from broker.storage.recovery import manifest_of, recover
from broker.storage.scan import JournalImage
from broker.storage.snapshot import Snapshot
from broker.storage.volume import Space, Volume, VolumeLock, VolumeLockedError

_log = logging.getLogger(__name__)

ID_BLOCK_BITS = 40
"""The size of a block of ids, as a power of two.

Each opening takes ids from a block of its own, so that an id that was given out but never written
is not given out again.
"""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of the journal when it was opened: its live records in order of their ADD.

    ``torn`` is (path, offset, bytes) of a tail that was cut off because it had never been synced.
    """

    records: list[Record]
    last_sequence: int = 0
    torn: tuple[str, int, int] | None = None


class Journal:
    """An open journal; exactly one opening exists at a time.

    ``on_synced`` gets the highest durable sequence after each group commit, on the loop. ``tap``
    gets every entry, encoded, in order, within ``append``. ``on_failed`` is called once if the disk
    fails: from then on nothing is accepted any more.
    """

    def __init__(self, log: SegmentLog, image: JournalImage, lock: VolumeLock, ids: int) -> None:
        self.tap: Callable[[int, bytes], None] | None = None
        self.directory = log.directory
        self._journal = log
        self._liveness = image.liveness
        self._lock: VolumeLock | None = lock
        self._last_id = ids
        self._compactor = Compactor(log, image.liveness)
        self._closed = False
        self.large = Blobs(BlobFiles(log.volume, LARGE_MESSAGES), self.next_id)
        self.pages = Blobs(BlobFiles(log.volume, PAGING), self.next_id)
        self._first_id = ids
        log.ids = lambda: self._last_id
        log.on_begun = image.liveness.begin
        log.on_sealed = self._compactor.consider

    @classmethod
    async def open(
        cls, volume: Volume, directory: str, options: JournalOptions | None = None
    ) -> tuple[Self, Recovered]:
        """Open or create the journal in ``directory``, and read its live records.

        Raises JournalLockedError, JournalIncompleteError (a copy that never got up to date),
        JournalDamagedError (with file and offset), OSError.
        """
        options = options or JournalOptions()
        lock = await take_lock(volume, directory)
        try:
            return await cls._open(volume, directory, options, lock)
        except BaseException:
            await lock.release()
            raise

    @classmethod
    async def _open(
        cls, volume: Volume, directory: str, options: JournalOptions, lock: VolumeLock
    ) -> tuple[Self, Recovered]:
        manifest = await manifest_of(volume, directory)
        if manifest is None:
            await volume.mkdir(directory)
            manifest = Manifest("complete", 0)
            await write_manifest(volume, directory, manifest)
        if manifest.state != "complete":
            raise JournalIncompleteError(
                f"{directory} holds a copy whose synchronisation never ended: it needs a new copy from "
                "its live broker"
            )
        records: dict[int, Record] = {}
        image = await recover(volume, directory, manifest, records)
        segments = image.segments
        ids = (((image.ids >> ID_BLOCK_BITS) + 1) << ID_BLOCK_BITS) + options.first_id if segments else 0
        if segments and segments[-1].last < segments[-1].first:
            # The last segment is empty: the new segment, which has the same name, replaces it.
            image.liveness.end(segments.pop().ordinal)
        used = itertools.count(max((segment.ordinal for segment in segments), default=-1) + 1)
        log = SegmentLog(
            volume,
            directory,
            options,
            first=image.last + 1,
            segments=segments,
            ordinal=used.__next__,
            ids=lambda: ids,
        )
        image.liveness.begin(log.current.ordinal)
        journal = cls(log, image, lock, ids)
        await log.start()
        try:
            if not manifest.first:
                await write_manifest(volume, directory, Manifest("complete", 1))
        except BaseException:
            await log.close()
            raise
        journal._compactor.consider()
        return journal, Recovered(list(records.values()), image.last, image.torn)

    @property
    def synced(self) -> int:
        """The highest sequence on disk."""
        return self._journal.synced

    @property
    def last_sequence(self) -> int:
        """The highest sequence appended."""
        return self._journal.last

    @property
    def on_synced(self) -> Callable[[int], None] | None:
        """Called with the highest durable sequence after each group commit."""
        return self._journal.on_synced

    @on_synced.setter
    def on_synced(self, callback: Callable[[int], None] | None) -> None:
        self._journal.on_synced = callback

    @property
    def on_failed(self) -> Callable[[JournalFailedError], None] | None:
        """Called once if the disk fails."""
        return self._journal.on_failed

    @on_failed.setter
    def on_failed(self, callback: Callable[[JournalFailedError], None] | None) -> None:
        self._journal.on_failed = callback

    @property
    def failure(self) -> JournalFailedError | None:
        """The reason why nothing is accepted any more; None while all is well."""
        return self._journal.failure

    @property
    def live(self) -> int:
        """The number of live records."""
        return len(self._liveness.records)

    @property
    def files(self) -> list[tuple[str, int]]:
        """Pairs (name, bytes) of all segments, the one being written last."""
        return [(segment.name, segment.size) for segment in self._journal.segments]

    def append(self, operations: Sequence[Operation]) -> int:
        """Append one entry, all or nothing, and return its sequence (dense from 1).

        The entry is buffered; it is durable once ``synced`` is so high.

        Raises ValueError, before anything happened, for an id that is added twice or that is
        changed without being live. Raises JournalFailedError or JournalError when the journal has
        failed or is closed.
        """
        log = self._journal
        if log.failure is not None:
            raise log.failure.again()
        if self._closed:
            raise JournalError(f"journal {self.directory} is closed")
        liveness = self._liveness
        entry = encode_entry(log.last + 1, operations)
        if len(operations) == 1:
            action, _, id_, _ = operations[0]
            if (id_ in liveness.records) is (action == ADD) or not ADD <= action <= DELETE:
                check(liveness.records, operations)
        else:
            check(liveness.records, operations)
        liveness.apply(operations, log.place(len(entry)))
        sequence = log.append(entry)
        if self.tap is not None:
            self.tap(sequence, entry)
        return sequence

    def next_id(self) -> int:
        """Return an id that was never given out before, in this opening or any other."""
        self._last_id += 1
        return self._last_id

    async def sweep(self) -> None:
        """Remove the blobs from before this opening that no record names.

        Call this once the reader of the records holds the blobs that they name.

        Raises JournalDamagedError for a blob that is missing.
        """
        for blobs in (self.large, self.pages):
            await blobs.sweep(lambda id_: id_ < self._first_id)

    async def space(self) -> Space | None:
        """Return how much room the disk has."""
        return await self._journal.volume.space()

    async def flush(self) -> None:
        """Return when all entries appended before are durable. Raises JournalFailedError."""
        await self._journal.flush()

    async def compacted(self) -> None:
        """Return when no compaction is under way."""
        await self._compactor.ended()

    async def compact(self) -> bool:
        """Rewrite the sealed segments now; False if a snapshot is held, or it was given up."""
        return await self._compactor.compact()

    async def snapshot(self, tap: Callable[[int, bytes], None] | None = None) -> Snapshot:
        """Freeze everything up to now, for a copy.

        A compaction under way is given up, and none begins until the snapshot is released.

        ``tap``, if given, becomes the journal's tap at exactly this point: it gets every entry
        above the snapshot's ``last_sequence`` and no other. Raises JournalFailedError.
        """
        await self._compactor.hold()
        try:
            log = self._journal
            log.roll()
            last = log.last
            sealed = log.segments[:-1]
            if tap is not None:
                self.tap = tap
            await log.flush()
        except BaseException:
            self._compactor.release()
            raise
        return Snapshot(log.volume, sealed, last, self._compactor.release)

    async def close(self) -> None:
        """Make everything appended durable, and close the journal.

        This may be called twice; a failed disk raises nothing.
        """
        self._closed = True
        await self.large.close()
        await self.pages.close()
        await self._compactor.hold()
        await self._journal.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.release()


async def take_lock(volume: Volume, directory: str) -> VolumeLock:
    """Take the lock of a journal's directory. Raises JournalLockedError."""
    parent = directory.rpartition("/")[0]
    if parent:
        await volume.mkdir(parent)
    try:
        return await volume.lock(f"{directory}.lock")
    except (VolumeLockedError, BlockingIOError):
        raise JournalLockedError(f"{directory} is in use: another broker has {directory}.lock") from None
