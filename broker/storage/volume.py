"""The seam to a disk: everything that the broker stores goes through a ``Volume``.

Why: tests and the simulation need a disk that loses unsynced writes, tears them, stalls and fails,
and the real one must never block the loop. Paths are relative to the volume and use "/". Changes of
directories (creating, renaming and removing files) are durable when the call returns. The content
of a file is durable up to its last ``sync``.

Every call may raise OSError. After an error of ``write`` or ``sync``, a file's durable content is
unknown and must not be appended to (a second fsync may report success for pages that the first one
dropped).
"""

from __future__ import annotations

import builtins
from typing import NamedTuple, Protocol


class VolumeLockedError(OSError):
    """Another process (or owner in this one) has the lock: two would destroy each other's data."""


class VolumeFile(Protocol):
    """An open file that is only ever appended to."""

    def write(self, data: bytes) -> None:
        """Give bytes to the system, at the end of the file; ``sync`` makes them durable."""
        ...

    async def sync(self) -> None:
        """Return when everything written before the call is on the disk."""
        ...

    async def close(self) -> None:
        """Close the file, without syncing it. This may be called twice."""
        ...


class VolumeLock(Protocol):
    """A lock that is held; the death of its process releases it, too."""

    async def release(self) -> None:
        """Give the lock back. This may be called twice."""
        ...


class Space(NamedTuple):
    """The bytes of a disk: all of it, and what this broker may still write."""

    total: int
    free: int

    @property
    def used_percent(self) -> float:
        """The share of the disk that is not free."""
        return 100.0 * (self.total - self.free) / self.total if self.total else 0.0


class Volume(Protocol):
    """A disk, or the part of one that belongs to a broker."""

    async def list(self, directory: str) -> builtins.list[str]:
        """Return the names in a directory, sorted; none if there is no such directory."""
        ...

    async def open(self, path: str) -> VolumeFile:
        """Open a file for appending; a file that does not exist is created, durably."""
        ...

    async def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes from ``offset``, at most ``size``; fewer only at the end of the file."""
        ...

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file durably (write beside, sync, rename): a crash leaves the old or new."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file; it is no error if the file does not exist."""
        ...

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; it is no error if the directory does not exist."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Rename a file (replacing ``new``) or a directory (``new`` must not exist), atomically."""
        ...

    async def mkdir(self, path: str) -> None:
        """Create a directory and its parents; it is no error if it exists."""
        ...

    async def size(self, path: str) -> int:
        """Return the number of bytes in a file."""
        ...

    async def exists(self, path: str) -> bool:
        """Return whether a file or a directory of that name exists."""
        ...

    async def truncate(self, path: str, size: int) -> None:
        """Cut a file to ``size`` bytes, durably."""
        ...

    async def space(self) -> Space | None:
        """Return how much room the disk has; None for a disk without a limit."""
        ...

    async def lock(self, path: str) -> VolumeLock:
        """Take the lock of that name now. Raises VolumeLockedError if it is already held."""
        ...
