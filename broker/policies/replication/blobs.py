"""Large bodies and pages between a live and its backup.

Their files travel in chunks (``cluster.blobs``), among the entries that name them.

    live                                backup
    a blob is whole, on our disk
    BlobChunk ... the last one      ->  written, synced
    the entry that names it         ->  acknowledged once it *and the file* are on the disk
    the deletion of what named it is durable here and there
    BlobRemoved                     ->  removed

Why the file goes before the entry is even appended: whatever names a blob finds it, on either side,
after any crash. The files that exist when a backup attaches are sent with the snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from broker.cluster import messages as m
from broker.cluster.blobs import BlobSender
from broker.cluster.link import ClusterLink
from broker.storage.blobs import SUFFIXES, SYNC_EVERY, Blob, BlobFiles, Blobs, Open
from broker.storage.errors import JournalDamagedError
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)


class BlobFeed:
    """The live's side, for one backup; calls ``end(reason)`` if a blob cannot be sent."""

    def __init__(
        self, link: ClusterLink, blobs: Iterable[Blobs], end: Callable[[str], None], patience_s: float
    ) -> None:
        self._link = link
        self._sender = BlobSender(link, patience_s)
        self._send_of: dict[Blobs, Callable[[Blob], Awaitable[None]]] = {
            kind: partial(self._send, kind) for kind in blobs
        }
        self._end = end
        self._ended = False
        self._first: list[tuple[Blobs, Blob]] = []

    def begin(self) -> None:
        """Begin to send every blob that becomes complete before it is named.

        Those that exist already are sent by ``send_stored``.
        """
        for blobs, send in self._send_of.items():
            for blob in blobs.stored:
                blobs.hold(blob)
                self._first.append((blobs, blob))
            blobs.on_stored = send
            blobs.on_removed = partial(self._removed, blobs.kind)

    async def send_stored(self) -> None:
        """Send the blobs that existed at ``begin``."""
        while self._first:
            blobs, blob = self._first[-1]
            await self._send(blobs, blob)
            if self._first:
                self._first.pop()
                blobs.release(blob)

    def taken(self, count: int) -> None:
        """Note that the backup has written so many bytes."""
        self._sender.taken(count)

    def stop(self) -> None:
        """Send nothing more to this backup; a caller that waits for it need not any more."""
        if self._ended:
            return
        self._ended = True
        self._sender.stop()
        for blobs, send in self._send_of.items():
            if blobs.on_stored is send:
                blobs.on_stored = blobs.on_removed = None
        first, self._first = self._first, []
        for blobs, blob in first:
            blobs.release(blob)

    async def _send(self, blobs: Blobs, blob: Blob) -> None:
        """Return when all of the blob is on its way, or there is no backup any more."""
        try:
            await self._sender.send(blobs, blob)
        except TimeoutError:
            self._end(f"the backup has not taken a part of {blobs.medium.path(blob.id)} within call-timeout")
        except (OSError, JournalDamagedError) as error:
            self._end(f"{blobs.medium.path(blob.id)} cannot be read: {error}")

    def _removed(self, kind: str, id_: int) -> None:
        self._link.send(m.BlobRemoved(kind, id_))


class BlobCopies:
    """The backup's side.

    ``stored`` is called when another file is on the disk, ``failed(reason)`` once if a file cannot
    be written.

    ``limit(sequence)`` is how much of the journal's durable sequence may be acknowledged.
    """

    def __init__(
        self, volume: Volume, link: ClusterLink, stored: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self._files = {kind: BlobFiles(volume, kind) for kind in SUFFIXES}
        self._link = link
        self._stored = stored
        self._failed = failed
        self._work: deque[m.BlobChunk | m.BlobRemoved] = deque()
        self._unsynced: deque[int] = deque()
        self._open: dict[int, Open] = {}
        self._since_sync: dict[int, int] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="copy blobs")

    def take(self, message: m.BlobChunk | m.BlobRemoved, last_sequence: int) -> None:
        """Take a message; ``last_sequence`` is that of the last entry that came before it."""
        if isinstance(message, m.BlobChunk) and message.last:
            self._unsynced.append(last_sequence)
        self._work.append(message)
        self._idle.clear()
        self._wake.set()

    def limit(self, sequence: int) -> int:
        """Return the sequence, or that of the last entry before a blob that is not on the disk."""
        return min(sequence, self._unsynced[0]) if self._unsynced else sequence

    async def drained(self) -> None:
        """Return when everything that has come is on the disk."""
        await self._idle.wait()

    async def close(self) -> None:
        """Finish what has come, since entries that name it may have come, too."""
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
                if isinstance(message, m.BlobChunk):
                    await self._write(message)
                else:
                    await self._files_of(message.kind).remove(message.id)
        except OSError as error:
            _log.error("replication: a large message or a page cannot be written: %s", error)
            self._failed(str(error))
        finally:
            self._idle.set()
            for file in self._open.values():
                await file.close()

    async def _write(self, chunk: m.BlobChunk) -> None:
        file = self._open.get(chunk.id)
        if file is None:
            file = self._open[chunk.id] = await self._files_of(chunk.kind).create(chunk.id)
        file.write(chunk.data)
        unsynced = self._since_sync.get(chunk.id, 0) + len(chunk.data)
        if chunk.last:
            await file.sync()
            del self._open[chunk.id]
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
            self._link.send(m.BlobTaken(len(chunk.data)))

    def _files_of(self, kind: str) -> BlobFiles:
        files = self._files.get(kind)
        if files is None:
            raise OSError(f"the live sent a blob of the kind {kind!r}; known are {', '.join(self._files)}")
        return files


async def begin_copy(volume: Volume) -> None:
    """Empty the directories for a new copy's blobs: older data have no value. Raises OSError."""
    for kind in SUFFIXES:
        await volume.remove_tree(kind)
        await volume.mkdir(kind)
