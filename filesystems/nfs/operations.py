"""The operations of an NFSv4.0 COMPOUND (RFC 7530, 16): their arguments, and their results.

An operation knows both, so that a caller of several operations gets their results in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from filesystems.nfs import attributes, xdr
from filesystems.nfs.status import NfsError, NfsStatus


class OperationCode(IntEnum):
    """The codes of the operations that are used (nfs_opnum4)."""

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
"""The stateid of a client that has not opened the file."""

_CONFIRM: Final = 2
_READDIR_BYTES: Final = 65536
_DENIABLE: Final = (OperationCode.LOCK, OperationCode.LOCKT)


class LockDenied(NfsError):  # noqa: N818 - the RFC's own name (LOCK4denied)
    """Another holder has a conflicting lock of ``type``; ``length`` TO_THE_END has no end."""

    def __init__(self, reader: xdr.XdrReader, operation: str) -> None:
        super().__init__(NfsStatus.DENIED, operation)
        self.offset = reader.u64()
        self.length = reader.u64()
        self.type = reader.u32()
        reader.u64()
        reader.opaque()


@dataclass(frozen=True, slots=True)
class NfsOperation:
    """An operation: its code, its arguments, and ``result``, which reads its result."""

    code: OperationCode
    arguments: bytes
    result: Callable[[xdr.XdrReader], Any]


def request(operations: Sequence[NfsOperation]) -> bytes:
    """Return the arguments of a COMPOUND, without a tag, for minor version 0."""
    parts = [xdr.u32(operation.code) + operation.arguments for operation in operations]
    return xdr.u32(0) + xdr.u32(0) + xdr.u32(len(parts)) + b"".join(parts)


def results(operations: Sequence[NfsOperation], reader: xdr.XdrReader) -> list[Any]:
    """Return the results of a COMPOUND; raises NfsError for an operation that failed, XdrError."""
    status = reader.u32()
    reader.opaque()
    left = reader.u32()
    found = []
    for number, operation in enumerate(operations):
        name = operation.code.name
        if number == left:
            raise NfsError(status, name)
        answered, failure = reader.u32(), reader.u32()
        if answered != operation.code:
            raise xdr.XdrError(f"the server answered operation {answered} where {name} was asked")
        if failure == NfsStatus.DENIED and operation.code in _DENIABLE:
            raise LockDenied(reader, name)
        if failure:
            raise NfsError(failure, name)
        found.append(operation.result(reader))
    return found


def _nothing(_: xdr.XdrReader) -> None:
    """Read nothing: the result of an operation has no fields, or none that is needed."""


def _verifier(reader: xdr.XdrReader) -> bytes:
    return bytes(reader.fixed(8))


def _stateid(reader: xdr.XdrReader) -> bytes:
    return bytes(reader.fixed(16))


def _change_info(reader: xdr.XdrReader) -> None:
    reader.fixed(20)


def _op(
    code: OperationCode, *parts: bytes, result: Callable[[xdr.XdrReader], Any] = _nothing
) -> NfsOperation:
    return NfsOperation(code, b"".join(parts), result)


PUTROOTFH: Final = _op(OperationCode.PUTROOTFH)
GETFH: Final = _op(OperationCode.GETFH, result=xdr.XdrReader.opaque)
SAVEFH: Final = _op(OperationCode.SAVEFH)
READLINK: Final = _op(OperationCode.READLINK, result=xdr.XdrReader.opaque)
GETATTR: Final = _op(OperationCode.GETATTR, attributes.OF_A_FILE, result=attributes.of_file)
GETATTR_SIZE: Final = _op(OperationCode.GETATTR, attributes.ONLY_SIZE, result=attributes.decode)
GETATTR_SERVER: Final = _op(OperationCode.GETATTR, attributes.OF_THE_SERVER, result=attributes.decode)
GETATTR_SPACE: Final = _op(OperationCode.GETATTR, attributes.OF_THE_SPACE, result=attributes.decode)
COMMIT: Final = _op(OperationCode.COMMIT, xdr.u64(0), xdr.u32(0), result=_verifier)
"""A COMMIT of the whole file; its result is the verifier of this life of the server."""


def putfh(handle: bytes) -> NfsOperation:  # noqa: D103 - this and the following are the RFC's operations of the same name
    return _op(OperationCode.PUTFH, xdr.opaque(handle))


def lookup(name: bytes) -> NfsOperation:  # noqa: D103
    return _op(OperationCode.LOOKUP, xdr.opaque(name))


def setclientid(verifier: bytes, name: bytes) -> NfsOperation:
    """Return a SETCLIENTID without a callback, since we want no delegations.

    Its result is our number and a verifier to confirm it.
    """
    callback = xdr.u32(0x40000000) + xdr.opaque(b"tcp") + xdr.opaque(b"0.0.0.0.0.0") + xdr.u32(1)
    return _op(
        OperationCode.SETCLIENTID, verifier, xdr.opaque(name), callback,
        result=lambda reader: (reader.u64(), _verifier(reader)),
    )  # fmt: skip


def setclientid_confirm(client: int, verifier: bytes) -> NfsOperation:  # noqa: D103
    return _op(OperationCode.SETCLIENTID_CONFIRM, xdr.u64(client), verifier)


def renew(client: int) -> NfsOperation:  # noqa: D103
    return _op(OperationCode.RENEW, xdr.u64(client))


def _open(seqid: int, access: int, client: int, owner: bytes, *how_and_claim: bytes) -> NfsOperation:
    owned = xdr.u64(client) + xdr.opaque(owner)
    shared = xdr.u32(seqid) + xdr.u32(access) + xdr.u32(0)
    return _op(OperationCode.OPEN, shared, owned, *how_and_claim, result=_opened)


def _opened(reader: xdr.XdrReader) -> tuple[bytes, bool]:
    """Return the stateid, and whether OPEN_CONFIRM must follow: the owner is new to the server."""
    stateid = _stateid(reader)
    _change_info(reader)
    flags = reader.u32()
    reader.bits()
    if reader.u32():
        raise xdr.XdrError("the server gave a delegation, which was not asked for")
    return stateid, bool(flags & _CONFIRM)


def open_file(
    seqid: int, access: int, client: int, owner: bytes, name: bytes, *, create: bytes | None, exclusive: bool
) -> NfsOperation:
    """Return an OPEN by name.

    ``create`` has the attributes (fattr4) of a file to make; None: the file must exist.
    ``exclusive`` refuses to make a file that exists.
    """
    how = xdr.u32(0) if create is None else xdr.u32(1) + xdr.u32(1 if exclusive else 0) + create
    return _open(seqid, access, client, owner, how, xdr.u32(0), xdr.opaque(name))


def reclaim_open(seqid: int, access: int, client: int, owner: bytes) -> NfsOperation:
    """Return an OPEN of a file that was open before the server's restart.

    It is a CLAIM_PREVIOUS, without delegation.
    """
    return _open(seqid, access, client, owner, xdr.u32(0), xdr.u32(1), xdr.u32(0))


def open_confirm(stateid: bytes, seqid: int) -> NfsOperation:  # noqa: D103
    return _op(OperationCode.OPEN_CONFIRM, stateid, xdr.u32(seqid), result=_stateid)


def close(stateid: bytes, seqid: int) -> NfsOperation:  # noqa: D103
    return _op(OperationCode.CLOSE, xdr.u32(seqid), stateid)


def lock(kind: int, offset: int, length: int, locker: bytes, *, reclaim: bool) -> NfsOperation:
    """Return a LOCK by a ``new_locker`` or a ``known_locker``; its result is the locks' stateid."""
    reclaims = xdr.TRUE if reclaim else xdr.FALSE
    piece = xdr.u64(offset) + xdr.u64(length)
    return _op(OperationCode.LOCK, xdr.u32(kind), reclaims, piece, locker, result=_stateid)


def new_locker(seqid: int, opening: bytes, client: int, owner: bytes) -> bytes:
    """Return the locker of an owner that is new to a file.

    ``seqid`` is the number of the open owner, ``opening`` the stateid of the open file.
    """
    return xdr.TRUE + xdr.u32(seqid) + opening + xdr.u32(0) + xdr.u64(client) + xdr.opaque(owner)


def known_locker(stateid: bytes, seqid: int) -> bytes:
    """Return the locker of an owner that holds or held locks on the file."""
    return xdr.FALSE + stateid + xdr.u32(seqid)


def lockt(kind: int, offset: int, length: int, client: int, owner: bytes) -> NfsOperation:  # noqa: D103
    piece = xdr.u64(offset) + xdr.u64(length)
    return _op(OperationCode.LOCKT, xdr.u32(kind), piece, xdr.u64(client), xdr.opaque(owner))


def locku(offset: int, length: int, stateid: bytes, seqid: int) -> NfsOperation:  # noqa: D103
    piece = xdr.u64(offset) + xdr.u64(length)
    return _op(OperationCode.LOCKU, xdr.u32(WRITE_LOCK), xdr.u32(seqid), stateid, piece, result=_stateid)


def read(stateid: bytes, offset: int, count: int) -> NfsOperation:
    """Return a READ; its result is whether the file ends there, and the bytes."""
    return _op(
        OperationCode.READ, stateid, xdr.u64(offset), xdr.u32(count),
        result=lambda reader: (bool(reader.u32()), reader.opaque()),
    )  # fmt: skip


def write(stateid: bytes, offset: int, data: bytes | memoryview, stable: int) -> NfsOperation:
    """Return a WRITE.

    Its result is how many bytes the server took, how stable they are, and the verifier of the
    server's life.
    """
    return _op(
        OperationCode.WRITE, stateid, xdr.u64(offset), xdr.u32(stable), xdr.opaque(data),
        result=lambda reader: (reader.u32(), reader.u32(), _verifier(reader)),
    )  # fmt: skip


def setattr_(stateid: bytes, values: bytes) -> NfsOperation:  # noqa: D103
    return _op(OperationCode.SETATTR, stateid, values, result=xdr.XdrReader.bits)


def _listed(reader: xdr.XdrReader) -> tuple[bytes, list[tuple[int, bytes, dict[int, Any]]], bool]:
    verifier, entries = _verifier(reader), []
    while reader.u32():
        entries.append((reader.u64(), reader.opaque(), attributes.decode(reader)))
    return verifier, entries, bool(reader.u32())


def _created(reader: xdr.XdrReader) -> None:
    _change_info(reader)
    reader.bits()


def create_directory(name: bytes, values: bytes) -> NfsOperation:  # noqa: D103
    kind = xdr.u32(attributes.DIRECTORY)
    return _op(OperationCode.CREATE, kind, xdr.opaque(name), values, result=_created)


def create_link(name: bytes, target: bytes, values: bytes) -> NfsOperation:
    """Return a CREATE of a symbolic link."""
    kind = xdr.u32(attributes.LINK) + xdr.opaque(target)
    return _op(OperationCode.CREATE, kind, xdr.opaque(name), values, result=_created)


def link(name: bytes) -> NfsOperation:
    """Return a LINK: a hard link of the saved file in the current directory."""
    return _op(OperationCode.LINK, xdr.opaque(name))


def remove(name: bytes) -> NfsOperation:  # noqa: D103
    return _op(OperationCode.REMOVE, xdr.opaque(name))


def rename(old: bytes, new: bytes) -> NfsOperation:
    """Return a RENAME from the saved directory to the current one."""
    return _op(OperationCode.RENAME, xdr.opaque(old), xdr.opaque(new))


def readdir(cookie: int, verifier: bytes) -> NfsOperation:
    """Return a READDIR.

    Its result is a verifier, (cookie, name, attributes) of some entries, and whether these are the
    last.
    """
    return _op(
        OperationCode.READDIR, xdr.u64(cookie), verifier, xdr.u32(_READDIR_BYTES), xdr.u32(_READDIR_BYTES),
        attributes.OF_A_NAME, result=_listed,
    )  # fmt: skip
