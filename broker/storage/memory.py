"""A disk in memory that forgets what was not synced: for tests, and for the simulation.

Why: the promise "on disk" can only be tested on a disk that breaks everything else. ``crash`` loses or tears unsynced
writes the way disks do (any of the last sectors may be missing, not only the last ones); ``fail_after`` makes the power go out within any chosen
operation. No threads, no real time, no chance but the caller's.
"""

# ruff: noqa: D102 - the protocols in volume.py say what each method promises
from __future__ import annotations

import asyncio
import builtins
import errno
import random
from collections.abc import Mapping

from broker.storage.volume import VolumeFile, VolumeLock, VolumeLockedError

_SECTOR = 512


class VolumeCrashedError(OSError):
    """The disk went away under its user."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EIO, "the volume has crashed", path)


class _Content:
    __slots__ = ("data", "synced")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = len(data)


class MemoryVolume:
    """Files in a dictionary. ``latency_s`` is what a sync takes on the loop's clock.

    ``operations`` counts everything that changes the disk; when it has reached ``fail_after`` the next change does
    not happen and nothing works any more until ``crash``.
    """

    def __init__(self, image: Mapping[str, bytes] | None = None, *, latency_s: float = 0.0) -> None:
        self.latency_s = latency_s
        self.operations = 0
        self.fail_after: int | None = None
        self._files: dict[str, _Content] = {path: _Content(data) for path, data in (image or {}).items()}
        self._directories: set[str] = set()
        self._locks: dict[str, MemoryLock] = {}
        self._generation = 0
        self._dead = False
        for path in self._files:
            self._make_parents(path)

    # ---- what a test does to it

    def image(self) -> dict[str, bytes]:
        """Every file as a process that opened it now would read it."""
        return {path: bytes(content.data) for path, content in sorted(self._files.items())}

    def crash(self, chance: random.Random | None = None) -> None:
        """The machine stops: open files and locks are gone, unsynced bytes are lost, or torn if ``chance`` says how."""
        self._generation += 1
        self._dead = False
        self.fail_after = None
        self._locks.clear()
        for path in sorted(self._files):
            content = self._files[path]
            if len(content.data) > content.synced:
                _tear(content, chance)
            content.synced = len(content.data)

    # ---- Volume

    async def list(self, directory: str) -> builtins.list[str]:
        await self._turn(directory)
        prefix = directory.rstrip("/") + "/" if directory not in ("", ".") else ""
        names = [
            path[len(prefix) :] for path in (*self._files, *self._directories) if path.startswith(prefix)
        ]
        return sorted({name.partition("/")[0] for name in names if name})

    async def open(self, path: str) -> VolumeFile:
        await self._turn(path)
        if path not in self._files:
            self._change(path)
            self._require_parent(path)
            self._files[path] = _Content()
        return MemoryFile(self, path, self._files[path], self._generation)

    async def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        await self._turn(path)
        data = self._file(path).data
        return bytes(data[offset:] if size is None else data[offset : offset + size])

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._turn(path)
        self._change(path)
        self._require_parent(path)
        beside = self._files[path + ".tmp"] = _Content()
        beside.data += data
        await self._turn(path)
        self._change(path)
        beside.synced = len(beside.data)
        self._files[path] = self._files.pop(path + ".tmp")

    async def remove(self, path: str) -> None:
        await self._turn(path)
        if path in self._files:
            self._change(path)
            del self._files[path]

    async def remove_tree(self, path: str) -> None:
        await self._turn(path)
        for inside in sorted(self._files):
            if inside.startswith(path + "/"):
                self._change(inside)
                del self._files[inside]
        self._directories = {
            inside for inside in self._directories if inside != path and not inside.startswith(path + "/")
        }

    async def rename(self, old: str, new: str) -> None:
        await self._turn(old)
        self._change(old)
        self._require_parent(new)
        if old in self._files:
            self._files[new] = self._files.pop(old)
            return
        if old not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        if new in self._directories or new in self._files:
            raise FileExistsError(errno.EEXIST, "a directory is never renamed over another", new)
        moved = {path: new + path[len(old) :] for path in self._files if path.startswith(old + "/")}
        for path, target in moved.items():
            self._files[target] = self._files.pop(path)
        self._directories = {
            new + path[len(old) :] if path == old or path.startswith(old + "/") else path
            for path in self._directories
        }

    async def mkdir(self, path: str) -> None:
        await self._turn(path)
        if path not in self._directories:
            self._change(path)
            self._make_parents(path + "/x")

    async def size(self, path: str) -> int:
        await self._turn(path)
        return len(self._file(path).data)

    async def exists(self, path: str) -> bool:
        await self._turn(path)
        return path in self._files or path in self._directories

    async def truncate(self, path: str, size: int) -> None:
        await self._turn(path)
        self._change(path)
        content = self._file(path)
        del content.data[size:]
        content.synced = len(content.data)

    async def lock(self, path: str) -> VolumeLock:
        await self._turn(path)
        self._require_parent(path)
        if path in self._locks:
            raise VolumeLockedError(errno.EWOULDBLOCK, "locked by another process", path)
        lock = self._locks[path] = MemoryLock(self, path)
        return lock

    # ---- for its files and locks

    def live(self, path: str, generation: int) -> None:
        """Raises VolumeCrashedError for a handle from before a crash, or while the disk is down."""
        if self._dead or generation != self._generation:
            raise VolumeCrashedError(path)

    def _change(self, path: str) -> None:
        if self.fail_after is not None and self.operations >= self.fail_after:
            self._dead = True
        if self._dead:
            raise VolumeCrashedError(path)
        self.operations += 1

    def write(self, path: str, content: _Content, generation: int, data: bytes) -> None:
        self.live(path, generation)
        self._change(path)
        content.data += data

    async def sync(self, path: str, content: _Content, generation: int) -> None:
        self.live(path, generation)
        size = len(content.data)
        await asyncio.sleep(self.latency_s)
        self.live(path, generation)
        self._change(path)
        content.synced = max(content.synced, size)

    def unlock(self, lock: MemoryLock) -> None:
        if self._locks.get(lock.path) is lock:
            del self._locks[lock.path]

    async def _turn(self, path: str) -> None:
        generation = self._generation
        await asyncio.sleep(0)
        self.live(path, generation)

    def _file(self, path: str) -> _Content:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None

    def _make_parents(self, path: str) -> None:
        while (path := path.rpartition("/")[0]) and path not in self._directories:
            self._directories.add(path)

    def _require_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)


class MemoryFile:
    """An open file of a MemoryVolume; a rename does not disturb it, a crash does."""

    __slots__ = ("_content", "_generation", "_path", "_volume")

    def __init__(self, volume: MemoryVolume, path: str, content: _Content, generation: int) -> None:
        self._volume = volume
        self._path = path
        self._content = content
        self._generation = generation

    def write(self, data: bytes) -> None:
        self._volume.write(self._path, self._content, self._generation, data)

    async def sync(self) -> None:
        await self._volume.sync(self._path, self._content, self._generation)

    async def close(self) -> None:
        await asyncio.sleep(0)


class MemoryLock:
    """A lock of a MemoryVolume; a crash releases it."""

    __slots__ = ("_volume", "path")

    def __init__(self, volume: MemoryVolume, path: str) -> None:
        self._volume = volume
        self.path = path

    async def release(self) -> None:
        self._volume.unlock(self)


def _tear(content: _Content, chance: random.Random | None) -> None:
    """Decide for the unsynced end of a file, sector by sector, what of it had reached the disk."""
    fate = chance.choice(("lost", "kept", "cut", "sectors")) if chance is not None else "lost"
    if fate == "lost":
        del content.data[content.synced :]
    elif chance is not None and fate != "kept":
        del content.data[chance.randint(content.synced, len(content.data)) :]
        if fate == "sectors":
            position = content.synced
            while position < len(content.data):
                end = min(len(content.data), (position // _SECTOR + 1) * _SECTOR)
                if chance.random() < 0.5:
                    content.data[position:end] = bytes(end - position)
                position = end
