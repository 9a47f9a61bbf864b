"""The writing end of a journal: appends collect, a flusher writes and syncs them together.

Why group commit: an fsync costs the same for one entry as for a thousand. While one sync runs, the
next batch collects, so that the disk is never idle under load, and a single entry waits for one
sync only. A segment is begun with its header in place (atomically), and sealed (synced, closed)
before the next one gets its first byte. So only the last one can be torn.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.storage.entry import HEADER_SIZE, MARK_SIZE, Header, encode_header, encode_mark
from broker.storage.errors import JournalFailedError
from broker.storage.options import JournalOptions
from broker.storage.segment import Segment, segment_name
from broker.storage.synced import Synced, SyncedMarks
from broker.storage.volume import Volume, VolumeFile

NO_SPACE: Final = (
    "; make room on the disk and start the broker again: nothing that was acknowledged is "
    "lost (broker.max-disk-usage stops producers before)"
)

_log = logging.getLogger(__name__)


class _WriteBatch:
    """The entries that one write and one sync will make durable, all in one segment."""

    __slots__ = ("begins", "chunks", "done", "last", "seals", "segment")

    def __init__(self, segment: Segment, last: int, *, begins: bool) -> None:
        self.segment = segment
        self.chunks: list[bytes] = []
        self.last = last
        self.begins = begins
        self.seals = False
        self.done: list[asyncio.Future[None]] = []


class SegmentLog:
    """Appends encoded entries to segments.

    ``segments`` has the sealed ones in order and the current one last.

    ``first`` is the sequence of the first entry to come. ``ids`` returns, when a segment is begun,
    how far ids have been given out.
    """

    def __init__(
        self,
        volume: Volume,
        directory: str,
        options: JournalOptions,
        *,
        first: int,
        segments: list[Segment],
        ordinal: Callable[[], int],
        ids: Callable[[], int],
    ) -> None:
        self.volume = volume
        self.directory = directory
        self.options = options
        self.segments = segments
        self.ids = ids
        self.last = first - 1
        self.synced = first - 1
        self.on_synced: Callable[[int], None] | None = None
        self.on_failed: Callable[[JournalFailedError], None] | None = None
        self.on_sealed: Callable[[], None] | None = None
        self.on_begun: Callable[[int], None] | None = None
        self.failure: JournalFailedError | None = None
        self.current = Segment(f"{directory}/{segment_name(first)}", ordinal(), first, first - 1)
        self.next_ordinal = ordinal
        self._limit = options.segment_size
        self._batches: deque[_WriteBatch] = deque()
        self._open: _WriteBatch | None = None
        self._flying: _WriteBatch | None = None
        self._file: VolumeFile | None = None
        self._written = 0  # bytes of _file
        self._marks: SyncedMarks | None = None
        self._marked = True
        self._closing = False
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        segments.append(self.current)

    async def start(self) -> None:
        """Create the first segment and begin to flush."""
        await self._begin(self.current)
        self._task = asyncio.create_task(self._run(), name=f"flush {self.directory}")

    def launch(self) -> None:
        """Begin to flush as ``start`` does, without waiting: a batch creates the first segment."""
        self._batch(self.current, begins=True)
        self._task = asyncio.create_task(self._run(), name=f"flush {self.directory}")

    def place(self, size: int) -> int:
        """Return the ordinal of the segment for the next entry of ``size`` bytes.

        Begins a new segment if need be.
        """
        current = self.current
        if current.size + size > self._limit and current.last >= current.first:
            self.roll()
        return self.current.ordinal

    def append(self, entry: bytes) -> int:
        """Buffer an encoded entry with the sequence ``last + 1``, and return this sequence."""
        batch = self._open
        current = self.current
        if batch is None:
            batch = self._batch(current, begins=False)
        batch.chunks.append(entry)
        current.size += len(entry)
        sequence = self.last + 1
        self.last = current.last = batch.last = sequence
        return sequence

    def roll(self) -> bool:
        """Seal the current segment and begin the next; False if the current one is empty."""
        current = self.current
        if current.last < current.first:
            return False
        batch = self._open or self._batch(current, begins=False)
        batch.seals = True
        first = self.last + 1
        self.current = Segment(
            f"{self.directory}/{segment_name(first)}", self.next_ordinal(), first, first - 1
        )
        self.segments.append(self.current)
        if self.on_begun is not None:
            self.on_begun(self.current.ordinal)
        self._open = None
        self._marked = True
        self._batch(self.current, begins=True)
        return True

    async def flush(self) -> None:
        """Return when everything appended (and rolled) is durable. Raises JournalFailedError."""
        if self.failure is not None:
            raise self.failure.again()
        batch = self._batches[-1] if self._batches else self._flying
        if batch is not None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.done.append(done)
            await done

    async def close(self) -> None:
        """Flush what is buffered and close; a log that has failed is only closed."""
        self._closing = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        if self._task is not None:
            await self._task
            self._task = None
        file, self._file = self._file, None
        if file is not None:
            try:
                if self.failure is None:
                    await file.sync()
                await file.close()
                if self._marks is not None:
                    await self._marks.close(sync=self.failure is None)
            except OSError as error:
                _log.warning("journal: %s could not be closed: %s", self.current.path, error)

    def _batch(self, segment: Segment, *, begins: bool) -> _WriteBatch:
        batch = _WriteBatch(segment, self.last, begins=begins)
        if not self._marked:
            batch.chunks.append(encode_mark(segment.size, segment.first))
            segment.size += MARK_SIZE
        self._marked = False
        self._open = batch
        self._batches.append(batch)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        return batch

    async def _begin(self, segment: Segment) -> None:
        header = encode_header(Header(segment.first, 0, self.ids()))
        await self.volume.write_atomic(segment.path, header)
        self._file = await self.volume.open(segment.path)
        self._written = HEADER_SIZE
        if self._marks is None:
            self._marks = await SyncedMarks.open(self.volume, self.directory)
        elif self._marks.full:
            await self._marks.begin_anew()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                while not self._batches:
                    if self._closing:
                        return
                    self._wake = loop.create_future()
                    await self._wake
                    self._wake = None
                await self._flush_one()
        except OSError as error:
            hint = NO_SPACE if error.errno == errno.ENOSPC else ""
            self._fail(f"{self.current.path}: {error}{hint}", error)
        except Exception as error:  # noqa: BLE001 - after any error, no caller may believe that data is durable
            self._fail(f"{self.current.path}: {error!r} (please report this)", error)
        except asyncio.CancelledError:
            self._fail("the journal was stopped", None)
            raise

    async def _flush_one(self) -> None:
        if self._batches[0].begins:
            # Do this before the batch is taken, so that the batch goes on collecting while the
            # segment's file is created.
            await self._begin(self._batches[0].segment)
        batch = self._flying = self._batches.popleft()
        if batch is self._open:
            self._open = None
        file, marks = self._file, self._marks
        assert file is not None
        assert marks is not None
        if batch.chunks:
            data = b"".join(batch.chunks)
            batch.chunks.clear()
            file.write(data)
            self._written += len(data)
        await file.sync()
        segment = batch.segment
        marks.note(Synced(batch.last, segment.first, self._written))
        if batch.seals:
            self._file = None
            await file.close()
            segment.sealed = True
        elif not self._batches and not self._marked:
            # Nothing follows yet. Mark now that all of it is on disk, so that damage to it is
            # never taken for a torn tail.
            file.write(encode_mark(segment.size, segment.first))
            segment.size += MARK_SIZE
            self._written += MARK_SIZE
            self._marked = True
        self._flying = None
        self.synced = batch.last
        for done in batch.done:
            if not done.done():
                done.set_result(None)
        if self.on_synced is not None:
            self.on_synced(batch.last)
        if batch.seals and self.on_sealed is not None:
            self.on_sealed()

    def _fail(self, reason: str, cause: BaseException | None) -> None:
        failure = JournalFailedError(f"journal failed: {reason}")
        failure.__cause__ = cause
        self.failure = failure
        for batch in (*self._batches, *([self._flying] if self._flying else [])):
            for done in batch.done:
                if not done.done():
                    done.set_exception(failure.again())
        self._batches.clear()
        self._open = self._flying = None
        _log.error("%s", failure)
        if self.on_failed is not None:
            self.on_failed(failure)
