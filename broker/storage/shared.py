"""The seam to a directory that several brokers share.

A ``Volume`` whose locks decide who may write.

Why more than a volume: a live and its backups see the same files, possibly over a network (AMQ
17.3.2.1), and only the store can say who is the live one. So locks are of single bytes of a file,
may be lost while their holder lives (an NFSv4 lease that ran out), and must be confirmed by the
store itself: an object in memory that says "valid" proves nothing (ARTEMIS-2421).

Every call may take for ever (a hard mount whose server is gone) or raise OSError (a soft one);
deadlines are the caller's. A call that was given up may still take effect later: whatever is built
on this seam must bear one late operation of a broker that lost its lock.
"""

from __future__ import annotations

from typing import Protocol

from broker.storage.volume import Volume, VolumeLock

Ids = tuple[int, int]
"""User and group as numbers.

What a file system goes by, whatever they are called on each machine.
"""


class SharedLock(VolumeLock, Protocol):
    """A lock of one byte, which its process' death releases and its machine's silence expires."""

    async def verify(self) -> None:
        """Return when the store has confirmed, after the call, that the lock is ours.

        Raises OSError when it is lost or the store is gone.
        """
        ...

    async def write(self, offset: int, data: bytes) -> None:
        """Write into the locked file, durably. Raises OSError, also where the lock was lost."""
        ...


class SharedDirectory(Volume, Protocol):
    """A shared directory as one broker sees it; names and attributes are never cached."""

    async def try_lock(self, path: str, offset: int) -> SharedLock | None:
        """Lock one byte of a file, which is created if need be; None when somebody else has it."""
        ...

    async def link(self, old: str, new: str) -> None:
        """Give a file a second name.

        Raises FileExistsError, FileNotFoundError; OSError where the file system has no links.
        """
        ...

    async def locked(self, path: str, offset: int) -> bool:
        """Whether somebody holds that byte; it is not taken, so nobody finds it held by us."""
        ...

    async def owner(self, directory: str) -> Ids:
        """To whom a directory belongs. Raises FileNotFoundError."""
        ...

    def ids(self) -> Ids:
        """Who we are to the file system."""
        ...
