"""The status codes of NFSv4 servers (RFC 7530, 13.1), and the errors that programs here see."""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Final


class NfsStatus(IntEnum):
    """nfsstat4, under the names of the RFC."""

    OK = 0
    PERM = 1
    NOENT = 2
    IO = 5
    NXIO = 6
    ACCESS = 13
    EXIST = 17
    XDEV = 18
    NOTDIR = 20
    ISDIR = 21
    INVAL = 22
    FBIG = 27
    NOSPC = 28
    ROFS = 30
    MLINK = 31
    NAMETOOLONG = 63
    NOTEMPTY = 66
    DQUOT = 69
    STALE = 70
    BADHANDLE = 10001
    BAD_COOKIE = 10003
    NOTSUPP = 10004
    TOOSMALL = 10005
    SERVERFAULT = 10006
    BADTYPE = 10007
    DELAY = 10008
    SAME = 10009
    DENIED = 10010
    EXPIRED = 10011
    LOCKED = 10012
    GRACE = 10013
    FHEXPIRED = 10014
    SHARE_DENIED = 10015
    WRONGSEC = 10016
    CLID_INUSE = 10017
    RESOURCE = 10018
    MOVED = 10019
    NOFILEHANDLE = 10020
    MINOR_VERS_MISMATCH = 10021
    STALE_CLIENTID = 10022
    STALE_STATEID = 10023
    OLD_STATEID = 10024
    BAD_STATEID = 10025
    BAD_SEQID = 10026
    NOT_SAME = 10027
    LOCK_RANGE = 10028
    SYMLINK = 10029
    RESTOREFH = 10030
    LEASE_MOVED = 10031
    ATTRNOTSUPP = 10032
    NO_GRACE = 10033
    RECLAIM_BAD = 10034
    RECLAIM_CONFLICT = 10035
    BADXDR = 10036
    LOCKS_HELD = 10037
    OPENMODE = 10038
    BADOWNER = 10039
    BADCHAR = 10040
    BADNAME = 10041
    BAD_RANGE = 10042
    LOCK_NOTSUPP = 10043
    OP_ILLEGAL = 10044
    DEADLOCK = 10045
    FILE_OPEN = 10046
    ADMIN_REVOKED = 10047
    CB_PATH_DOWN = 10048


LATER: Final = frozenset((NfsStatus.DELAY, NfsStatus.GRACE))
"""The answers after which a request is repeated: the server is busy, or in its grace period."""

STATE_GONE: Final = frozenset(
    (
        NfsStatus.EXPIRED,
        NfsStatus.STALE_CLIENTID,
        NfsStatus.STALE_STATEID,
        NfsStatus.BAD_STATEID,
        NfsStatus.ADMIN_REVOKED,
        NfsStatus.BAD_SEQID,
    )
)
"""The answers by which the server no longer knows what we opened or locked.

The lease ended, or the server was restarted.
"""

SEQUENCE_KEPT: Final = frozenset(
    (
        NfsStatus.STALE_CLIENTID,
        NfsStatus.STALE_STATEID,
        NfsStatus.BAD_STATEID,
        NfsStatus.BAD_SEQID,
        NfsStatus.BADXDR,
        NfsStatus.RESOURCE,
        NfsStatus.NOFILEHANDLE,
        NfsStatus.MOVED,
    )
)
"""The answers that do not advance an owner's sequence number (RFC 7530, 9.1.7)."""

_ERRNO: Final = {
    NfsStatus.BADHANDLE: errno.ESTALE,
    NfsStatus.FHEXPIRED: errno.ESTALE,
    NfsStatus.STALE: errno.ESTALE,
    NfsStatus.NOTEMPTY: errno.ENOTEMPTY,
    NfsStatus.NAMETOOLONG: errno.ENAMETOOLONG,
    NfsStatus.DQUOT: errno.EDQUOT,
    NfsStatus.NOTSUPP: errno.EOPNOTSUPP,
    NfsStatus.ATTRNOTSUPP: errno.EOPNOTSUPP,
    NfsStatus.LOCK_NOTSUPP: errno.ENOLCK,
    NfsStatus.DENIED: errno.EAGAIN,
    NfsStatus.LOCKED: errno.EAGAIN,
    NfsStatus.DELAY: errno.EAGAIN,
    NfsStatus.SHARE_DENIED: errno.EACCES,
    NfsStatus.WRONGSEC: errno.EPERM,
    NfsStatus.SYMLINK: errno.ELOOP,
    NfsStatus.OPENMODE: errno.EBADF,
    NfsStatus.DEADLOCK: errno.EDEADLK,
    NfsStatus.FILE_OPEN: errno.EBUSY,
    NfsStatus.BADOWNER: errno.EINVAL,
    NfsStatus.BADNAME: errno.EINVAL,
    NfsStatus.BADCHAR: errno.EINVAL,
    NfsStatus.LOCK_RANGE: errno.EINVAL,
    NfsStatus.BAD_RANGE: errno.EINVAL,
    NfsStatus.BADTYPE: errno.EINVAL,
}


class NfsError(OSError):
    """The server answered with an error; ``errno`` is what the file system's caller sees."""

    def __init__(self, status: int, operation: str) -> None:
        try:
            known = NfsStatus(status)
            number = int(known) if known < 63 else _ERRNO.get(known, errno.EIO)
            text = f"NFS4ERR_{known.name}"
        except ValueError:
            number, text = errno.EIO, f"NFS status {status}"
        super().__init__(number, f"{operation}: {text}")
        self.status = status
        self.operation = operation
