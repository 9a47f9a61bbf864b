"""The seam to a directory that several brokers share.

It is a ``Volume`` whose locks decide who may write.

Why more than a volume: a live and its backups see the same files, possibly over a network (AMQ
17.3.2.1), and only the store can say who is the live. So locks are of single bytes of a file. They
may be lost while their holder lives (an NFSv4 lease that ran out). The store itself must confirm
them: an object in memory that says "valid" proves nothing (ARTEMIS-2421).

Every call may take for ever (a hard mount whose server is gone) or raise OSError (a soft one); the
caller sets the deadlines. A call that was given up may still take effect later. So everything built
on this seam must tolerate one late operation of a broker that lost its lock.
"""

from __future__ import annotations

from typing import Protocol

from broker.storage.volume import Volume, VolumeLock

Ids = tuple[int, int]
"""A user and a group as numbers.

The file system uses these numbers, whatever the names are on each machine.
"""


class SharedLock(VolumeLock, Protocol):
    """A lock of one byte, which its process' death releases and its machine's silence expires."""

    async def verify(self) -> None:
        """Return when the store has confirmed, after the call, that the lock is ours.

        Raises OSError when the lock is lost or the store is gone.
        """
        ...

    async def write(self, offset: int, data: bytes) -> None:
        """Write to the locked file, durably. Raises OSError, also if the lock was lost."""
        ...


class SharedDirectory(Volume, Protocol):
    """A shared directory as one broker sees it; names and attributes are never cached."""

    async def try_lock(self, path: str, offset: int) -> SharedLock | None:
        """Lock one byte of a file, which is created if need be; None if another process has it."""
        ...

    async def link(self, old: str, new: str) -> None:
        """Give a file a second name.

        Raises FileExistsError or FileNotFoundError; OSError if the file system has no links.
        """
        ...

    async def locked(self, path: str, offset: int) -> bool:
        """Return whether any process holds that byte, without taking it even for a moment."""
        ...

    async def owner(self, directory: str) -> Ids:
        """Return the owner of a directory. Raises FileNotFoundError."""
        ...

    def ids(self) -> Ids:
        """Return the user and group by which the file system knows this process."""
        ...
