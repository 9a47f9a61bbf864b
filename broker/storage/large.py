"""Large messages: bodies in files of their own, written and read in chunks (``large-messages`` beside the journal, AMQ 17.3.2).

Why files: a body that is streamed from the producer to the disk and from the disk to the consumer needs no memory of its size, however
many of them are under way. The journal's record of the message only names the file.

The order that makes it safe: the file is whole and synced, then the record that names it is appended; the record is deleted, durably, then the
file is removed. So a crash at any moment leaves at most a file that no record names, and ``sweep`` removes these at the next start. Ids come
from the journal and never repeat; a sweep leaves alone whatever is younger than its own start, for another broker may have begun to write there
after it lost the store.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import google_crc32c

from broker.storage.errors import JournalDamagedError
from broker.storage.volume import Volume, VolumeFile

DIRECTORY: Final = "large-messages"
CHUNK: Final = 64 * 1024
SYNC_EVERY: Final = 1024 * 1024
"""Small syncs: a large one would hold up the group commits behind it."""

START: Final = 256
"""Bytes of a large body that are kept in memory and in its record: enough to see which message it is."""

_NAME: Final = re.compile(r"([0-9]{1,20})\.msg\Z")
_log = logging.getLogger(__name__)


class LargeBody(NamedTuple):
    """What a record keeps of a body: its file's id, its bytes, and their CRC-32C."""

    id: int
    size: int
    checksum: int

    @property
    def path(self) -> str:
        """The file within the volume."""
        return path_of(self.id)


def path_of(id_: int) -> str:
    """The file of a large body."""
    return f"{DIRECTORY}/{id_}.msg"


class LargeMessages:
    """The large bodies of one open journal, counted by who refers to them: messages, and deliveries under way.

    ``on_stored`` is awaited for each body before anything may name it, ``on_removed`` told of each that is gone (replication).
    """

    def __init__(self, volume: Volume, next_id: Callable[[], int]) -> None:
        self.on_stored: Callable[[LargeBody], Awaitable[None]] | None = None
        self.on_removed: Callable[[int], None] | None = None
        self._volume = volume
        self._next_id = next_id
        self._references: dict[LargeBody, int] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @property
    def stored(self) -> list[LargeBody]:
        """All that are referred to."""
        return list(self._references)

    def __contains__(self, body: LargeBody) -> bool:
        return body in self._references

    async def begin(self) -> LargeWriter:
        """A new file, to be written. Raises OSError."""
        id_ = self._next_id()
        opening = asyncio.get_running_loop().create_task(self._open(id_), name=f"begin {path_of(id_)}")
        try:
            return LargeWriter(self, id_, await asyncio.shield(opening))
        except asyncio.CancelledError:
            # The disk makes it all the same, and nobody would know of it.
            self._tasks[opening] = None
            opening.add_done_callback(lambda done: self._never_wanted(id_, done))
            raise

    def hold(self, body: LargeBody) -> None:
        """One more refers to it."""
        self._references[body] = self._references.get(body, 0) + 1

    def release(self, body: LargeBody) -> None:
        """One fewer; the last one's end is the file's. A message's only once its deletion is durable."""
        count = self._references[body] - 1
        if count:
            self._references[body] = count
            return
        del self._references[body]
        if self.on_removed is not None:
            self.on_removed(body.id)
        self.discard(body.id)

    def discard(self, id_: int, file: VolumeFile | None = None) -> None:
        """Remove a file, soon, and close it before if it is open."""
        task = asyncio.get_running_loop().create_task(self._remove(id_, file), name=f"remove {path_of(id_)}")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def chunks(self, body: LargeBody) -> AsyncIterator[bytes]:
        """The body from start to end, 64 KiB each. Raises OSError, and JournalDamagedError *before the last* chunk of a damaged one."""
        checksum = 0
        offset = 0
        while offset < body.size:
            data = await self._volume.read(body.path, offset, min(CHUNK, body.size - offset))
            if not data:
                raise JournalDamagedError(body.path, offset, f"{body.size} bytes should be here")
            checksum = google_crc32c.extend(checksum, data)
            offset += len(data)
            if offset == body.size and checksum != body.checksum:
                raise JournalDamagedError(body.path, 0, "the checksum does not match")
            yield data

    async def sweep(self, below: int) -> None:
        """At a start: check that what is referred to is there, and remove files with ids below ``below`` to which nothing refers.

        Raises JournalDamagedError for a file that is missing or too short.
        """
        names = await self._volume.list(DIRECTORY)
        present = set(names)
        for body in self._references:
            name = body.path.rpartition("/")[2]
            if name not in present or await self._volume.size(body.path) < body.size:
                raise JournalDamagedError(
                    body.path, 0, f"the {body.size} bytes of a large message are missing"
                )
        known = {body.id for body in self._references}
        for name in names:
            match = _NAME.match(name)
            if match and int(match[1]) not in known and int(match[1]) < below:
                _log.info("large messages: removing %s/%s, to which no record refers", DIRECTORY, name)
                await self._volume.remove(f"{DIRECTORY}/{name}")

    async def close(self) -> None:
        """Wait for removals under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _open(self, id_: int) -> VolumeFile:
        await self._volume.mkdir(DIRECTORY)
        return await self._volume.open(path_of(id_))

    def _never_wanted(self, id_: int, opening: asyncio.Task[VolumeFile]) -> None:
        self._tasks.pop(opening, None)
        if not opening.cancelled() and opening.exception() is None:
            self.discard(id_, opening.result())

    async def _remove(self, id_: int, file: VolumeFile | None) -> None:
        try:
            if file is not None:
                await file.close()
            await self._volume.remove(path_of(id_))
        except OSError as error:
            _log.warning("large messages: %s could not be removed: %s", path_of(id_), error)


class LargeWriter:
    """A body on its way to the disk. End it with ``finish``, or with ``discard``; memory is bounded by awaiting ``flush`` when it is ``due``."""

    def __init__(self, owner: LargeMessages, id_: int, file: VolumeFile) -> None:
        self.id = id_
        self.size = 0
        self.start = b""
        """The first bytes."""
        self._owner = owner
        self._file = file
        self._checksum = 0
        self._unsynced = 0

    @property
    def due(self) -> bool:
        """Is it time to ``flush``?"""
        return self._unsynced >= SYNC_EVERY

    def write(self, data: bytes) -> None:
        """The next bytes. Raises OSError."""
        self._file.write(data)
        if self.size < START:
            self.start += bytes(data[: START - self.size])
        self._checksum = google_crc32c.extend(self._checksum, data)
        self.size += len(data)
        self._unsynced += len(data)

    async def flush(self) -> None:
        """Return when all that was written is on the disk. Raises OSError."""
        self._unsynced = 0
        await self._file.sync()

    async def finish(self) -> LargeBody:
        """The whole body, durable, here and wherever ``on_stored`` has to have it; held once, for the caller. Raises OSError."""
        await self.flush()
        await self._file.close()
        body = LargeBody(self.id, self.size, self._checksum)
        self._owner.hold(body)
        if self._owner.on_stored is not None:
            try:
                await self._owner.on_stored(body)
            except BaseException:
                self._owner.release(body)
                raise
        return body

    def discard(self) -> None:
        """It will never be whole, or nobody wants it any more."""
        self._owner.discard(self.id, self._file)
