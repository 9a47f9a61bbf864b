"""A directory of a shared directory, seen as if it were the whole.

With it, code that was written for a store of its own works within a larger one.
"""

# ruff: noqa: D102 - the protocols in volume.py and shared.py say what each method promises
from __future__ import annotations

import builtins

from broker.storage.shared import Ids, SharedDirectory, SharedLock
from broker.storage.volume import Space, VolumeFile, VolumeLock


class Subdirectory:
    """A directory of ``whole``; the directory must exist. See ``shared.SharedDirectory``."""

    def __init__(self, whole: SharedDirectory, directory: str) -> None:
        self._whole = whole
        self._directory = directory

    async def list(self, directory: str) -> builtins.list[str]:
        return await self._whole.list(self._path(directory))

    async def open(self, path: str) -> VolumeFile:
        return await self._whole.open(self._path(path))

    async def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        return await self._whole.read(self._path(path), offset, size)

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._whole.write_atomic(self._path(path), data)

    async def remove(self, path: str) -> None:
        await self._whole.remove(self._path(path))

    async def remove_tree(self, path: str) -> None:
        await self._whole.remove_tree(self._path(path))

    async def rename(self, old: str, new: str) -> None:
        await self._whole.rename(self._path(old), self._path(new))

    async def mkdir(self, path: str) -> None:
        await self._whole.mkdir(self._path(path))

    async def size(self, path: str) -> int:
        return await self._whole.size(self._path(path))

    async def exists(self, path: str) -> bool:
        return await self._whole.exists(self._path(path))

    async def truncate(self, path: str, size: int) -> None:
        await self._whole.truncate(self._path(path), size)

    async def space(self) -> Space | None:
        return await self._whole.space()

    async def lock(self, path: str) -> VolumeLock:
        return await self._whole.lock(self._path(path))

    async def try_lock(self, path: str, offset: int) -> SharedLock | None:
        return await self._whole.try_lock(self._path(path), offset)

    async def link(self, old: str, new: str) -> None:
        await self._whole.link(self._path(old), self._path(new))

    async def locked(self, path: str, offset: int) -> bool:
        return await self._whole.locked(self._path(path), offset)

    async def owner(self, directory: str) -> Ids:
        return await self._whole.owner(self._path(directory))

    def ids(self) -> Ids:
        return self._whole.ids()

    def _path(self, path: str) -> str:
        return f"{self._directory}/{path}" if path not in ("", ".") else self._directory
