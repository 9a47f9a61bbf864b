"""Compaction: disk space is given back without ever making an append wait.

There are two ways, the cheaper first. *Reclaim*: while the oldest sealed segment has nothing live,
it is removed. What it deletes lay in itself or in still older ones, so nothing can come back to
life. This suffices for a queue that is consumed in order. *Rewrite*: when less than a percentage of
the sealed segments is live, all of them become one.

Why a crash at any moment is safe: the rewrite covers *all* sealed segments S1..Sk, so that a
deletion in them never outlives what it deletes, and deletions in later segments stay where they
are. Its output is written to a file of its own, closed with a mark and synced; then one rename over
Sk puts it in force. Before the rename, S1..Sk are untouched, and recovery removes the ".tmp". After
it, the header of the new Sk says that it is compacted. Recovery then leaves out (and removes) all
before it, whether or not the manifest had been advanced or the files removed. A record deleted
while the rewrite ran may be in its output; the deletion is in a later segment.

Liveness runs ahead of the disk: a record may be dead by a deletion that is still buffered, and it
lives again if a crash takes that. So both ways flush the log after their last look at liveness and
before their first irrevocable step. A reclaim advances the manifest first, and recovery removes
what lies before the manifest's first segment.

Sequences and ids survive: entries keep their sequence, the header carries the last sequence and the
highest id.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import operator

from broker.storage.entry import (
    DELETE,
    MARK,
    BadFrameError,
    Header,
    JournalFrame,
    encode_entry,
    encode_header,
    encode_mark,
)
from broker.storage.errors import JournalDamagedError, JournalError
from broker.storage.liveness import Liveness
from broker.storage.log import SegmentLog
from broker.storage.manifest import Manifest, write_manifest
from broker.storage.segment import Segment, read_frames
from broker.storage.volume import VolumeFile

_log = logging.getLogger(__name__)

_SYNC_EVERY = 1024 * 1024
_MOVE_SLICE = 2048


class _StoppedError(Exception):
    """The segments must stay as they are, because they are held."""


class Compactor:
    """Compacts the sealed segments of one log, one at a time, and never while they are held."""

    def __init__(self, log: SegmentLog, liveness: Liveness) -> None:
        self._journal = log
        self._liveness = liveness
        self._holds = 0
        self._stop = False
        self._broken = False
        self._task: asyncio.Task[bool] | None = None
        self.runs = 0
        """The number of rewrites completed."""

    def consider(self) -> None:
        """Start a compaction if it is worth it and nothing forbids it.

        This is cheap, and is called whenever a segment was sealed, or a compaction has ended.
        """
        if self._holds or self._broken or self._task is not None:
            return
        if self._reclaimable() or self._worthwhile():
            self._start(force=False)

    async def ended(self) -> None:
        """Return when no compaction is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def compact(self) -> bool:
        """Rewrite now, whatever the settings say; True if the rewrite was completed."""
        await self.ended()
        if self._holds or self._broken:
            return False
        return await asyncio.shield(self._start(force=True))

    async def hold(self) -> None:
        """Keep all sealed segments as they are until ``release``; give up what is under way."""
        self._holds += 1
        self._stop = True
        await self.ended()
        self._stop = False

    def release(self) -> None:
        """End one ``hold``."""
        self._holds -= 1
        if not self._holds:
            self.consider()

    def _start(self, *, force: bool) -> asyncio.Task[bool]:
        self._task = asyncio.create_task(self._run(force=force), name=f"compact {self._journal.directory}")
        self._task.add_done_callback(self._ended)
        return self._task

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broken = True
            _log.error(
                "journal: compaction of %s ended with an internal error, please report this",
                self._journal.directory,
                exc_info=error,
            )
        if not task.cancelled():
            # Under load, many segments may have been sealed meanwhile, and the next may come late.
            self.consider()

    def _sealed(self) -> list[Segment]:
        return list(itertools.takewhile(operator.attrgetter("sealed"), self._journal.segments))

    def _reclaimable(self) -> int:
        """Return how many of the oldest segments hold nothing live."""
        live = (self._liveness.bytes[segment.ordinal] for segment in self._sealed())
        return sum(1 for _ in itertools.takewhile(operator.not_, live))

    def _worthwhile(self) -> bool:
        options = self._journal.options
        sealed = self._sealed()
        if not options.compact_min_files or len(sealed) < max(2, options.compact_min_files):
            return False
        live = sum(self._liveness.bytes[segment.ordinal] for segment in sealed)
        total = sum(segment.size for segment in sealed)
        return live * 100 < total * options.compact_percentage

    async def _run(self, *, force: bool) -> bool:
        try:
            await self._reclaim()
            if force or self._worthwhile():
                await self._rewrite()
                _log.info("journal: compacted %s", self._journal.directory)
        except _StoppedError:
            return False
        except (OSError, JournalError) as error:
            # The data on disk is unchanged: as valid or as damaged as it was. The only loss is that
            # no space is given back.
            self._broken = True
            _log.error(
                "journal: compaction of %s failed and is off until the next start: %s",
                self._journal.directory,
                error,
            )
            return False
        return True

    async def _reclaim(self) -> None:
        count = self._reclaimable()
        if count:
            log = self._journal
            await log.flush()
            await write_manifest(log.volume, log.directory, Manifest("complete", log.segments[count].first))
            await self._drop(log.segments[:count])

    async def _drop(self, gone: list[Segment]) -> None:
        """Forget segments that recovery would leave out, then remove their files."""
        log = self._journal
        del log.segments[: len(gone)]
        for segment in gone:
            self._liveness.end(segment.ordinal)
        for segment in gone:
            await log.volume.remove(segment.path)

    async def _rewrite(self) -> None:
        sealed = self._sealed()
        if not sealed:
            return
        log = self._journal
        last = sealed[-1]
        beside = f"{log.directory}/compacting.tmp"
        await log.volume.remove(beside)
        rewrite = _Rewrite(await log.volume.open(beside), self._liveness)
        try:
            rewrite.write(encode_header(Header(last.first, last.last, log.ids())))
            for segment in sealed:
                await self._copy_live(segment, rewrite)
            rewrite.write(encode_mark(rewrite.size, last.first))
            await rewrite.file.sync()
        finally:
            await rewrite.file.close()
        await log.flush()
        self._check_stop()
        await log.volume.rename(beside, last.path)
        await write_manifest(log.volume, log.directory, Manifest("complete", last.first))
        await self._switch(sealed, rewrite)
        self.runs += 1

    async def _copy_live(self, segment: Segment, rewrite: _Rewrite) -> None:
        first = segment.first
        try:
            async for _, frames in read_frames(self._journal.volume, segment.path, first, segment.size):
                self._check_stop()
                rewrite.take(frames)
                if rewrite.unsynced >= _SYNC_EVERY:
                    # Small syncs: a large one would hold up the group commits behind it.
                    await rewrite.file.sync()
                    rewrite.unsynced = 0
        except BadFrameError as error:
            raise JournalDamagedError(segment.path, error.offset, error.reason) from None

    def _check_stop(self) -> None:
        if self._stop:
            raise _StoppedError

    async def _switch(self, sealed: list[Segment], rewrite: _Rewrite) -> None:
        """Account for records in their new place, slice by slice, then forget the old segments."""
        log, liveness = self._journal, self._liveness
        last = sealed[-1]
        new = Segment(last.path, log.next_ordinal(), last.first, last.last, rewrite.size, sealed=True)
        liveness.begin(new.ordinal)
        gone = frozenset(segment.ordinal for segment in sealed)
        ids = rewrite.ids
        for start in range(0, len(ids), _MOVE_SLICE):
            liveness.move(ids[start : start + _MOVE_SLICE], gone, new.ordinal)
            await asyncio.sleep(0)
        assert all(liveness.bytes[ordinal] == 0 for ordinal in gone), (
            "live bytes were left in a removed segment"
        )
        log.segments[: len(sealed)] = [new]
        for ordinal in gone:
            liveness.end(ordinal)
        for segment in sealed[:-1]:
            await log.volume.remove(segment.path)


class _Rewrite:
    """The output of a rewrite: the live part of each entry, under the entry's own sequence."""

    def __init__(self, file: VolumeFile, liveness: Liveness) -> None:
        self.file = file
        self.size = 0
        self.unsynced = 0
        self.ids: list[int] = []
        self._live = liveness.records

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.size += len(data)
        self.unsynced += len(data)

    def take(self, frames: list[JournalFrame]) -> None:
        """Keep what is live now; the deletion of a record that dies later is in a later segment."""
        live = self._live
        kept = []
        for sequence, _, operations in frames:
            if sequence == MARK:
                continue
            alive = [operation for operation in operations if operation[2] in live and operation[0] != DELETE]
            if alive:
                kept.append(encode_entry(sequence, alive))
                self.ids.extend([operation[2] for operation in alive if operation[0] != DELETE])
        if kept:
            self.write(b"".join(kept))
