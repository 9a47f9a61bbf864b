"""The state of open files and locks at the server.

The lease keeps this state alive, and after a restart of the server it must be reclaimed; if neither
is possible, it is lost.

There is one open owner for the whole mount, and one state for each file, as in the kernel's client:
a process that opens a file twice must not be refused because of its own lock. An owner's operations
are numbered and sent one after the other (RFC 7530, 9.1.3).
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from typing import Final

from filesystems.nfs import operations as ops

READ, WRITE = 1, 2
"""The bits of share access."""


class StateLostError(OSError):
    """State was lost: the lease ended, or a restarted server did not give the state back.

    Other clients may take what was held. I/O gets EIO until the file is closed.
    """

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, what)


@dataclass(frozen=True, slots=True)
class LockRange:
    """A range of locked bytes, ``start`` and ``end`` included; an end of ops.TO_THE_END is none."""

    start: int
    end: int
    kind: int  # ops.READ_LOCK or ops.WRITE_LOCK

    @property
    def length(self) -> int:
        """The length of the range in the form of LOCK: all ones for no end."""
        return ops.TO_THE_END if self.end >= ops.TO_THE_END >> 1 else self.end - self.start + 1


@dataclass(eq=False)
class OpenOwner:
    """An owner that opens files.

    ``order`` is held from the building of a numbered operation to its answer.
    """

    name: bytes = b""
    seqid: int = 0
    order: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class LockHolder:
    """A holder of a file's locks, by the kernel's number: a process (fcntl) or opening (flock)."""

    name: bytes = b""
    stateid: bytes | None = None
    client: int = 0  # our number at the server when it gave the stateid
    seqid: int = 0
    ranges: list[LockRange] = field(default_factory=list)
    lost: bool = False
    order: asyncio.Lock = field(default_factory=asyncio.Lock)

    def replace(self, new: LockRange, *, held: bool) -> None:
        """Record that a range is held in its kind, or not held.

        Ranges that overlap it are split and replaced, as POSIX says.
        """
        kept = []
        for old in self.ranges:
            if old.end < new.start or old.start > new.end:
                kept.append(old)
                continue
            if old.start < new.start:
                kept.append(LockRange(old.start, new.start - 1, old.kind))
            if old.end > new.end:
                kept.append(LockRange(new.end + 1, old.end, old.kind))
        self.ranges = sorted([*kept, new] if held else kept, key=lambda piece: piece.start)


HolderKey = tuple[str, int]
POSIX: Final = "posix"
FLOCK: Final = "flock"


@dataclass(eq=False)
class FileState:
    """The state of a file that is open here.

    ``lost`` says why the file cannot be used any more ("" if it can). ``locking`` are the requests
    for locks under way.
    """

    identity: bytes  # the credential of the user that opened it first
    access: int
    stateid: bytes
    openings: int = 1
    lost: str = ""
    holders: dict[HolderKey, LockHolder] = field(default_factory=dict)
    locking: set[asyncio.Task[None]] = field(default_factory=set)

    def stateid_for(self, process: int | None) -> bytes:
        """Return the stateid for reading and writing by a process.

        It is that of the process' lock, if it has one, so that the server checks that the lock
        still holds.

        Raises StateLostError if that lock was lost, though other processes may go on: a process
        must not write in the belief that it has a lock which is gone.
        """
        if self.lost:
            raise StateLostError(self.lost)
        for key, holder in self.holders.items():
            if key[0] == FLOCK or key[1] == process:
                if holder.lost:
                    raise StateLostError("the lock of this file was lost with the lease")
                if holder.stateid is not None and holder.ranges:
                    return holder.stateid
        return self.stateid
