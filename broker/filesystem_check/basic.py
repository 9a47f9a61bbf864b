"""The basic tests: what POSIX promises and a journal relies on, on one host with two processes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from broker.filesystem_check import neighbour
from broker.filesystem_check.calls import Calls
from broker.filesystem_check.mounts import unsafe
from broker.filesystem_check.results import PREFIX, CheckResult, FailedError

_RELEASE_S: Final = 15.0
_AGAIN_S: Final = 0.05
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_TRUNC


class BasicCheck:
    """The tests of one host in order; after a failed test the others are still made.

    They are not made if there is no directory, and those of locks not if there is no lock at all.

    ``mounts`` and ``variables`` are the text of /proc/self/mountinfo and the environment.
    """

    def __init__(self, directory: Path, calls: Calls, mounts: str, variables: Mapping[str, str]) -> None:
        self._directory = directory
        self._calls = calls
        self._mounts = mounts
        self._variables = variables
        self._path = directory / f"{PREFIX}-{os.uname().nodename}-{os.getpid()}"
        self._other = self._path.with_name(self._path.name + ".other")

    async def run(self) -> list[CheckResult]:
        """Make all tests and return their results; the files that were made are removed."""
        results = [await outcome("directory", self._a_directory)]
        if not results[0].passed:
            return results
        try:
            for name, test in (
                ("create-exclusive", self._create_exclusive),
                ("write-and-read", self._write_and_read),
                ("append", self._append),
                ("truncate", self._truncate),
                ("rename-replaces", self._rename_replaces),
                ("unlink-while-open", self._unlink_while_open),
                ("sync-file", self._sync_file),
                ("sync-directory", self._sync_directory),
                ("sync-to-a-disk", self._sync_to_a_disk),
                ("lock", self._lock),
            ):
                results.append(await outcome(name, test))
            if results[-1].passed:
                for name, test in (
                    ("lock-denied", self._lock_denied),
                    ("lock-released-by-close", self._lock_released_by_close),
                    ("lock-released-by-death", self._lock_released_by_death),
                ):
                    results.append(await outcome(name, test))
        finally:
            for path in (self._path, self._other):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        return results

    async def _a_directory(self) -> None:
        try:
            mode = self._calls.stat(self._directory).st_mode
        except OSError as error:
            raise FailedError(f"{self._directory}: {error.strerror} (errno {error.errno})") from None
        if not stat.S_ISDIR(mode):
            raise FailedError(f"{self._directory} is not a directory")
        self._calls.close(self._calls.open(self._path, _NEW))

    async def _create_exclusive(self) -> None:
        try:
            descriptor = self._calls.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return
        os.close(descriptor)
        raise FailedError("a file that was there was created a second time (O_EXCL)")

    async def _write_and_read(self) -> None:
        data = bytes(range(256)) * 300
        with self._calls.opened(self._path, _NEW) as descriptor:
            self._calls.write(descriptor, data)
            self._calls.fsync(descriptor)
            if self._calls.fstat(descriptor).st_size != len(data):
                raise FailedError(
                    f"{len(data)} bytes were written, but the file has {os.fstat(descriptor).st_size}"
                )
            if self._calls.read(self._path) != data:
                raise FailedError("what was read is not what was written and synced")

    async def _append(self) -> None:
        with (
            self._calls.opened(self._path, os.O_WRONLY | os.O_APPEND | os.O_TRUNC) as one,
            self._calls.opened(self._path, os.O_WRONLY | os.O_APPEND) as other,
        ):
            for turn in range(8):
                self._calls.write(one if turn % 2 else other, b"%d" % turn)
        if self._calls.read(self._path) != b"01234567":
            raise FailedError("two openings that append in turn overwrote each other")

    async def _truncate(self) -> None:
        with self._calls.opened(self._path, _NEW) as descriptor:
            self._calls.write(descriptor, b"0123456789")
            self._calls.ftruncate(descriptor, 4)
            if self._calls.read(self._path) != b"0123":
                raise FailedError("a file that was cut still has what was cut off")

    async def _rename_replaces(self) -> None:
        for path, content in ((self._path, b"old"), (self._other, b"new")):
            with self._calls.opened(path, _NEW) as descriptor:
                self._calls.write(descriptor, content)
        with self._calls.opened(self._path, os.O_RDONLY) as before:
            self._calls.rename(self._other, self._path)
            if self._calls.read(self._path) != b"new" or self._other.exists():
                raise FailedError("a file that was renamed over another did not take its place")
            if os.pread(before, 3, 0) != b"old":
                raise FailedError("who had the replaced file open does not have its content any more")

    async def _unlink_while_open(self) -> None:
        with self._calls.opened(self._other, _NEW) as descriptor:
            self._calls.write(descriptor, b"here")
            self._calls.unlink(self._other)
            if self._other.exists() or os.pread(descriptor, 4, 0) != b"here":
                raise FailedError("a file that was removed while open is still there, or its content is not")

    async def _sync_file(self) -> None:
        with self._calls.opened(self._path, _NEW) as descriptor:
            self._calls.write(descriptor, b"durable")
            self._calls.fsync(descriptor)

    async def _sync_directory(self) -> None:
        with self._calls.opened(self._directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            self._calls.fsync(descriptor)

    async def _sync_to_a_disk(self) -> None:
        if problem := unsafe(self._directory, self._mounts, self._variables):
            raise FailedError(problem)

    async def _lock(self) -> None:
        with self._calls.opened(self._path, os.O_RDWR) as descriptor:
            if not self._calls.lock(descriptor, fcntl.LOCK_EX):
                raise FailedError("the lock of a new file is held by somebody")

    async def _lock_denied(self) -> None:
        with self._calls.opened(self._path, os.O_RDWR) as descriptor:
            self._calls.lock(descriptor, fcntl.LOCK_EX)
            if await self._neighbour_gets_it():
                raise FailedError("two processes of this host hold the same lock")

    async def _lock_released_by_close(self) -> None:
        with self._calls.opened(self._path, os.O_RDWR) as descriptor:
            self._calls.lock(descriptor, fcntl.LOCK_EX)
        async with asyncio.timeout(_RELEASE_S):
            while not await self._neighbour_gets_it():  # noqa: ASYNC110 - only the file system knows
                await asyncio.sleep(_AGAIN_S)

    async def _lock_released_by_death(self) -> None:
        async with self._neighbour("hold") as process:
            assert process.stdout is not None
            if await process.stdout.readline() != b"held\n":
                raise FailedError("another process did not get the lock though nobody held it")
            with self._calls.opened(self._path, os.O_RDWR) as descriptor:
                if self._calls.lock(descriptor, fcntl.LOCK_EX):
                    raise FailedError("two processes of this host hold the same lock")
                process.kill()
                await process.wait()
                async with asyncio.timeout(_RELEASE_S):
                    while not self._calls.lock(descriptor, fcntl.LOCK_EX):  # noqa: ASYNC110
                        await asyncio.sleep(_AGAIN_S)

    async def _neighbour_gets_it(self) -> bool:
        async with self._neighbour("try") as process:
            status = await process.wait()
            if status > 1:
                raise FailedError("another process was told that there are no locks")
            return status == 0

    @contextlib.asynccontextmanager
    async def _neighbour(self, order: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-IS",  # it needs nothing but the standard library, and starts four times as fast
            neighbour.__file__,
            str(self._path),
            order,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def outcome(name: str, test: Callable[[], Awaitable[None]]) -> CheckResult:
    """Run one test; an error of the file system is a failure of the test that met it."""
    try:
        await test()
    except FailedError as failed:
        return CheckResult(name, str(failed))
    except TimeoutError:
        return CheckResult(name, f"a lock was still held {_RELEASE_S:.0f} s after its holder was gone")
    except OSError as error:
        return CheckResult(name, f"{error.strerror or type(error).__name__} (errno {error.errno})")
    return CheckResult(name)
