"""The kernel's side of FUSE (linux/fuse.h, protocol 7.31) as structures of bytes.

They are what is read from /dev/fuse, and what is written to it.

Why without a library: the protocol has forty structures. A library would need threads, and would
hide what locks need (which process asks, and when the request is withdrawn).
"""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Opcode(IntEnum):
    """The kinds of requests of the kernel."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    RENAME2 = 45


MAJOR: Final = 7
MINOR: Final = 31
ASYNC_READ, POSIX_LOCKS, BIG_WRITES, FLOCK_LOCKS = 1 << 0, 1 << 1, 1 << 5, 1 << 10
PARALLEL_DIROPS, ABORT_ERROR, MAX_PAGES = 1 << 18, 1 << 21, 1 << 22
WANTED: Final = (
    ASYNC_READ | POSIX_LOCKS | BIG_WRITES | FLOCK_LOCKS | PARALLEL_DIROPS | ABORT_ERROR | MAX_PAGES
)

DIRECT_IO: Final = 1
"""The flag of files that bypass the page cache: it would be stale once another host writes."""
READ_LOCKOWNER: Final = 2
WRITE_LOCKOWNER: Final = 2
RELEASE_FLOCK_UNLOCK: Final = 2
LK_FLOCK: Final = 1
WRITE_BYTES_MAX: Final = 256 * 1024
BUFFER_BYTES: Final = WRITE_BYTES_MAX + 4096

SET_MODE, SET_UID, SET_GID, SET_SIZE, SET_ATIME, SET_MTIME = 1, 2, 4, 8, 16, 32
SET_ATIME_NOW, SET_MTIME_NOW = 128, 256

IN_HEADER: Final = struct.Struct("<IIQQIIIHH")
OUT_HEADER: Final = struct.Struct("<IiQ")
INIT_IN: Final = struct.Struct("<IIII")
INIT_OUT: Final = struct.Struct("<IIIIHHIIHHI28x")
ENTRY_OUT: Final = struct.Struct("<QQQQII")
ATTRIBUTES: Final = struct.Struct("<QQQQQQIIIIIIIIII")
ATTR_OUT: Final = struct.Struct("<QII")
SETATTR_IN: Final = struct.Struct("<IIQQQQQQIIIIIIII")
MKNOD_IN: Final = struct.Struct("<IIII")
MKDIR_IN: Final = struct.Struct("<II")
RENAME_IN: Final = struct.Struct("<Q")
RENAME2_IN: Final = struct.Struct("<QII")
LINK_IN: Final = struct.Struct("<Q")
OPEN_IN: Final = struct.Struct("<II")
OPEN_OUT: Final = struct.Struct("<QII")
CREATE_IN: Final = struct.Struct("<IIII")
RELEASE_IN: Final = struct.Struct("<QIIQ")
FLUSH_IN: Final = struct.Struct("<QIIQ")
READ_IN: Final = struct.Struct("<QQIIQII")
WRITE_IN: Final = struct.Struct("<QQIIQII")
WRITE_OUT: Final = struct.Struct("<II")
FSYNC_IN: Final = struct.Struct("<QII")
LK_IN: Final = struct.Struct("<QQQQIIII")
LK_OUT: Final = struct.Struct("<QQII")
INTERRUPT_IN: Final = struct.Struct("<Q")
STATFS_OUT: Final = struct.Struct("<QQQQQIIII24x")
FORGET_IN: Final = struct.Struct("<Q")
BATCH_FORGET_IN: Final = struct.Struct("<II")
FORGET_ONE: Final = struct.Struct("<QQ")
DIRENT: Final = struct.Struct("<QQII")

BLOCK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a file, as its file system knew them when it was asked.

    ``mode`` has the bits of its type, too, as in stat(2); times are (seconds, nanoseconds).
    """

    file_id: int
    mode: int
    size: int
    links: int
    uid: int
    gid: int
    space_used: int
    accessed: tuple[int, int]
    changed: tuple[int, int]
    modified: tuple[int, int]


def attributes_out(found: Attributes) -> bytes:
    """Return the bytes of ``fuse_attr``."""
    return ATTRIBUTES.pack(
        found.file_id,
        found.size,
        -(-found.space_used // 512),
        found.accessed[0],
        found.modified[0],
        found.changed[0],
        found.accessed[1],
        found.modified[1],
        found.changed[1],
        found.mode,
        found.links,
        found.uid,
        found.gid,
        0,
        BLOCK_BYTES,
        0,
    )


def _seconds(duration_s: float) -> tuple[int, int]:
    whole = int(duration_s)
    return whole, int((duration_s - whole) * 1_000_000_000)


def entry_out(number: int, found: Attributes, lookup_s: float, attribute_s: float) -> bytes:
    """Return the bytes of the file that a name led to, and for how long the kernel may cache it.

    ``lookup_s`` is for the name, ``attribute_s`` for the attributes.
    """
    (names, names_ns), (values, values_ns) = _seconds(lookup_s), _seconds(attribute_s)
    return ENTRY_OUT.pack(number, 0, names, values, names_ns, values_ns) + attributes_out(found)


def attr_out(found: Attributes, attribute_s: float) -> bytes:
    """Return the bytes of attributes, and for how long the kernel may cache them."""
    values, values_ns = _seconds(attribute_s)
    return ATTR_OUT.pack(values, values_ns, 0) + attributes_out(found)


def dirent(file_id: int, offset: int, mode: int, name: bytes) -> bytes:
    """Return the bytes of a directory's entry; reading continues at ``offset`` after it.

    ``mode`` has the bits of the entry's type.
    """
    body = DIRENT.pack(file_id, offset, len(name), stat.S_IFMT(mode) >> 12) + name
    return body + bytes(-len(body) & 7)


def renaming(opcode: int, body: bytes) -> tuple[int, int, bytes, bytes]:
    """Return the new directory, the flags, the old name and the new one of a RENAME or RENAME2."""
    header = RENAME_IN if opcode == Opcode.RENAME else RENAME2_IN
    target, *flags = header.unpack_from(body)
    old, new = names(body[header.size :], 2)
    return target, flags[0] if flags else 0, old, new


def names(data: bytes, count: int) -> list[bytes]:
    """Return ``count`` names, each of which ends with a zero byte."""
    found = data.split(b"\0", count)
    return found[:count]
