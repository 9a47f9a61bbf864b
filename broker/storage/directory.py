"""The real volume: a directory of the host's file system.

Why one thread: fsync blocks for as long as the disk likes, and the loop must not. All blocking
calls run one after the other in a single dedicated thread (the only one in the broker), so that
they keep their order. Writes go to the page cache from the loop itself, which takes microseconds
and saves the way to the thread.
"""

# ruff: noqa: D102 - the protocols in volume.py say what each method promises
from __future__ import annotations

import asyncio
import builtins
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TypeVar, TypeVarTuple

from broker.storage.volume import Space, VolumeFile, VolumeLock, VolumeLockedError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DirectoryVolume:
    """Files under ``root``, which is created. Call ``close`` when done: it ends the thread."""

    def __init__(self, root: Path | str) -> None:
        self._root = Path(root)
        self._root.mkdir(parents=True, exist_ok=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="volume")

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a blocking function in the volume's thread, after all earlier calls."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def path(self, path: str) -> Path:
        """Return the real path of a path of the volume.

        Raises ValueError for a path that leads out of the volume.
        """
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"path {path!r} leads out of the volume")
        return self._root / path

    async def list(self, directory: str) -> builtins.list[str]:
        return await self.call(_list, self.path(directory))

    async def open(self, path: str) -> VolumeFile:
        return DirectoryFile(self, await self.call(open_appending, self.path(path)))

    async def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        return await self.call(_read, self.path(path), offset, size)

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self.call(_write_atomic, self.path(path), data)

    async def space(self) -> Space | None:
        return await self.call(_space, self._root)

    async def remove(self, path: str) -> None:
        await self.call(_remove, self.path(path))

    async def remove_tree(self, path: str) -> None:
        await self.call(_remove_tree, self.path(path))

    async def rename(self, old: str, new: str) -> None:
        await self.call(_rename, self.path(old), self.path(new))

    async def mkdir(self, path: str) -> None:
        await self.call(_mkdir, self.path(path))

    async def size(self, path: str) -> int:
        return (await self.call(os.stat, self.path(path))).st_size

    async def exists(self, path: str) -> bool:
        return await self.call(os.path.lexists, self.path(path))

    async def truncate(self, path: str, size: int) -> None:
        await self.call(_truncate, self.path(path), size)

    async def lock(self, path: str) -> VolumeLock:
        return DirectoryLock(await self.call(_lock, self.path(path)))

    async def close(self) -> None:
        """End the thread when all its calls are done."""
        thread = self._thread
        await self.call(lambda: None)
        thread.shutdown(wait=False)


class DirectoryFile:
    """A file descriptor in append mode."""

    __slots__ = ("_descriptor", "_volume")

    def __init__(self, volume: DirectoryVolume, descriptor: int) -> None:
        self._volume = volume
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        write_all(self._descriptor, data)

    async def sync(self) -> None:
        await self._volume.call(os.fdatasync, self._descriptor)

    async def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            await self._volume.call(os.close, descriptor)


class DirectoryLock:
    """An advisory lock of the whole file (flock), held by this opening until its process ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, however few the system takes at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Make what was created, renamed or removed in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _list(path: Path) -> list[str]:
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return []


def open_appending(path: Path) -> int:
    """Open a file for appending, and return its descriptor; a new file is created durably."""
    new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    if new:
        sync_directory(path.parent)
    return descriptor


def _read(path: Path, offset: int, size: int | None) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        if size is None:
            return file.readall()
        parts = []
        while size > 0 and (part := file.read(size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_atomic(path: Path, data: bytes) -> None:
    beside = path.with_name(path.name + ".tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.replace(path)
    sync_directory(path.parent)


def _space(path: Path) -> Space | None:
    found = os.statvfs(path)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize) if found.f_blocks else None


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_directory(path.parent)


def _remove_tree(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
        sync_directory(path.parent)


def _rename(old: Path, new: Path) -> None:
    if old.is_dir() and new.exists():
        raise FileExistsError(errno.EEXIST, "a directory is never renamed over another", str(new))
    old.replace(new)
    sync_directory(new.parent)
    if old.parent != new.parent:
        sync_directory(old.parent)


def _mkdir(path: Path) -> None:
    if path.is_dir():
        return
    _mkdir(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def _truncate(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise VolumeLockedError(errno.EWOULDBLOCK, "locked by another process", str(path)) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
