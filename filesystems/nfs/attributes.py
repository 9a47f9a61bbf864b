"""File attributes (RFC 7530, 5): the sets that are asked for, and their encoding and decoding."""

from __future__ import annotations

import functools
import grp
import pwd
import stat
from collections.abc import Callable
from typing import Any, Final

from filesystems.fuse.kernel import Attributes
from filesystems.nfs import xdr

TYPE, SIZE, LEASE_TIME, FILEID = 1, 4, 10, 20
FILES_AVAIL, FILES_FREE, FILES_TOTAL, MAXNAME, MAXREAD, MAXWRITE = 21, 22, 23, 29, 30, 31
MODE, NUMLINKS, OWNER, OWNER_GROUP = 33, 35, 36, 37
SPACE_AVAIL, SPACE_FREE, SPACE_TOTAL, SPACE_USED = 42, 43, 44, 45
TIME_ACCESS, TIME_ACCESS_SET, TIME_METADATA, TIME_MODIFY, TIME_MODIFY_SET = 47, 48, 52, 53, 54

OF_A_FILE: Final = xdr.bitmap(
    (
        TYPE, SIZE, FILEID, MODE, NUMLINKS, OWNER, OWNER_GROUP, SPACE_USED, TIME_ACCESS, TIME_METADATA,
        TIME_MODIFY,
    )
)  # fmt: skip
OF_A_NAME: Final = xdr.bitmap((TYPE, FILEID))
OF_THE_SERVER: Final = xdr.bitmap((LEASE_TIME, MAXREAD, MAXWRITE))
OF_THE_SPACE: Final = xdr.bitmap(
    (FILES_AVAIL, FILES_FREE, FILES_TOTAL, MAXNAME, SPACE_AVAIL, SPACE_FREE, SPACE_TOTAL)
)
ONLY_SIZE: Final = xdr.bitmap((SIZE,))

REGULAR, DIRECTORY, BLOCK, CHARACTER, LINK, SOCKET, FIFO = 1, 2, 3, 4, 5, 6, 7
FORMATS: Final = {
    REGULAR: stat.S_IFREG,
    DIRECTORY: stat.S_IFDIR,
    BLOCK: stat.S_IFBLK,
    CHARACTER: stat.S_IFCHR,
    LINK: stat.S_IFLNK,
    SOCKET: stat.S_IFSOCK,
    FIFO: stat.S_IFIFO,
}
"""The type bits of a mode, by the NFS file type."""

NOBODY: Final = 65534


def _time(reader: xdr.XdrReader) -> tuple[int, int]:
    return reader.u64(), reader.u32()


def _owner(reader: xdr.XdrReader) -> int:
    return _number(reader.opaque())


def _group(reader: xdr.XdrReader) -> int:
    return _number(reader.opaque(), group=True)


@functools.lru_cache(256)
def _number(owner: bytes, *, group: bool = False) -> int:
    """Return a user's or group's number from the server's text: the number itself, or name@domain.

    An unknown name is NOBODY.
    """
    name = owner.decode("utf-8", "replace")
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        name = name.partition("@")[0]
        return grp.getgrnam(name).gr_gid if group else pwd.getpwnam(name).pw_uid
    except KeyError:
        return NOBODY


_DECODERS: Final[dict[int, Callable[[xdr.XdrReader], Any]]] = {
    **dict.fromkeys((TYPE, LEASE_TIME, MAXNAME, MODE, NUMLINKS), xdr.XdrReader.u32),
    **dict.fromkeys(
        (
            SIZE, FILEID, FILES_AVAIL, FILES_FREE, FILES_TOTAL, MAXREAD, MAXWRITE,
            SPACE_AVAIL, SPACE_FREE, SPACE_TOTAL, SPACE_USED,
        ),
        xdr.XdrReader.u64,
    ),
    OWNER: _owner,
    OWNER_GROUP: _group,
    **dict.fromkeys((TIME_ACCESS, TIME_METADATA, TIME_MODIFY), _time),
}  # fmt: skip


def decode(reader: xdr.XdrReader) -> dict[int, Any]:
    """Read a fattr4: its values by attribute number.

    Raises XdrError for an attribute that was not asked for.
    """
    bits = reader.bits()
    values = xdr.XdrReader(reader.opaque())
    found = {}
    for bit in bits:
        if bit not in _DECODERS:
            raise xdr.XdrError(f"the server sent attribute {bit}, which was not asked for")
        found[bit] = _DECODERS[bit](values)
    return found


def of_file(reader: xdr.XdrReader) -> Attributes:
    """Read the answer to OF_A_FILE; attributes that a server lacks get values that do no harm."""
    found = decode(reader)
    size = found.get(SIZE, 0)
    modified = found.get(TIME_MODIFY, (0, 0))
    return Attributes(
        file_id=found.get(FILEID, 0),
        mode=FORMATS.get(found.get(TYPE, REGULAR), stat.S_IFREG) | (found.get(MODE, 0o755) & 0o7777),
        size=size,
        links=found.get(NUMLINKS, 1),
        uid=found.get(OWNER, NOBODY),
        gid=found.get(OWNER_GROUP, NOBODY),
        space_used=found.get(SPACE_USED, size),
        accessed=found.get(TIME_ACCESS, modified),
        changed=found.get(TIME_METADATA, modified),
        modified=modified,
    )


def encode(
    *,
    size: int | None = None,
    mode: int | None = None,
    uid: int | None = None,
    gid: int | None = None,
    accessed: tuple[int, int] | str | None = None,
    modified: tuple[int, int] | str | None = None,
) -> bytes:
    """Return a fattr4 to set; None leaves a value as it is, "now" is the server's own time."""
    values: dict[int, bytes] = {}
    if size is not None:
        values[SIZE] = xdr.u64(size)
    if mode is not None:
        values[MODE] = xdr.u32(mode & 0o7777)
    if uid is not None:
        values[OWNER] = xdr.opaque(str(uid).encode())
    if gid is not None:
        values[OWNER_GROUP] = xdr.opaque(str(gid).encode())
    for bit, moment in ((TIME_ACCESS_SET, accessed), (TIME_MODIFY_SET, modified)):
        if isinstance(moment, tuple):
            values[bit] = xdr.u32(1) + xdr.u64(moment[0]) + xdr.u32(moment[1])
        elif moment is not None:
            values[bit] = xdr.u32(0)
    bits = tuple(sorted(values))
    return xdr.bitmap(bits) + xdr.opaque(b"".join(values[bit] for bit in bits))
