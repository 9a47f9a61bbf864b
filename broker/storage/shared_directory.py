"""The real shared directory: files of a mounted file system, locked by POSIX byte-range locks.

Why a thread whose end is not awaited: on a hard mount whose server is gone, every call hangs for as
long as the server stays away. A broker that lost its store must still be able to end. All calls run
in one daemon thread, in order. So do writes, because appending to a file of a network file system
asks the server where the end of the file is.

Locks belong to an open file description (``F_OFD_SETLK``), not to the process: closing another
descriptor of the same file, as reading a state byte does, must not drop them (ARTEMIS-2567).
"""

# ruff: noqa: D102 - the protocols in volume.py and shared.py say what each method promises
from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import queue
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, TypeVarTuple

from broker.storage.directory import DirectoryVolume, open_appending, sync_directory, write_all
from broker.storage.shared import Ids, SharedLock
from broker.storage.volume import VolumeFile, VolumeLock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LOCK: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
"""The command that locks; without locks of file descriptions, that of the process' locks.

With locks of the process, no other descriptor of the file may be closed meanwhile.
"""

_LOOK: Final[int] = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)

CLOSE_PATIENCE_S: Final = 1.0


class SharedDirectoryVolume(DirectoryVolume):
    """Files under ``root``, which the first call creates. See ``shared.SharedDirectory``."""

    def __init__(self, root: Path | str) -> None:
        self._root = Path(root)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a blocking function in the volume's thread, after all earlier calls."""
        return await self._submit(function, *arguments)

    def _submit(self, function: Callable[[*Ts], T], *arguments: *Ts) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            result: Any = None
            error: Exception | None = None
            try:
                result = function(*arguments)
            except Exception as caught:  # noqa: BLE001 - the caller that waits gets it
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has ended: no caller waits
                loop.call_soon_threadsafe(_settle, future, result, error)

        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="shared store", daemon=True)
            self._worker.start()
        self._calls.put(work)
        return future

    def _work(self) -> None:
        made = False
        while (work := self._calls.get()) is not None:
            if not made:
                with contextlib.suppress(OSError):  # the call itself will fail and say why
                    self._root.mkdir(parents=True, exist_ok=True)
                    made = True
            work()

    async def open(self, path: str) -> VolumeFile:
        return SharedFile(self, await self.call(open_appending, self.path(path)))

    async def link(self, old: str, new: str) -> None:
        await self.call(_link, self.path(old), self.path(new))

    async def try_lock(self, path: str, offset: int) -> SharedLock | None:
        place = self.path(path)
        waiting = self._submit(_try_lock, place, offset)
        try:
            descriptor = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # The lock may be granted later. No caller would know, and no other could ever have it.
            waiting.add_done_callback(_give_back)
            raise
        return None if descriptor is None else SharedDirectoryLock(self, place, offset, descriptor)

    async def locked(self, path: str, offset: int) -> bool:
        return await self.call(_locked, self.path(path), offset)

    async def owner(self, directory: str) -> Ids:
        return await self.call(_owner, self.path(directory))

    def ids(self) -> Ids:
        return os.geteuid(), os.getegid()

    async def lock(self, path: str) -> VolumeLock:
        lock = await self.try_lock(path, 0)
        if lock is None:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)
        return lock

    async def close(self) -> None:
        """End the thread once it has done its work, without waiting for a store that is silent."""
        if self._worker is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await self.call(lambda: None)
        self._calls.put(None)
        self._worker = None


class SharedFile:
    """A file that is appended to: bytes wait in memory for the next ``sync``, which writes them."""

    __slots__ = ("_descriptor", "_unwritten", "_volume")

    def __init__(self, volume: SharedDirectoryVolume, descriptor: int) -> None:
        self._volume = volume
        self._descriptor = descriptor
        self._unwritten: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._unwritten.append(data)

    async def sync(self) -> None:
        await self._volume.call(_append, self._descriptor, self._take())

    async def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            await self._volume.call(_finish, descriptor, self._take())

    def _take(self) -> bytes:
        data = b"".join(self._unwritten)
        self._unwritten.clear()
        return data


class SharedDirectoryLock:
    """The lock of one byte, held through a descriptor of its own."""

    __slots__ = ("_descriptor", "_offset", "_path", "_volume")

    def __init__(self, volume: SharedDirectoryVolume, path: Path, offset: int, descriptor: int) -> None:
        self._volume = volume
        self._path = path
        self._offset = offset
        self._descriptor = descriptor

    async def verify(self) -> None:
        await self._volume.call(_verify, self._held(), self._path, self._offset)

    async def write(self, offset: int, data: bytes) -> None:
        await self._volume.call(_write, self._held(), offset, data)

    async def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            await self._volume.call(os.close, descriptor)

    def _held(self) -> int:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the lock was released", str(self._path))
        return self._descriptor


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _give_back(waiting: asyncio.Future[int | None]) -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        descriptor = waiting.result()
        if descriptor is not None:
            os.close(descriptor)


def _link(old: Path, new: Path) -> None:
    os.link(old, new)
    sync_directory(new.parent)


def _set(descriptor: int, offset: int) -> None:
    """Take or confirm a byte's lock.

    Raises BlockingIOError or PermissionError if another process has it.
    """
    # struct flock: type, whence, start, length, process (0 for locks of a file description)
    fcntl.fcntl(descriptor, _LOCK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))


def _try_lock(path: Path, offset: int) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        _set(descriptor, offset)
        ours = _same(descriptor, path)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    if not ours:  # the file was replaced while it was being locked: the next call finds the new one
        os.close(descriptor)
        return None
    return descriptor


def _locked(path: Path, offset: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
        kind: int = struct.unpack_from("h", fcntl.fcntl(descriptor, _LOOK, asked))[0]
    finally:
        os.close(descriptor)
    return kind != fcntl.F_UNLCK


def _owner(path: Path) -> Ids:
    found = path.stat()
    return found.st_uid, found.st_gid


def _same(descriptor: int, path: Path) -> bool:
    """Return whether the path leads to the locked file.

    The lock of a deleted file does not keep other brokers out (AMQ-4705).
    """
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _verify(descriptor: int, path: Path, offset: int) -> None:
    try:
        _set(descriptor, offset)
    except (BlockingIOError, PermissionError):
        raise OSError(errno.ESTALE, "another broker holds the lock", str(path)) from None
    if not _same(descriptor, path):
        raise OSError(errno.ESTALE, "the lock file was deleted or replaced", str(path))
    # A write under the lock goes to the server, even if the client still believes in its lock.
    os.pwrite(descriptor, b"\0", offset)
    os.fsync(descriptor)


def _write(descriptor: int, offset: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)
    os.fsync(descriptor)


def _append(descriptor: int, data: bytes) -> None:
    write_all(descriptor, data)
    os.fdatasync(descriptor)


def _finish(descriptor: int, data: bytes) -> None:
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
