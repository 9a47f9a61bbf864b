"""Blobs: bytes that are stored outside the journal, written and read in chunks.

They are in ``large-messages`` and ``paging``, AMQ 17.3.2.

Why outside the journal: a body that is streamed between a client and the disk needs no memory of
its size, however many of them are under way. A page of messages whose turn is far off needs no
memory at all. A record of the journal only names the blob.

The order that makes it safe: first the blob is complete and synced, then the record that names it
is appended. First the record is deleted, durably, then the blob is removed. So a crash at any
moment leaves at most a blob that no record names, and ``sweep`` removes these at the next start.
Ids come from the journal and never repeat. A sweep leaves alone whatever is younger than its own
start, for another broker may have begun to write there after it lost the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

import google_crc32c

from broker.storage.errors import JournalDamagedError
from broker.storage.volume import Volume

LARGE_MESSAGES: Final = "large-messages"
PAGING: Final = "paging"
SUFFIXES: Final = {LARGE_MESSAGES: "msg", PAGING: "page"}
"""The kinds of blobs, each with a directory of its own, and the suffixes of their files."""

CHUNK: Final = 64 * 1024
SYNC_EVERY: Final = 1024 * 1024
"""The bytes after which to sync: a larger sync would hold up the group commits behind it."""

START: Final = 256
"""The first bytes of a blob that its writer remembers: enough to recognise a large message."""

_log = logging.getLogger(__name__)


class Blob(NamedTuple):
    """The reference to a blob in a record: the blob's id, its size in bytes, and its CRC-32C."""

    id: int
    size: int
    checksum: int


class Open(Protocol):
    """A blob that is being written; a ``VolumeFile`` is one."""

    def write(self, data: bytes) -> None:
        """Append bytes, buffered."""
        ...

    async def sync(self) -> None:
        """Return when everything that was written is durable. Raises OSError."""
        ...

    async def close(self) -> None:
        """Close the blob; what was not synced may be lost."""
        ...


class Medium(Protocol):
    """The place of the blobs of one kind: files of a directory, or rows of a database.

    Every method raises OSError if it fails.
    """

    kind: str

    def path(self, id_: int) -> str:
        """Return the name of a blob in a message for people."""
        ...

    async def create(self, id_: int) -> Open:
        """Create a new, empty blob."""
        ...

    async def read(self, id_: int, offset: int, size: int) -> bytes:
        """Return at most so many bytes; none at the end of the blob."""
        ...

    async def remove(self, id_: int) -> None:
        """Remove a blob, if it exists."""
        ...

    async def sizes(self) -> dict[int, int]:
        """Return the bytes of every blob that exists, by id."""
        ...


class BlobFiles:
    """A medium with a file for each blob, in the directory of its kind."""

    def __init__(self, volume: Volume, kind: str) -> None:
        self.kind = kind
        self._volume = volume
        self._name = re.compile(rf"([0-9]{{1,20}})\.{SUFFIXES[kind]}\Z")

    def path(self, id_: int) -> str:
        """Return the file within the volume."""
        return f"{self.kind}/{id_}.{SUFFIXES[self.kind]}"

    async def create(self, id_: int) -> Open:
        """Create a blob; see ``Medium``."""
        await self._volume.mkdir(self.kind)
        return await self._volume.open(self.path(id_))

    async def read(self, id_: int, offset: int, size: int) -> bytes:
        """Read a part of a blob; see ``Medium``."""
        return await self._volume.read(self.path(id_), offset, size)

    async def remove(self, id_: int) -> None:
        """Remove a blob; see ``Medium``."""
        await self._volume.remove(self.path(id_))

    async def sizes(self) -> dict[int, int]:
        """Return the sizes of all blobs; see ``Medium``."""
        found = (self._name.match(name) for name in await self._volume.list(self.kind))
        ids = [int(match[1]) for match in found if match]
        sizes = {}
        for id_ in ids:
            with contextlib.suppress(FileNotFoundError):  # the former owner of the store still removes files
                sizes[id_] = await self._volume.size(self.path(id_))
        return sizes


class Blobs:
    """The blobs of one kind that one open journal names, with a count of the references to each.

    Messages refer to blobs, and so do deliveries under way.

    ``on_stored`` is awaited for each blob before anything may name it. ``on_removed`` is called for
    each blob that is removed (replication).
    """

    def __init__(self, medium: Medium, next_id: Callable[[], int]) -> None:
        self.on_stored: Callable[[Blob], Awaitable[None]] | None = None
        self.on_removed: Callable[[int], None] | None = None
        self.medium = medium
        self._next_id = next_id
        self._references: dict[Blob, int] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @property
    def kind(self) -> str:
        """The kind of these blobs: ``LARGE_MESSAGES`` or ``PAGING``."""
        return self.medium.kind

    @property
    def stored(self) -> list[Blob]:
        """All blobs that are referred to."""
        return list(self._references)

    def __contains__(self, blob: Blob) -> bool:
        return blob in self._references

    async def begin(self) -> BlobWriter:
        """Begin to write a new blob. Raises OSError."""
        id_ = self._next_id()
        opening = asyncio.get_running_loop().create_task(
            self.medium.create(id_), name=f"begin {self.medium.path(id_)}"
        )
        try:
            return BlobWriter(self, id_, await asyncio.shield(opening))
        except asyncio.CancelledError:
            # The disk creates it nevertheless, and it would stay there unknown.
            self._tasks[opening] = None
            opening.add_done_callback(lambda done: self._never_wanted(id_, done))
            raise

    def hold(self, blob: Blob) -> None:
        """Add a reference to the blob."""
        self._references[blob] = self._references.get(blob, 0) + 1

    def release(self, blob: Blob) -> None:
        """Remove a reference; with the last one the blob is removed.

        The last reference of a message goes once its record is durably deleted.
        """
        count = self._references[blob] - 1
        if count:
            self._references[blob] = count
            return
        del self._references[blob]
        if self.on_removed is not None:
            self.on_removed(blob.id)
        self.discard(blob.id)

    def discard(self, id_: int, file: Open | None = None) -> None:
        """Remove a blob soon; close it before that if it is open."""
        task = asyncio.get_running_loop().create_task(
            self._remove(id_, file), name=f"remove {self.medium.path(id_)}"
        )
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def chunks(self, blob: Blob) -> AsyncIterator[bytes]:
        """Yield the blob from start to end, 64 KiB each.

        Raises OSError, and JournalDamagedError *before the last* chunk of a damaged blob.
        """
        checksum = 0
        offset = 0
        while offset < blob.size:
            data = await self.medium.read(blob.id, offset, min(CHUNK, blob.size - offset))
            if not data:
                raise JournalDamagedError(
                    self.medium.path(blob.id), offset, f"{blob.size} bytes should be here"
                )
            checksum = google_crc32c.extend(checksum, data)
            offset += len(data)
            if offset == blob.size and checksum != blob.checksum:
                raise JournalDamagedError(self.medium.path(blob.id), 0, "the checksum does not match")
            yield data

    async def sweep(self, concerned: Callable[[int], bool]) -> None:
        """Check and clean up the blobs whose ids are ``concerned``: at a start, all older ones.

        Checks that the blobs that are referred to exist, and removes those that no record names.

        Raises JournalDamagedError for a blob that is missing or too short, OSError.
        """
        held = [blob for blob in self._references if concerned(blob.id)]
        present = await self.medium.sizes()
        for blob in held:
            if blob in self._references and present.get(blob.id, -1) < blob.size:
                raise JournalDamagedError(
                    self.medium.path(blob.id), 0, f"the {blob.size} bytes that a record names are missing"
                )
        known = {blob.id for blob in self._references}
        for id_ in present:
            if id_ not in known and concerned(id_):
                _log.info("%s: removing %s, because no record refers to it", self.kind, self.medium.path(id_))
                await self.medium.remove(id_)

    async def close(self) -> None:
        """Wait for the removals that are under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _never_wanted(self, id_: int, opening: asyncio.Task[Open]) -> None:
        self._tasks.pop(opening, None)
        if not opening.cancelled() and opening.exception() is None:
            self.discard(id_, opening.result())

    async def _remove(self, id_: int, file: Open | None) -> None:
        try:
            if file is not None:
                await file.close()
            await self.medium.remove(id_)
        except OSError as error:
            _log.warning("%s could not be removed: %s", self.medium.path(id_), error)


class BlobWriter:
    """A blob that is being written.

    End it with ``finish``, or with ``discard``. Await ``flush`` when it is ``due``, which bounds
    memory.
    """

    def __init__(self, owner: Blobs, id_: int, file: Open) -> None:
        self.id = id_
        self.size = 0
        self.start = b""
        """The first bytes of the blob."""
        self._owner = owner
        self._file = file
        self._checksum = 0
        self._unsynced = 0

    @property
    def due(self) -> bool:
        """True if it is time to ``flush``."""
        return self._unsynced >= SYNC_EVERY

    def write(self, data: bytes) -> None:
        """Write the next bytes. Raises OSError."""
        self._file.write(data)
        if self.size < START:
            self.start += bytes(data[: START - self.size])
        self._checksum = google_crc32c.extend(self._checksum, data)
        self.size += len(data)
        self._unsynced += len(data)

    async def flush(self) -> None:
        """Return when everything that was written is on the disk. Raises OSError."""
        self._unsynced = 0
        await self._file.sync()

    async def finish(self) -> Blob:
        """Finish the blob, which is then durable here and wherever ``on_stored`` has put it.

        The caller holds one reference to it. Raises OSError.
        """
        await self.flush()
        await self._file.close()
        blob = Blob(self.id, self.size, self._checksum)
        self._owner.hold(blob)
        if self._owner.on_stored is not None:
            try:
                await self._owner.on_stored(blob)
            except BaseException:
                self._owner.release(blob)
                raise
        return blob

    def discard(self) -> None:
        """Give the blob up: it will never be complete, or is not wanted any more."""
        self._owner.discard(self.id, self._file)
