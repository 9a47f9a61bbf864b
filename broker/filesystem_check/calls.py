"""The system calls of a check, each printed on request: for a report to the file system's maker."""

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
    """System calls: each method is the call of its name; ``tell`` gets one line before each."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def open(self, path: Path, flags: int) -> int:
        """Open a file and return its descriptor."""
        words = [_ACCESS[flags & os.O_ACCMODE], *(word for flag, word in _FLAGS.items() if flags & flag)]
        self._say(f'fd = open("{path}",{"|".join(words)},0{_MODE:o})')
        return os.open(path, flags | os.O_CLOEXEC, _MODE)

    def close(self, descriptor: int) -> None:
        """Close a descriptor, which releases the locks of this process."""
        self._say("close(fd)")
        os.close(descriptor)

    @contextlib.contextmanager
    def opened(self, path: Path, flags: int) -> Iterator[int]:
        """Open a file for as long as the block lasts, and yield its descriptor."""
        descriptor = self.open(path, flags)
        try:
            yield descriptor
        finally:
            self.close(descriptor)

    def stat(self, path: Path) -> os.stat_result:
        """Return the attributes of a path."""
        self._say(f'stat("{path}",&statbuf)')
        return path.stat()

    def fstat(self, descriptor: int) -> os.stat_result:
        """Return the attributes of a descriptor's file."""
        self._say("fstat(fd,&statbuf)")
        return os.fstat(descriptor)

    def fchmod(self, descriptor: int) -> None:
        """Let every user of the other host open the file, as far as the directory does."""
        self._say(f"fchmod(fd,0{_MODE:o})")
        os.fchmod(descriptor, _MODE)

    def lock(self, descriptor: int, kind: int) -> bool:
        """Lock the whole file with F_SETLK; False if it is held. Raises OSError without locks."""
        self._say(f"fcntl(fd,F_SETLK,{_LOCKS[kind]})")
        try:
            fcntl.lockf(descriptor, kind | (0 if kind == fcntl.LOCK_UN else fcntl.LOCK_NB))
        except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
            return False
        return True

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of the data. Raises OSError."""
        self._say(f"write(fd,buf,{len(data)})")
        done = os.write(descriptor, data)
        while done < len(data):
            done += os.write(descriptor, data[done:])

    def fsync(self, descriptor: int) -> None:
        """Bring the file's content to the disk."""
        self._say("fsync(fd)")
        os.fsync(descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self._say(f"ftruncate(fd,{size})")
        os.ftruncate(descriptor, size)

    def read(self, path: Path) -> bytes:
        """Return the content of a file, opened anew."""
        self._say(f'read("{path}")')
        return path.read_bytes()

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing ``new``."""
        self._say(f'rename("{old}","{new}")')
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a file; it is no error if the file does not exist."""
        self._say(f'unlink("{path}")')
        path.unlink(missing_ok=True)

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted. This is called often, and never printed."""
        return sorted(path.name for path in directory.iterdir())

    def _say(self, call: str) -> None:
        self._tell(f"System call: {call}")
