"""The system calls of a check, each said if asked: for a report to the file system's maker."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_FLAGS: Final = {
    os.O_CREAT: "O_CREAT",
    os.O_EXCL: "O_EXCL",
    os.O_APPEND: "O_APPEND",
    os.O_TRUNC: "O_TRUNC",
    os.O_DIRECTORY: "O_DIRECTORY",
}
_ACCESS: Final = {os.O_RDONLY: "O_RDONLY", os.O_WRONLY: "O_WRONLY", os.O_RDWR: "O_RDWR"}
_LOCKS: Final = {fcntl.LOCK_EX: "F_WRLCK", fcntl.LOCK_SH: "F_RDLCK", fcntl.LOCK_UN: "F_UNLCK"}
_MODE: Final = 0o666


class Calls:
    """Each method is the call of its name; ``tell`` is given one line before each."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def open(self, path: Path, flags: int) -> int:
        """A descriptor."""
        words = [_ACCESS[flags & os.O_ACCMODE], *(word for flag, word in _FLAGS.items() if flags & flag)]
        self._say(f'fd = open("{path}",{"|".join(words)},0{_MODE:o})')
        return os.open(path, flags | os.O_CLOEXEC, _MODE)

    def close(self, descriptor: int) -> None:
        """Give a descriptor back, and with it the locks of this process."""
        self._say("close(fd)")
        os.close(descriptor)

    @contextlib.contextmanager
    def opened(self, path: Path, flags: int) -> Iterator[int]:
        """A descriptor for as long as the block lasts."""
        descriptor = self.open(path, flags)
        try:
            yield descriptor
        finally:
            self.close(descriptor)

    def stat(self, path: Path) -> os.stat_result:
        """Attributes by name."""
        self._say(f'stat("{path}",&statbuf)')
        return path.stat()

    def fstat(self, descriptor: int) -> os.stat_result:
        """Attributes by descriptor."""
        self._say("fstat(fd,&statbuf)")
        return os.fstat(descriptor)

    def fchmod(self, descriptor: int) -> None:
        """Let every user of the other host in, as far as the directory does."""
        self._say(f"fchmod(fd,0{_MODE:o})")
        os.fchmod(descriptor, _MODE)

    def lock(self, descriptor: int, kind: int) -> bool:
        """F_SETLK of the whole file; False if it is held. Raises OSError if there are no locks."""
        self._say(f"fcntl(fd,F_SETLK,{_LOCKS[kind]})")
        try:
            fcntl.lockf(descriptor, kind | (0 if kind == fcntl.LOCK_UN else fcntl.LOCK_NB))
        except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
            return False
        return True

    def write(self, descriptor: int, data: bytes) -> None:
        """All of it, or OSError."""
        self._say(f"write(fd,buf,{len(data)})")
        done = os.write(descriptor, data)
        while done < len(data):
            done += os.write(descriptor, data[done:])

    def fsync(self, descriptor: int) -> None:
        """To the disk."""
        self._say("fsync(fd)")
        os.fsync(descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut."""
        self._say(f"ftruncate(fd,{size})")
        os.ftruncate(descriptor, size)

    def read(self, path: Path) -> bytes:
        """A whole file, opened anew."""
        self._say(f'read("{path}")')
        return path.read_bytes()

    def rename(self, old: Path, new: Path) -> None:
        """Replace ``new``."""
        self._say(f'rename("{old}","{new}")')
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove; one that is not there is no error."""
        self._say(f'unlink("{path}")')
        path.unlink(missing_ok=True)

    def names(self, directory: Path) -> list[str]:
        """What is in a directory, sorted. Never said: it is asked again and again."""
        return sorted(path.name for path in directory.iterdir())

    def _say(self, call: str) -> None:
        self._tell(f"System call: {call}")
