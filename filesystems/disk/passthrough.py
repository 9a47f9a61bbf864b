"""The file system that passes requests through to a directory.

Each FUSE request is done to the files of the directory behind, unless the disk's condition says
otherwise.

Names, sizes and directories are durable at once, as on a file system that journals them; bytes of
files are durable when they were synced. The kernel keeps the locks itself: this disk belongs to one
machine.
"""

# ruff: noqa: D102 - each method answers the FUSE request of its name
from __future__ import annotations

import errno
import os
import random
import stat
from pathlib import Path
from typing import Final

from filesystems.disk.condition import DiskState
from filesystems.disk.damage import Damages
from filesystems.disk.inodes import Inode, Inodes, status_of
from filesystems.disk.namespace import DiskNamespace
from filesystems.disk.unsynced import Unsynced
from filesystems.fuse import kernel
from filesystems.fuse.connection import Answer, FuseRequest
from filesystems.fuse.directories import Directories
from filesystems.fuse.dispatch import Dispatch
from filesystems.fuse.session import FuseSession

_WANTED: Final = kernel.WANTED & ~(kernel.POSIX_LOCKS | kernel.FLOCK_LOCKS)


class Passthrough:
    """A disk that passes requests through.

    ``serve`` raises the OSError that the caller is to see. ``state`` is the condition of the disk
    now, ``damages`` the damage done to its bytes.
    """

    def __init__(self, behind: Path, chance: random.Random) -> None:
        self.state = DiskState(chance)
        self.damages = Damages(behind, chance)
        self._chance = chance
        self._inodes = Inodes(behind)
        self._namespace = DiskNamespace(behind, self._inodes, self.state)
        self.serve = Dispatch(
            self,
            self._namespace,
            FuseSession(self._inodes.forget, wanted=_WANTED),
            Directories(self._namespace.listed),
        ).serve
        """The function that answers a request."""

    def power_lost(self) -> int:
        """Drop the data that were not synced, and return how many bytes that were.

        The disk must not be in use meanwhile.
        """
        lost = 0
        for inode in self._inodes:
            if inode.unsynced is None:
                continue
            try:
                descriptor = os.open(self._inodes.path(inode), os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                lost += inode.unsynced.power_lost(descriptor, self._chance)
            finally:
                os.close(descriptor)
            inode.unsynced = None
        return lost

    def _opened(self, inode: Inode, descriptor: int) -> bytes:
        inode.descriptors.append(descriptor)
        return kernel.OPEN_OUT.pack(descriptor, kernel.DIRECT_IO, 0)

    async def open(self, request: FuseRequest) -> Answer:
        flags, _ = kernel.OPEN_IN.unpack_from(request.body)
        inode = self._inodes[request.node]
        # A file that is open for writing must be readable here: overwritten data are remembered.
        access = os.O_RDWR if flags & os.O_ACCMODE else os.O_RDONLY
        return self._opened(inode, os.open(self._inodes.path(inode), access | os.O_NOFOLLOW))

    async def create(self, request: FuseRequest) -> Answer:
        flags, mode, umask, _ = kernel.CREATE_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.CREATE_IN.size :], 1)[0]
        await self.state.settle()
        self.state.change(grows=True)
        directory = self._inodes[request.node]
        path = self._inodes.inside(directory, name)
        there = status_of(path) is not None
        if there and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, stat.S_IMODE(mode & ~umask))
        if not there:
            os.fchown(descriptor, request.uid, request.gid)
        inode, entry = self._namespace.found(directory, name)
        opened = self._opened(inode, descriptor)
        if flags & os.O_TRUNC:
            self._inodes.cut(inode, 0)
        return entry + opened

    async def read(self, request: FuseRequest) -> Answer:
        descriptor, offset, size, _, _, _, _ = kernel.READ_IN.unpack_from(request.body)
        return os.pread(descriptor, size, offset)

    async def write(self, request: FuseRequest) -> Answer:
        descriptor, offset, size, _, _, flags, _ = kernel.WRITE_IN.unpack_from(request.body)
        data = request.body[kernel.WRITE_IN.size : kernel.WRITE_IN.size + size]
        self.state.change(grows=True)
        inode = self._inodes[request.node]
        end = os.fstat(descriptor).st_size
        if flags & os.O_APPEND:
            offset = end
        if inode.unsynced is None and self._inodes.known(inode.key) is inode:  # a removed file is lost whole
            inode.unsynced = Unsynced(end)
        if inode.unsynced is not None:
            inode.unsynced.write(descriptor, offset, len(data))
        taken = os.pwrite(descriptor, data, offset)
        if flags & os.O_DSYNC:  # the kernel sends no fsync after a write that bypasses its cache
            await self._sync(inode, descriptor)
        return kernel.WRITE_OUT.pack(taken, 0)

    async def fsync(self, request: FuseRequest) -> Answer:
        descriptor, _, _ = kernel.FSYNC_IN.unpack_from(request.body)
        await self._sync(self._inodes[request.node], descriptor)
        return b""

    async def _sync(self, inode: Inode, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        begun = 0 if inode.unsynced is None else len(inode.unsynced.overwritten)
        await self.state.settle()
        if self.state.sync_fails:
            if inode.unsynced is not None:
                inode.unsynced.drop(size)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if inode.unsynced is not None:
            inode.unsynced.kept(size, begun)

    async def flush(self, request: FuseRequest) -> Answer:  # noqa: ARG002 - one signature for all
        return b""  # closing a file syncs nothing

    async def release(self, request: FuseRequest) -> Answer:
        descriptor, _, _, _ = kernel.RELEASE_IN.unpack_from(request.body)
        inode = self._inodes[request.node]
        inode.descriptors.remove(descriptor)
        os.close(descriptor)
        return b""
