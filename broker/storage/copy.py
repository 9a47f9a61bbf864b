"""The backup's side of replication: a journal that becomes equal to its live broker's.

Why two streams: the live cannot stop while its old segments travel, so new entries arrive
interleaved with chunks of the frozen ones. Chunks go into files of the same names. Entries go into
segments of our own that begin where the snapshot ends; together they are one journal. Until
``complete`` has read and verified every byte, the manifest says "incomplete" and ``Journal.open``
refuses the directory: partial data must never be served. A copy whose process died is not resumed
but begun anew.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Self

from broker.storage.compaction import Compactor
from broker.storage.entry import Operation, decode_entry
from broker.storage.errors import JournalDamagedError, JournalError, JournalFailedError
from broker.storage.journal import take_lock
from broker.storage.liveness import Liveness
from broker.storage.log import SegmentLog
from broker.storage.manifest import Manifest, read_manifest, write_manifest
from broker.storage.options import JournalOptions
from broker.storage.records import Record
from broker.storage.recovery import load
from broker.storage.scan import JournalImage
from broker.storage.segment import Segment, segment_first
from broker.storage.volume import Volume, VolumeFile, VolumeLock

_log = logging.getLogger(__name__)

_SYNC_EVERY = 1024 * 1024


class JournalCopy:
    """A copy under way, or, after ``complete``, an up-to-date one that goes on following.

    ``synced`` is the highest sequence on our disk; ``on_synced`` gets it after each group commit,
    on the loop. ``on_failed`` is called once if the disk fails. Close the copy, then
    ``Journal.open`` its directory to serve from it.
    """

    def __init__(self, volume: Volume, directory: str, options: JournalOptions, lock: VolumeLock) -> None:
        self.directory = directory
        self.up_to_date = False
        self.on_synced: Callable[[int], None] | None = None
        self.on_failed: Callable[[JournalFailedError], None] | None = None
        self.failure: JournalFailedError | None = None
        self._volume = volume
        self._options = options
        self._lock: VolumeLock | None = lock
        self._journal: SegmentLog | None = None
        self._ordinals: Iterator[int] = itertools.count()
        self._ids = 0
        self._liveness: Liveness | None = None
        self._pending: list[tuple[list[Operation], int]] | None = None
        self._compactor: Compactor | None = None
        self._chunks: deque[tuple[str, int, bytes]] = deque()
        self._names: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._finishing = False
        self._next = 0
        self._closed = False
        self._writer = asyncio.create_task(self._write_chunks(), name=f"copy {directory}")

    @classmethod
    async def create(cls, volume: Volume, directory: str, options: JournalOptions | None = None) -> Self:
        """Begin a copy in ``directory``, and keep data of value that is there.

        A journal is moved to ``<directory>.moved-N``, of which the newest few are kept; an
        unfinished copy is removed. Raises JournalLockedError, OSError.
        """
        options = options or JournalOptions()
        lock = await take_lock(volume, directory)
        try:
            await _move_aside(volume, directory, options.keep_moved)
            await volume.mkdir(directory)
            await write_manifest(volume, directory, Manifest("incomplete", 0))
        except BaseException:
            await lock.release()
            raise
        return cls(volume, directory, options, lock)

    @property
    def synced(self) -> int:
        """The highest sequence on disk; 0 until an entry was streamed or the copy is complete."""
        return 0 if self._journal is None else self._journal.synced

    @property
    def last_sequence(self) -> int:
        """The highest sequence received."""
        return self._next - 1 if self._next else 0

    def write_chunk(self, name: str, offset: int, data: bytes) -> None:
        """Take bytes of a file of the snapshot, and buffer them.

        Each file's chunks come in order, without gaps. Raises ValueError for a name that is not a
        segment's or a chunk out of order; JournalFailedError.
        """
        self._check()
        if self.up_to_date or self._pending is not None:
            raise ValueError(f"chunk of {name} after the copy was complete")
        if segment_first(name) is None:
            raise ValueError(f"{name!r} is no segment of a journal")
        if offset != self._names.get(name, 0):
            raise ValueError(f"chunk of {name} at {offset}; {self._names.get(name, 0)} is next")
        self._names[name] = offset + len(data)
        self._chunks.append((name, offset, data))
        self._idle.clear()
        self._wake.set()

    async def drained(self) -> None:
        """Return when the chunks received are written; awaiting this now and then bounds memory."""
        await self._idle.wait()
        self._check()

    def append_encoded(self, sequence: int, entry: bytes) -> None:
        """Append the next entry of the live's journal, as its tap gave it.

        The entry is buffered; ``synced`` says when it is on disk.

        Raises ValueError for a gap or a sequence that is not the entry's, BadFrameError for bytes
        that were damaged on the way; JournalFailedError.
        """
        self._check()
        found, operations = decode_entry(entry)
        if found != sequence:
            raise ValueError(f"entry {found} came as {sequence}")
        if self._next and sequence != self._next:
            raise ValueError(f"entry {sequence} came; {self._next} is next")
        log = self._journal
        if log is None:
            log = self._begin(sequence)
        self._next = sequence + 1
        ordinal = log.place(len(entry))
        if self._liveness is not None:
            self._liveness.apply(operations, ordinal)
        elif self._pending is not None:
            self._pending.append((operations, ordinal))
        for operation in operations:
            self._ids = max(self._ids, operation[2])
        log.append(entry)

    async def complete(self, last_sequence: int, files: Sequence[tuple[str, int]] | None = None) -> None:
        """Check every byte of the chunks, sync, and mark the copy as up to date, durably.

        Call this when all chunks have arrived; entries may go on arriving meanwhile.

        ``last_sequence`` and ``files`` are the snapshot's; without ``files``, a missing oldest file
        cannot be noticed. Raises JournalDamagedError (the copy stays incomplete: begin a new one),
        JournalFailedError, OSError.
        """
        if self.up_to_date:
            raise JournalError(f"{self.directory} is complete already")
        self._check()
        if files is not None and dict(files) != self._names:
            raise self._unlike(dict(files))
        self._finishing = True
        self._idle.clear()
        self._wake.set()
        await self.drained()
        log = self._journal or self._begin(last_sequence + 1)
        if not self._next:
            self._next = last_sequence + 1
        first = log.segments[0].first
        if first != last_sequence + 1:
            raise JournalDamagedError(
                log.segments[0].path,
                0,
                f"the stream begins with {first}; the snapshot ends with {last_sequence}",
            )
        log.roll()
        self._pending = []
        streamed = log.segments[:-1]
        last = log.last
        try:
            await log.flush()
            image = await self._verify(streamed, last)
        except BaseException:
            self._pending = None
            raise
        self._ids = max(self._ids, image.ids)
        self._adopt(log, log.segments[len(streamed) :], image.liveness)
        log.segments[: len(streamed)] = image.segments
        await write_manifest(self._volume, self.directory, Manifest("complete", log.segments[0].first))
        self.up_to_date = True
        self._compactor = Compactor(log, image.liveness)
        log.on_sealed = self._compactor.consider
        self._compactor.consider()

    def _unlike(self, files: dict[str, int]) -> JournalDamagedError:
        for name in sorted({*files, *self._names}):
            came, due = self._names.get(name, 0), files.get(name, 0)
            if came != due:
                return JournalDamagedError(f"{self.directory}/{name}", came, f"{due} bytes should have come")
        raise AssertionError("the files are alike")

    async def _verify(self, streamed: list[Segment], last: int) -> JournalImage:
        names = [*self._names, *(segment.name for segment in streamed)]
        # Negative ordinals: the segments of the stream have those from 0 on.
        ordinals = itertools.count(-len(names))
        image = await load(self._volume, self.directory, names, ordinals, records=None, torn_allowed=False)
        if names and image.last != last:
            raise JournalDamagedError(
                f"{self.directory}/{max(names)}",
                0,
                f"ends with entry {image.last}; {last} should be the last",
            )
        return image

    async def records(self) -> Collection[Record]:
        """Return the records that would live if an up-to-date copy were opened now.

        Raises JournalError or OSError if the copy is not up to date, cannot be read, or was
        compacted meanwhile.
        """
        if not self.up_to_date or self._journal is None:
            raise JournalError(f"{self.directory} is no complete copy")
        self._check()
        await self._journal.flush()
        first = self._journal.segments[0].first
        names = [
            name for name in await self._volume.list(self.directory) if (segment_first(name) or -1) >= first
        ]
        records: dict[int, Record] = {}
        await load(self._volume, self.directory, names, itertools.count(), records=records, torn_allowed=True)
        return records.values()

    async def close(self) -> None:
        """Make the data received durable, and close the copy.

        This may be called twice; a failed disk raises nothing.
        """
        self._closed = True
        self._wake.set()
        await self._writer
        if self._compactor is not None:
            await self._compactor.hold()
        if self._journal is not None:
            await self._journal.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.release()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure.again()
        if self._closed:
            raise JournalError(f"copy {self.directory} is closed")

    def _begin(self, first: int) -> SegmentLog:
        """Begin our own segments with the first entry of the stream."""
        log = self._journal = SegmentLog(
            self._volume,
            self.directory,
            self._options,
            first=first,
            segments=[],
            ordinal=self._ordinals.__next__,
            ids=lambda: self._ids,
        )
        log.on_synced = self._synced
        log.on_failed = self._failed
        log.launch()
        return log

    def _adopt(self, log: SegmentLog, begun: list[Segment], liveness: Liveness) -> None:
        """Track liveness from now on, and account for what came while the segments were read."""
        assert self._pending is not None
        for segment in begun:
            liveness.begin(segment.ordinal)
        for operations, ordinal in self._pending:
            liveness.apply(operations, ordinal)
        self._pending = None
        self._liveness = liveness
        log.on_begun = liveness.begin

    def _synced(self, sequence: int) -> None:
        if self.on_synced is not None:
            self.on_synced(sequence)

    def _failed(self, failure: JournalFailedError) -> None:
        if self.failure is None:
            self.failure = failure
            if self.on_failed is not None:
                self.on_failed(failure)

    async def _write_chunks(self) -> None:
        """Write chunks in the background; a file is synced when the next one begins."""
        file: VolumeFile | None = None
        name = ""
        unsynced = 0
        try:
            while not self._closed:
                await self._wake.wait()
                self._wake.clear()
                while self._chunks and not self._closed:
                    chunk_name, _, data = self._chunks.popleft()
                    if chunk_name != name:
                        if file is not None:
                            await file.sync()
                            await file.close()
                        name, unsynced = chunk_name, 0
                        file = await self._volume.open(f"{self.directory}/{name}")
                    assert file is not None
                    file.write(data)
                    unsynced += len(data)
                    if unsynced >= _SYNC_EVERY:
                        # Small syncs: a large one would hold up the group commits behind it.
                        await file.sync()
                        unsynced = 0
                    else:
                        await asyncio.sleep(0)
                if file is not None and self._finishing:
                    await file.sync()
                self._idle.set()
            if file is not None:
                await file.close()
        except OSError as error:
            failure = JournalFailedError(f"journal failed: {self.directory}/{name}: {error}")
            failure.__cause__ = error
            _log.error("%s", failure)
            self._failed(failure)
        finally:
            self._idle.set()


async def _move_aside(volume: Volume, directory: str, keep: int) -> None:
    if await volume.list(directory):
        try:
            manifest = await read_manifest(volume, directory)
        except JournalDamagedError:
            manifest = Manifest("complete", 0)  # Damaged data may still be worth inspecting.
        if manifest is not None and manifest.state == "incomplete":
            await volume.remove_tree(directory)
    parent, _, name = directory.rpartition("/")
    pattern = re.compile(re.escape(name) + r"\.moved-([0-9]+)\Z")
    moved = sorted(
        int(match[1]) for entry in await volume.list(parent or ".") if (match := pattern.match(entry))
    )
    if await volume.list(directory):
        number = moved[-1] + 1 if moved else 1
        await volume.rename(directory, f"{directory}.moved-{number}")
        _log.info(
            "journal: the old %s was moved to %s.moved-%d: a copy of the live broker's journal begins",
            directory,
            directory,
            number,
        )
        moved.append(number)
    elif await volume.exists(directory):
        await volume.remove_tree(directory)
    for number in moved[: max(0, len(moved) - keep)]:
        await volume.remove_tree(f"{directory}.moved-{number}")
