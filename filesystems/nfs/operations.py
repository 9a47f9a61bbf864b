"""The operations of an NFSv4.0 COMPOUND (RFC 7530, 16) as bytes.

And its answer taken apart one operation after the other.

A request is a list of the functions' results; ``Reply.take`` must be called once for each in the
same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from filesystems.fuse.attributes import Attributes
from filesystems.nfs import attributes, xdr
from filesystems.nfs.status import NfsError, Status


class Operation(IntEnum):
    """nfs_opnum4, those that are used."""

    CLOSE = 4
    COMMIT = 5
    CREATE = 6
    GETATTR = 9
    GETFH = 10
    LINK = 11
    LOCK = 12
    LOCKT = 13
    LOCKU = 14
    LOOKUP = 15
    OPEN = 18
    OPEN_CONFIRM = 20
    PUTFH = 22
    PUTROOTFH = 24
    READ = 25
    READDIR = 26
    READLINK = 27
    REMOVE = 28
    RENAME = 29
    RENEW = 30
    SAVEFH = 32
    SETATTR = 34
    SETCLIENTID = 35
    SETCLIENTID_CONFIRM = 36
    WRITE = 38


READ_LOCK, WRITE_LOCK, READ_LOCK_WAITING, WRITE_LOCK_WAITING = 1, 2, 3, 4
UNSTABLE, FILE_SYNC = 0, 2
TO_THE_END: Final = 0xFFFFFFFFFFFFFFFF
ANONYMOUS: Final = bytes(16)
"""The stateid of who has opened nothing."""

_CONFIRM: Final = 2
_READDIR_BYTES: Final = 65536


class Reply:
    """The answer to a COMPOUND."""

    def __init__(self, reader: xdr.Reader) -> None:
        self.reader = reader
        self._status = reader.u32()
        reader.opaque()
        self._left = reader.u32()

    def take(self, *operations: Operation) -> xdr.Reader:
        """Step over the header of these operations, whose results but the last's are empty.

        Raises NfsError for one that failed.
        """
        for operation in operations:
            if not self._left:
                raise NfsError(self._status, operation.name)
            self._left -= 1
            number, status = self.reader.u32(), self.reader.u32()
            if number != operation:
                raise xdr.XdrError(f"the server answered operation {number} where {operation.name} was asked")
            if status:
                if status == Status.DENIED and operation in _DENIABLE:
                    raise LockDenied(self.reader, operation.name)
                raise NfsError(status, operation.name)
        return self.reader


_DENIABLE: Final = (Operation.LOCK, Operation.LOCKT)


class LockDenied(NfsError):  # noqa: N818 - the RFC's own name (LOCK4denied)
    """Somebody else holds a lock that conflicts.

    Which range (``length`` TO_THE_END has no end), and of what type.
    """

    def __init__(self, reader: xdr.Reader, operation: str) -> None:
        super().__init__(Status.DENIED, operation)
        self.offset = reader.u64()
        self.length = reader.u64()
        self.type = reader.u32()
        reader.u64()
        reader.opaque()


@dataclass(frozen=True, slots=True)
class Opened:
    """What OPEN answered.

    ``confirm``: this owner is new to the server, and OPEN_CONFIRM must follow.
    """

    stateid: bytes
    confirm: bool


def request(operations: list[bytes]) -> bytes:
    """A COMPOUND's arguments: no tag, minor version 0."""
    return xdr.u32(0) + xdr.u32(0) + xdr.u32(len(operations)) + b"".join(operations)


def _op(operation: Operation, *parts: bytes) -> bytes:
    return xdr.u32(operation) + b"".join(parts)


PUTROOTFH: Final = _op(Operation.PUTROOTFH)
GETFH: Final = _op(Operation.GETFH)
SAVEFH: Final = _op(Operation.SAVEFH)
READLINK: Final = _op(Operation.READLINK)
GETATTR: Final = _op(Operation.GETATTR, attributes.OF_A_FILE)
GETATTR_SIZE: Final = _op(Operation.GETATTR, attributes.ONLY_SIZE)
GETATTR_SERVER: Final = _op(Operation.GETATTR, attributes.OF_THE_SERVER)
GETATTR_SPACE: Final = _op(Operation.GETATTR, attributes.OF_THE_SPACE)


def putfh(handle: bytes) -> bytes:  # noqa: D103 - this and the following are the RFC's operations of the same name
    return _op(Operation.PUTFH, xdr.opaque(handle))


def lookup(name: bytes) -> bytes:  # noqa: D103
    return _op(Operation.LOOKUP, xdr.opaque(name))


def setclientid(verifier: bytes, name: bytes) -> bytes:
    """No callback: delegations are not wanted."""
    callback = xdr.u32(0x40000000) + xdr.opaque(b"tcp") + xdr.opaque(b"0.0.0.0.0.0") + xdr.u32(1)
    return _op(Operation.SETCLIENTID, verifier, xdr.opaque(name), callback)


def setclientid_confirm(client: int, verifier: bytes) -> bytes:  # noqa: D103
    return _op(Operation.SETCLIENTID_CONFIRM, xdr.u64(client), verifier)


def renew(client: int) -> bytes:  # noqa: D103
    return _op(Operation.RENEW, xdr.u64(client))


def open_file(
    seqid: int, access: int, client: int, owner: bytes, name: bytes, *, create: bytes | None, exclusive: bool
) -> bytes:
    """``create``: attributes (fattr4) of a file to make.

    ``exclusive`` refuses one that is there.
    """
    how = xdr.u32(0) if create is None else xdr.u32(1) + xdr.u32(1 if exclusive else 0) + create
    return _op(
        Operation.OPEN, xdr.u32(seqid), xdr.u32(access), xdr.u32(0), xdr.u64(client), xdr.opaque(owner), how,
        xdr.u32(0), xdr.opaque(name),
    )  # fmt: skip


def reclaim_open(seqid: int, access: int, client: int, owner: bytes) -> bytes:
    """Has again, during the server's grace, what was open before its restart.

    CLAIM_PREVIOUS, without delegation.
    """
    return _op(
        Operation.OPEN, xdr.u32(seqid), xdr.u32(access), xdr.u32(0), xdr.u64(client), xdr.opaque(owner),
        xdr.u32(0),
        xdr.u32(1), xdr.u32(0),
    )  # fmt: skip


def opened(reader: xdr.Reader) -> Opened:
    """OPEN's result."""
    stateid = bytes(reader.fixed(16))
    _change_info(reader)
    flags = reader.u32()
    reader.bits()
    if reader.u32():
        raise xdr.XdrError("the server gave a delegation, which was not asked for")
    return Opened(stateid, bool(flags & _CONFIRM))


def open_confirm(stateid: bytes, seqid: int) -> bytes:  # noqa: D103
    return _op(Operation.OPEN_CONFIRM, stateid, xdr.u32(seqid))


def close(stateid: bytes, seqid: int) -> bytes:  # noqa: D103
    return _op(Operation.CLOSE, xdr.u32(seqid), stateid)


def lock_first(
    kind: int,
    offset: int,
    length: int,
    opening: tuple[int, bytes],
    client: int,
    owner: bytes,
    *,
    reclaim: bool,
) -> bytes:
    """LOCK by an owner that is new to this file; ``opening`` is its opening's (seqid, stateid)."""
    return _op(
        Operation.LOCK, xdr.u32(kind), xdr.TRUE if reclaim else xdr.FALSE, xdr.u64(offset), xdr.u64(length),
        xdr.TRUE, xdr.u32(opening[0]), opening[1], xdr.u32(0), xdr.u64(client), xdr.opaque(owner),
    )  # fmt: skip


def lock_again(kind: int, offset: int, length: int, stateid: bytes, seqid: int, *, reclaim: bool) -> bytes:
    """LOCK by an owner that holds or held locks on this file."""
    return _op(
        Operation.LOCK, xdr.u32(kind), xdr.TRUE if reclaim else xdr.FALSE, xdr.u64(offset), xdr.u64(length),
        xdr.FALSE,
        stateid, xdr.u32(seqid),
    )  # fmt: skip


def lockt(kind: int, offset: int, length: int, client: int, owner: bytes) -> bytes:  # noqa: D103
    return _op(
        Operation.LOCKT, xdr.u32(kind), xdr.u64(offset), xdr.u64(length), xdr.u64(client), xdr.opaque(owner)
    )


def locku(offset: int, length: int, stateid: bytes, seqid: int) -> bytes:  # noqa: D103
    return _op(
        Operation.LOCKU, xdr.u32(WRITE_LOCK), xdr.u32(seqid), stateid, xdr.u64(offset), xdr.u64(length)
    )


def read(stateid: bytes, offset: int, count: int) -> bytes:  # noqa: D103
    return _op(Operation.READ, stateid, xdr.u64(offset), xdr.u32(count))


def write(stateid: bytes, offset: int, data: bytes | memoryview, stable: int) -> bytes:  # noqa: D103
    return _op(Operation.WRITE, stateid, xdr.u64(offset), xdr.u32(stable), xdr.opaque(data))


def written(reader: xdr.Reader) -> tuple[int, int, bytes]:
    """WRITE's result: (bytes taken, how stable they are, the verifier).

    The verifier is that of this life of the server.
    """
    return reader.u32(), reader.u32(), bytes(reader.fixed(8))


def commit() -> bytes:
    """COMMIT of the whole file."""
    return _op(Operation.COMMIT, xdr.u64(0), xdr.u32(0))


def getattr_in(reply: Reply) -> Attributes:
    """The result of GETATTR."""
    return attributes.of_file(reply.take(Operation.GETATTR))


def setattr_(stateid: bytes, values: bytes) -> bytes:  # noqa: D103
    return _op(Operation.SETATTR, stateid, values)


def create_directory(name: bytes, values: bytes) -> bytes:  # noqa: D103
    return _op(Operation.CREATE, xdr.u32(attributes.DIRECTORY), xdr.opaque(name), values)


def create_link(name: bytes, target: bytes, values: bytes) -> bytes:
    """A symbolic link."""
    return _op(Operation.CREATE, xdr.u32(attributes.LINK), xdr.opaque(target), xdr.opaque(name), values)


def created(reader: xdr.Reader) -> None:
    """Step over CREATE's result."""
    _change_info(reader)
    reader.bits()


def link(name: bytes) -> bytes:
    """A hard link of the saved file in the current directory."""
    return _op(Operation.LINK, xdr.opaque(name))


def remove(name: bytes) -> bytes:  # noqa: D103
    return _op(Operation.REMOVE, xdr.opaque(name))


def rename(old: bytes, new: bytes) -> bytes:
    """From the saved directory to the current one."""
    return _op(Operation.RENAME, xdr.opaque(old), xdr.opaque(new))


def readdir(cookie: int, verifier: bytes) -> bytes:  # noqa: D103
    return _op(
        Operation.READDIR, xdr.u64(cookie), verifier, xdr.u32(_READDIR_BYTES), xdr.u32(_READDIR_BYTES),
        attributes.OF_A_NAME,
    )  # fmt: skip


def _change_info(reader: xdr.Reader) -> None:
    reader.fixed(20)
