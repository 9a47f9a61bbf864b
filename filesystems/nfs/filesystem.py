"""The file system, which answers each FUSE request by NFS operations.

Nothing is cached that another host could change, unless the mount's options allow it.
"""

# ruff: noqa: D102 - each method answers the FUSE request of its name
from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from typing import Final

from filesystems.fuse import kernel
from filesystems.fuse.connection import Answer, FuseRequest
from filesystems.fuse.directories import Directories
from filesystems.fuse.dispatch import Dispatch
from filesystems.fuse.session import FuseSession
from filesystems.nfs import attributes
from filesystems.nfs.client import NfsClient
from filesystems.nfs.data import FileContent
from filesystems.nfs.files import FLOCK, POSIX, READ, WRITE, FileState
from filesystems.nfs.locking import Locking
from filesystems.nfs.namespace import NfsNamespace
from filesystems.nfs.nodes import NfsNode, NfsNodes
from filesystems.nfs.open_files import OpenFiles

_ACCESS: Final = {os.O_RDONLY: READ, os.O_WRONLY: WRITE, os.O_RDWR: READ | WRITE}


class FileSystem:
    """The file system of a mount; ``serve`` raises the OSError that the caller is to see."""

    def __init__(self, client: NfsClient, root: bytes, tell: Callable[[str], None]) -> None:
        self._client = client
        self._nodes = NfsNodes(root)
        self._files = OpenFiles(client, self._nodes, tell)
        self._namespace = NfsNamespace(client, self._nodes, self._files)
        self._data = FileContent(client, self._files)
        self._locking = Locking(self._files)
        self._handles: dict[int, tuple[NfsNode, FileState]] = {}
        self._lockers: dict[int, dict[int, None]] = {}
        self._numbers = itertools.count(1)
        self._lookup_s = client.options.lookup_cache_s
        self._attribute_s = client.options.attribute_cache_s
        self.serve = Dispatch(
            self,
            self._namespace,
            FuseSession(self._nodes.forget, wanted=kernel.WANTED, write_bytes=client.transfer_bytes),
            Directories(self._namespace.listed),
        ).serve
        """The function that answers a request."""

    async def close(self) -> None:
        """Close all open files, and wait for that."""
        for node, state in list(self._handles.values()):
            self._files.release(node, state)
        self._handles.clear()
        await self._files.settle()

    def _who(self, request: FuseRequest) -> bytes:
        return self._client.identity(request.uid, request.gid)

    def _opened(self, node: NfsNode) -> bytes:
        assert node.state is not None, "it was opened just now"
        number = next(self._numbers)
        self._handles[number] = (node, node.state)
        return kernel.OPEN_OUT.pack(number, kernel.DIRECT_IO, 0)

    async def open(self, request: FuseRequest) -> Answer:
        flags, _ = kernel.OPEN_IN.unpack_from(request.body)
        node = self._nodes[request.node]
        if node.parent is None:
            raise OSError(errno.EISDIR, "is a directory")
        opened, _ = await self._files.open(
            self._who(request),
            node.parent,
            node.name,
            _ACCESS[flags & os.O_ACCMODE],
        )
        opened.lookups -= 1  # the kernel knew it already
        if opened is not node:
            assert opened.state is not None
            self._files.release(opened, opened.state)
            raise OSError(errno.ESTALE, "another file has this name now")
        return self._opened(node)

    async def create(self, request: FuseRequest) -> Answer:
        flags, mode, umask, _ = kernel.CREATE_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.CREATE_IN.size :], 1)[0]
        values = attributes.encode(mode=mode & ~umask, size=0 if flags & os.O_TRUNC else None)
        node, found = await self._files.open(
            self._who(request), self._nodes[request.node], name,
            _ACCESS[flags & os.O_ACCMODE], create=values, exclusive=bool(flags & os.O_EXCL),
        )  # fmt: skip
        entry = kernel.entry_out(node.number, found, self._lookup_s, self._attribute_s)
        return entry + self._opened(node)

    async def read(self, request: FuseRequest) -> Answer:
        handle, offset, size, flags, owner, _, _ = kernel.READ_IN.unpack_from(request.body)
        holder = self._holder(handle, owner if flags & kernel.READ_LOCKOWNER else None)
        return await self._data.read(self._who(request), self._handles[handle], holder, offset, size)

    async def write(self, request: FuseRequest) -> Answer:
        handle, offset, size, flags, owner, file_flags, _ = kernel.WRITE_IN.unpack_from(request.body)
        data = request.body[kernel.WRITE_IN.size : kernel.WRITE_IN.size + size]
        holder = self._holder(handle, owner if flags & kernel.WRITE_LOCKOWNER else None)
        taken = await self._data.write(
            self._who(request), self._handles[handle], holder, offset, data,
            append=bool(file_flags & os.O_APPEND),
        )  # fmt: skip
        if file_flags & os.O_DSYNC:  # the kernel sends no fsync after a write that bypasses its cache
            await self._data.sync(self._who(request), self._handles[handle][0])
        return kernel.WRITE_OUT.pack(taken, 0)

    async def fsync(self, request: FuseRequest) -> Answer:
        handle, _, _ = kernel.FSYNC_IN.unpack_from(request.body)
        await self._data.sync(self._who(request), self._handles[handle][0])
        return b""

    async def flush(self, request: FuseRequest) -> Answer:
        handle, _, _, owner = kernel.FLUSH_IN.unpack_from(request.body)
        node, state = self._handles[handle]
        try:  # after a close() without an error all data are on the server's disk
            await self._data.sync(self._who(request), node)
        finally:
            self._lockers.get(handle, {}).pop(owner, None)
            await self._locking.closed(node, state, (POSIX, owner))
        return b""

    async def release(self, request: FuseRequest) -> Answer:
        handle, _, flags, owner = kernel.RELEASE_IN.unpack_from(request.body)
        node, state = self._handles.pop(handle)
        try:
            for left in self._lockers.pop(handle, {}):  # the opening's own: processes closed theirs
                await self._locking.closed(node, state, (POSIX, left))
                self._files.forget(state, (POSIX, left))
            if flags & kernel.RELEASE_FLOCK_UNLOCK:
                await self._locking.closed(node, state, (FLOCK, owner))
        finally:  # a soft mount may give up on an unlock
            self._files.release(node, state)
        return b""

    async def getlk(self, request: FuseRequest) -> Answer:
        return await self._locking.test(request, self._handles)

    def _holder(self, handle: int, process: int | None) -> int | None:
        """Return the holder whose locks count for I/O: the process or the opening (F_OFD_SETLK)."""
        lockers = self._lockers.get(handle)
        return process if not lockers or process in lockers else next(iter(lockers))

    def _locks(self, request: FuseRequest) -> None:
        """Remember the holder that locks through an opening.

        At a close the kernel names the process whose locks end; it does not name an opening's own
        locks.
        """
        handle, owner, _, _, _, _, flags, _ = kernel.LK_IN.unpack_from(request.body)
        if not flags & kernel.LK_FLOCK:
            self._lockers.setdefault(handle, {})[owner] = None

    async def setlk(self, request: FuseRequest) -> Answer:
        self._locks(request)
        return await self._locking.set(request, self._handles, wait=False)

    async def setlkw(self, request: FuseRequest) -> Answer:
        self._locks(request)
        return await self._locking.set(request, self._handles, wait=True)
