"""Names on the disk: looking up, making, moving and removing; directories; attributes.

Each operation is done in the directory behind, unless the disk refuses changes.
"""

# ruff: noqa: D102 - each method answers the FUSE request of its name
# ruff: noqa: PTH101, PTH102, PTH104, PTH208 - names are bytes here
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from filesystems.disk.condition import DiskState
from filesystems.disk.inodes import Inode, Inodes, status_of
from filesystems.fuse import kernel
from filesystems.fuse.connection import Answer, FuseRequest
from filesystems.fuse.directories import Entry
from filesystems.fuse.kernel import Attributes

_RENAME_NOREPLACE: Final = 1


class DiskNamespace:
    """The names in ``behind``; all methods raise the OSError that the caller is to see."""

    def __init__(self, behind: Path, inodes: Inodes, state: DiskState) -> None:
        self._behind = behind
        self._inodes = inodes
        self._state = state

    def found(self, parent: Inode, name: bytes) -> tuple[Inode, bytes]:
        """Return the inode that a name leads to, and the answer to the kernel for it."""
        status = os.lstat(self._inodes.inside(parent, name))
        inode = self._inodes.found(parent, name, status)
        return inode, kernel.entry_out(inode.number, _attributes(status), 0.0, 0.0)

    async def listed(self, request: FuseRequest) -> list[Entry]:
        """Return the entries of a directory."""
        path = self._inodes.path(self._inodes[request.node])
        found = [(b".", os.lstat(path)), (b"..", os.lstat(path + b"/.."))]
        for name in sorted(os.listdir(path)):
            status = status_of(path + b"/" + name)
            if status is not None:
                found.append((name, status))
        return [Entry(status.st_ino, status.st_mode, name) for name, status in found]

    async def lookup(self, request: FuseRequest) -> Answer:
        return self.found(self._inodes[request.node], kernel.names(request.body, 1)[0])[1]

    async def getattr(self, request: FuseRequest) -> Answer:
        return kernel.attr_out(_attributes(self._inodes.status(self._inodes[request.node])), 0.0)

    async def setattr(self, request: FuseRequest) -> Answer:
        (
            valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _,
        ) = kernel.SETATTR_IN.unpack_from(request.body)  # fmt: skip
        inode = self._inodes[request.node]
        now = self._inodes.status(inode)
        self._state.change(grows=bool(valid & kernel.SET_SIZE) and size > now.st_size)
        path: bytes | int = inode.descriptors[0] if inode.descriptors else self._inodes.path(inode)
        if valid & kernel.SET_SIZE:
            self._inodes.cut(inode, size)
        if valid & kernel.SET_MODE:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & (kernel.SET_UID | kernel.SET_GID):
            os.chown(path, uid if valid & kernel.SET_UID else -1, gid if valid & kernel.SET_GID else -1)
        if valid & (kernel.SET_ATIME | kernel.SET_MTIME):
            accessed = atime * 10**9 + atime_ns if valid & kernel.SET_ATIME else now.st_atime_ns
            modified = mtime * 10**9 + mtime_ns if valid & kernel.SET_MTIME else now.st_mtime_ns
            os.utime(path, ns=(accessed, modified))
        return kernel.attr_out(_attributes(self._inodes.status(inode)), 0.0)

    async def mkdir(self, request: FuseRequest) -> Answer:
        mode, umask = kernel.MKDIR_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.MKDIR_IN.size :], 1)[0]
        await self._state.settle()
        self._state.change(grows=True)
        directory = self._inodes[request.node]
        path = self._inodes.inside(directory, name)
        os.mkdir(path, stat.S_IMODE(mode & ~umask))
        os.chown(path, request.uid, request.gid)
        return self.found(directory, name)[1]

    async def link(self, request: FuseRequest) -> Answer:
        old = self._inodes[kernel.LINK_IN.unpack_from(request.body)[0]]
        name = kernel.names(request.body[kernel.LINK_IN.size :], 1)[0]
        await self._state.settle()
        self._state.change(grows=True)
        directory = self._inodes[request.node]
        os.link(self._inodes.path(old), self._inodes.inside(directory, name))
        return self.found(directory, name)[1]

    async def unlink(self, request: FuseRequest) -> Answer:
        return await self._remove(request, os.unlink)

    async def rmdir(self, request: FuseRequest) -> Answer:
        return await self._remove(request, os.rmdir)

    async def _remove(self, request: FuseRequest, remove: Callable[[bytes], None]) -> Answer:
        await self._state.settle()
        self._state.change()
        path = self._inodes.inside(self._inodes[request.node], kernel.names(request.body, 1)[0])
        status = os.lstat(path)
        remove(path)
        self._inodes.removed(status)
        return b""

    async def rename(self, request: FuseRequest) -> Answer:
        target, flags, old, new = kernel.renaming(request.opcode, request.body)
        if flags & ~_RENAME_NOREPLACE:
            raise OSError(errno.EINVAL, "a disk in a test does not exchange names")
        await self._state.settle()
        self._state.change()
        directory = self._inodes[target]
        before = self._inodes.inside(self._inodes[request.node], old)
        after = self._inodes.inside(directory, new)
        replaced = status_of(after)
        if replaced is not None and flags & _RENAME_NOREPLACE:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        status = os.lstat(before)
        os.rename(before, after)
        if replaced is not None:
            self._inodes.removed(replaced)
        self._inodes.moved(status, directory, new)
        return b""

    rename2 = rename

    async def statfs(self, request: FuseRequest) -> Answer:  # noqa: ARG002 - one signature for all
        found = os.statvfs(self._behind)
        free = 0 if self._state.condition.full else found.f_bfree
        return kernel.STATFS_OUT.pack(
            found.f_blocks, free, min(free, found.f_bavail), found.f_files, found.f_ffree, found.f_bsize,
            found.f_namemax, found.f_frsize, 0,
        )  # fmt: skip

    async def fsyncdir(self, request: FuseRequest) -> Answer:  # noqa: ARG002 - one signature for all
        await self._state.settle()
        if self._state.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return b""


def _attributes(status: os.stat_result) -> Attributes:
    return Attributes(
        file_id=status.st_ino,
        mode=status.st_mode,
        size=status.st_size,
        links=status.st_nlink,
        uid=status.st_uid,
        gid=status.st_gid,
        space_used=status.st_blocks * 512,
        accessed=divmod(status.st_atime_ns, 1_000_000_000),
        changed=divmod(status.st_ctime_ns, 1_000_000_000),
        modified=divmod(status.st_mtime_ns, 1_000_000_000),
    )
