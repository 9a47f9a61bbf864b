"""Large bodies between a live and its backup: their files travel in chunks, beside the entries that name them.

    live                                                        backup
    a body is whole, on our disk
    LargeChunk ... the last one                          ->     written, synced
    the entry of its message                             ->     acknowledged once it *and the file* are on the disk
                                                         <-     LargeTaken: so many bytes were written, more may come
    the message's deletion is durable here and there
    LargeRemoved                                         ->     removed

Why the file goes before the entry is even appended: whatever names a body finds it, on either side, after any crash. The files that are there when a
backup comes are sent with the snapshot. Neither side ever has more than a window of a body in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.cluster import messages as m
from broker.cluster.link import Link
from broker.storage.errors import JournalDamagedError
from broker.storage.large import DIRECTORY, SYNC_EVERY, LargeBody, LargeMessages, path_of
from broker.storage.volume import Volume, VolumeFile

WINDOW_BYTES: Final = 1024 * 1024
"""Bytes of large bodies that may be on their way to the backup's disk."""

_log = logging.getLogger(__name__)


class LargeFeed:
    """The live's side, for one backup. ``end(reason)`` is called when the backup cannot be given what it needs."""

    def __init__(
        self, link: Link, large: LargeMessages, end: Callable[[str], None], patience_s: float
    ) -> None:
        self._link = link
        self._large = large
        self._end = end
        self._patience_s = patience_s
        self._ended = False
        self._under_way = 0
        self._room = asyncio.Event()
        self._room.set()
        self._first: list[LargeBody] = []

    def begin(self) -> None:
        """From here on every body that becomes whole is sent before it is named; those that are there go with ``send_stored``."""
        self._first = self._large.stored
        for body in self._first:
            self._large.hold(body)
        self._large.on_stored = self._send
        self._large.on_removed = self._removed

    async def send_stored(self) -> None:
        """Send what was there at ``begin``."""
        while self._first:
            body = self._first[-1]
            await self._send(body)
            if self._first:
                self._large.release(self._first.pop())

    def taken(self, count: int) -> None:
        """The backup has written so many bytes."""
        self._under_way -= count
        if self._under_way < WINDOW_BYTES:
            self._room.set()

    def stop(self) -> None:
        """Nothing more goes to this backup; who waits for it need not."""
        if self._ended:
            return
        self._ended = True
        self._room.set()
        if self._large.on_stored == self._send:
            self._large.on_stored = self._large.on_removed = None
        first, self._first = self._first, []
        for body in first:
            self._large.release(body)

    async def _send(self, body: LargeBody) -> None:
        """Return when all of it is on its way, or there is nobody to send it to any more."""
        offset = 0
        try:
            async with asyncio.timeout(None) as limit:
                async for chunk in self._large.chunks(body):
                    limit.reschedule(asyncio.get_running_loop().time() + self._patience_s)
                    await self._room.wait()
                    await self._link.drain()
                    if self._ended:
                        return
                    last = offset + len(chunk) == body.size
                    self._link.send(m.LargeChunk(body.id, offset, chunk, last))
                    offset += len(chunk)
                    self._under_way += len(chunk)
                    if self._under_way >= WINDOW_BYTES:
                        self._room.clear()
        except TimeoutError:
            self._end("the backup has not taken a part of a large message within call-timeout")
        except (OSError, JournalDamagedError) as error:
            self._end(f"a large message cannot be read: {error}")

    def _removed(self, id_: int) -> None:
        self._link.send(m.LargeRemoved(id_))


class LargeCopy:
    """The backup's side. ``stored`` is called when another file is on the disk, ``failed(reason)`` once if one cannot be.

    ``limit(sequence)`` is how much of the journal's durable sequence may be acknowledged.
    """

    def __init__(
        self, volume: Volume, link: Link, stored: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self._volume = volume
        self._link = link
        self._stored = stored
        self._failed = failed
        self._work: deque[m.LargeChunk | m.LargeRemoved] = deque()
        self._unsynced: deque[int] = deque()
        self._files: dict[int, VolumeFile] = {}
        self._since_sync: dict[int, int] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="copy large messages")

    def take(self, message: m.LargeChunk | m.LargeRemoved, last_sequence: int) -> None:
        """What came; ``last_sequence`` is that of the last entry that came before it."""
        if isinstance(message, m.LargeChunk) and message.last:
            self._unsynced.append(last_sequence)
        self._work.append(message)
        self._idle.clear()
        self._wake.set()

    def limit(self, sequence: int) -> int:
        """The sequence, or that of the last entry before a body that is not yet on the disk."""
        return min(sequence, self._unsynced[0]) if self._unsynced else sequence

    async def drained(self) -> None:
        """Return when all that has come is on the disk."""
        await self._idle.wait()

    async def close(self) -> None:
        """Finish what has come: entries that name it may have come too."""
        self._closing = True
        self._wake.set()
        await self._task

    async def _run(self) -> None:
        try:
            while not (self._closing and not self._work):
                if not self._work:
                    self._idle.set()
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                message = self._work.popleft()
                if isinstance(message, m.LargeChunk):
                    await self._write(message)
                else:
                    await self._volume.remove(path_of(message.id))
        except OSError as error:
            _log.error("replication: a large message cannot be written: %s", error)
            self._failed(f"{DIRECTORY}: {error}")
        finally:
            self._idle.set()
            for file in self._files.values():
                await file.close()

    async def _write(self, chunk: m.LargeChunk) -> None:
        file = self._files.get(chunk.id)
        if file is None:
            file = self._files[chunk.id] = await self._volume.open(path_of(chunk.id))
        file.write(chunk.data)
        unsynced = self._since_sync.get(chunk.id, 0) + len(chunk.data)
        if chunk.last:
            await file.sync()
            del self._files[chunk.id]
            self._since_sync.pop(chunk.id, None)
            await file.close()
            self._unsynced.popleft()
            self._stored()
        elif unsynced >= SYNC_EVERY:
            # Small syncs: a large one would hold up the group commits behind it.
            await file.sync()
            self._since_sync[chunk.id] = 0
        else:
            self._since_sync[chunk.id] = unsynced
        if not self._link.closed:
            self._link.send(m.LargeTaken(len(chunk.data)))


async def begin_copy(volume: Volume) -> None:
    """An empty directory for the bodies of a new copy: what older data named has no worth without their live. Raises OSError."""
    await volume.remove_tree(DIRECTORY)
    await volume.mkdir(DIRECTORY)
