"""A shared directory of the world, as a broker is given it.

It has files, names and locks; each call is one request to the file server.
"""

# ruff: noqa: D102 - the broker's protocol of a shared directory says what each method promises
from __future__ import annotations

import builtins
import errno
from collections.abc import Callable

from environments.simulation.filestore import ExpiredError, Lock, StoredFile
from environments.simulation.kernel import Kernel


class SimulatedMount(Kernel):
    """A mounted directory."""

    async def list(self, directory: str) -> builtins.list[str]:
        prefix = directory.rstrip("/") + "/" if directory not in ("", ".") else ""

        def names() -> builtins.list[str]:
            paths = (*self.server.files, *self.server.directories)
            found = {path[len(prefix) :].partition("/")[0] for path in paths if path.startswith(prefix)}
            return sorted(found - {""})

        return await self.call(names)

    async def open(self, path: str) -> MountedFile:
        def create() -> tuple[StoredFile, int]:
            self._require_parent(path)
            return self.server.files.setdefault(path, StoredFile()), self.client.generation

        stored, generation = await self.call(create, changes=True, grows=True)
        file = MountedFile(self, path, stored, generation)
        self.open_files[file] = None
        return file

    async def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        def work() -> bytes:
            data = self._file(path).data
            return bytes(data[offset:] if size is None else data[offset : offset + size])

        return await self.call(work)

    async def write_atomic(self, path: str, data: bytes) -> None:
        beside = path + ".tmp"

        def write() -> None:
            self._require_parent(path)
            self.server.files[beside] = StoredFile(bytearray(data))

        await self.call(write, changes=True, grows=True)
        await self.call(lambda: self._move(beside, path), new_state=False, changes=True)

    async def remove(self, path: str) -> None:
        await self.call(lambda: self.server.remove(path), changes=True)

    async def remove_tree(self, path: str) -> None:
        def work() -> None:
            files, directories = self.server.files, self.server.directories
            for inside in [name for name in files if name.startswith(path + "/")]:
                del files[inside]
            for inside in [name for name in directories if name == path or name.startswith(path + "/")]:
                directories.discard(inside)
                self.server.owners.pop(inside, None)

        await self.call(work, changes=True)

    async def rename(self, old: str, new: str) -> None:
        await self.call(lambda: self._move(old, new), changes=True)

    async def mkdir(self, path: str) -> None:
        def work() -> None:
            parent = path
            while parent:
                self.server.directories.add(parent)
                self.server.owners.setdefault(parent, self.user)
                parent = parent.rpartition("/")[0]

        await self.call(work, changes=True, grows=True)

    async def size(self, path: str) -> int:
        return await self.call(lambda: len(self._file(path).data))

    async def exists(self, path: str) -> bool:
        return await self.call(lambda: path in self.server.files or path in self.server.directories)

    async def space(self) -> None:
        return None

    async def truncate(self, path: str, size: int) -> None:
        def work() -> None:
            del self._file(path).data[size:]

        await self.call(work, changes=True)

    async def link(self, old: str, new: str) -> None:
        def work() -> None:
            stored = self._file(old)
            self._require_parent(new)
            if new in self.server.files:
                raise FileExistsError(errno.EEXIST, "the name is taken", new)
            self.server.files[new] = stored

        await self.call(work, changes=True, grows=True)

    async def try_lock(self, path: str, offset: int) -> MountedLock | None:
        process, locks = self.process, self.server.locks

        def take() -> Lock | None:
            self._require_parent(path)
            self.server.files.setdefault(path, StoredFile())
            if (path, offset) in locks:
                return None
            lock = locks[path, offset] = Lock(path, offset, self.client, self.client.generation, process)
            return lock

        def give_back(lock: Lock | None) -> None:
            if lock is not None and locks.get((path, offset)) is lock:
                del locks[path, offset]

        lock: Lock | None = await self.call(take, changes=True, given_up=give_back)
        return None if lock is None else MountedLock(self, lock)

    async def locked(self, path: str, offset: int) -> bool:
        return await self.call(lambda: (path, offset) in self.server.locks)

    async def owner(self, directory: str) -> tuple[int, int]:
        def look() -> tuple[int, int]:
            if directory not in self.server.directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
            return self.server.owners[directory]

        return await self.call(look)

    def ids(self) -> tuple[int, int]:
        return self.user

    async def lock(self, path: str) -> MountedLock:
        lock = await self.try_lock(path, 0)
        if lock is None:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)
        return lock

    # ---------------------------------------------------------------------- for its files and locks

    def current(self, path: str, generation: int) -> None:
        """Raise ExpiredError for a file or lock from before the client's lease ran out."""
        if generation != self.client.generation:
            raise ExpiredError(path)

    def confirm(self, lock: Lock) -> None:
        """Raise ExpiredError unless the server knows this lock."""
        self.current(lock.path, lock.generation)
        if self.server.locks.get((lock.path, lock.offset)) is not lock:
            raise ExpiredError(lock.path)

    def write_locked(self, lock: Lock, offset: int, data: bytes) -> None:
        """Write into the locked file."""
        self.confirm(lock)
        self._file(lock.path).write(offset, data)

    def unlock(self, lock: Lock) -> None:
        """Give up a lock; does nothing if it is lost."""
        if self.server.locks.get((lock.path, lock.offset)) is lock:
            del self.server.locks[lock.path, lock.offset]

    def forget(self, file: MountedFile) -> None:
        """Remove a file that is closed from the open files."""
        self.open_files.pop(file, None)

    def _file(self, path: str) -> StoredFile:
        try:
            return self.server.files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None

    def _move(self, old: str, new: str) -> None:
        files, directories = self.server.files, self.server.directories
        if old in directories:
            if new in directories or new in files:
                raise FileExistsError(errno.EEXIST, "a directory is never renamed over another", new)
            for path in [path for path in files if path.startswith(old + "/")]:
                files[new + path[len(old) :]] = files.pop(path)
            for path in [path for path in directories if path == old or path.startswith(old + "/")]:
                directories.discard(path)
                directories.add(new + path[len(old) :])
                self.server.owners[new + path[len(old) :]] = self.server.owners.pop(path)
            return
        self._require_parent(new)
        stored = self._file(old)
        del files[old]
        files[new] = stored

    def _require_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.server.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)


class MountedFile:
    """An open file that is appended to; what is written waits here for ``sync``."""

    __slots__ = ("_end", "_generation", "_mount", "_path", "_stored", "_unwritten")

    def __init__(self, mount: SimulatedMount, path: str, stored: StoredFile, generation: int) -> None:
        self._mount = mount
        self._path = path
        self._stored = stored
        self._generation = generation
        self._end = len(stored.data)
        self._unwritten = b""

    def write(self, data: bytes) -> None:
        self._unwritten += data

    async def sync(self) -> None:
        data, self._unwritten = self._unwritten, b""
        await self._mount.call(self.appending(data), new_state=False, changes=True, grows=bool(data))

    async def close(self) -> None:
        self._mount.forget(self)
        data, self._unwritten = self._unwritten, b""
        if data:
            await self._mount.call(self.appending(data), new_state=False, changes=True)

    def unwritten(self) -> bytes:
        """Return the bytes that no ``sync`` has taken yet."""
        return self._unwritten

    def appending(self, data: bytes) -> Callable[[], None]:
        """Return the server's work of appending these bytes at the end that this client knows."""
        start = self._end
        self._end += len(data)

        def work() -> None:
            self._mount.current(self._path, self._generation)
            self._stored.write(start, data)

        return work


class MountedLock:
    """A lock as the client holds it; only ``verify`` says whether the server agrees."""

    __slots__ = ("_lock", "_mount")

    def __init__(self, mount: SimulatedMount, lock: Lock) -> None:
        self._mount = mount
        self._lock = lock

    async def verify(self) -> None:
        await self._mount.call(lambda: self._mount.confirm(self._lock), new_state=False, changes=True)

    async def write(self, offset: int, data: bytes) -> None:
        await self._mount.call(
            lambda: self._mount.write_locked(self._lock, offset, data), new_state=False, changes=True
        )

    async def release(self) -> None:
        await self._mount.call(lambda: self._mount.unlock(self._lock), new_state=False, changes=True)
