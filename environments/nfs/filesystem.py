"""The file system: each FUSE request as NFS operations. Nothing is kept that another host could change, unless the mount's options allow it."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Final

from environments.fuse import kernel
from environments.fuse.connection import Answer, Request
from environments.fuse.kernel import Opcode
from environments.nfs import attributes
from environments.nfs.client import NfsClient
from environments.nfs.data import Data
from environments.nfs.files import POSIX, READ, WRITE, FileState
from environments.nfs.locking import Locking
from environments.nfs.namespace import Namespace
from environments.nfs.nodes import Node, Nodes
from environments.nfs.open_files import OpenFiles

_ACCESS: Final = {os.O_RDONLY: READ, os.O_WRONLY: WRITE, os.O_RDWR: READ | WRITE}
_NAME_BYTES_MAX: Final = 255
_BACKGROUND: Final = 64


class FileSystem:
    """Serves the requests of one mount. ``serve`` raises OSError for what the caller is to see."""

    def __init__(self, client: NfsClient, root: bytes, tell: Callable[[str], None]) -> None:
        self._client = client
        self._nodes = Nodes(root)
        self._files = OpenFiles(client, self._nodes, tell)
        self._namespace = Namespace(client, self._nodes, self._files)
        self._data = Data(client, self._files)
        self._locking = Locking(self._files)
        self._handles: dict[int, tuple[Node, FileState | None, list[bytes]]] = {}
        self._lockers: dict[int, dict[int, None]] = {}
        self._numbers = itertools.count(1)
        self._lookup_s = client.options.lookup_cache_s
        self._attribute_s = client.options.attribute_cache_s
        self._serves: dict[int, Callable[[Request], Awaitable[Answer]]] = {
            opcode: getattr(self, f"_{opcode.name.lower()}", None)
            or getattr(self._namespace, opcode.name.lower())
            for opcode in Opcode
            if opcode != Opcode.INTERRUPT
        }

    async def serve(self, request: Request) -> Answer:
        """Answer one request."""
        return await self._serves[request.opcode](request)

    async def close(self) -> None:
        """Give back all that is open, and wait for it."""
        for node, state, _ in list(self._handles.values()):
            if state is not None:
                self._files.release(node, state)
        self._handles.clear()
        await self._files.settle()

    async def _init(self, request: Request) -> Answer:
        major, minor, read_ahead, offered = kernel.INIT_IN.unpack_from(request.body)
        if major != kernel.MAJOR or minor < kernel.MINOR:
            raise OSError(errno.EPROTO, f"the kernel speaks FUSE {major}.{minor}, needed is 7.{kernel.MINOR}")
        size = min(kernel.WRITE_BYTES_MAX, self._client.transfer_bytes)
        return kernel.INIT_OUT.pack(
            kernel.MAJOR, kernel.MINOR, read_ahead, kernel.WANTED & offered, _BACKGROUND, _BACKGROUND * 3 // 4,
            size, 1, kernel.WRITE_BYTES_MAX // kernel.BLOCK_BYTES, 0, 0,
        )  # fmt: skip

    async def _destroy(self, request: Request) -> Answer:  # noqa: ARG002 - one signature for all
        return b""

    async def _forget(self, request: Request) -> Answer:
        self._nodes.forget(request.node, kernel.FORGET_IN.unpack_from(request.body)[0])
        return None

    async def _batch_forget(self, request: Request) -> Answer:
        count, _ = kernel.BATCH_FORGET_IN.unpack_from(request.body)
        for at in range(count):
            offset = kernel.BATCH_FORGET_IN.size + at * kernel.FORGET_ONE.size
            self._nodes.forget(*kernel.FORGET_ONE.unpack_from(request.body, offset))
        return None

    async def _opendir(self, request: Request) -> Answer:
        number = next(self._numbers)
        self._handles[number] = (self._nodes[request.node], None, [])
        return kernel.OPEN_OUT.pack(number, 0, 0)

    async def _readdir(self, request: Request) -> Answer:
        handle, offset, size, _, _, _, _ = kernel.READ_IN.unpack_from(request.body)
        node, _, listing = self._handles[handle]
        if offset == 0:  # from the beginning: look again
            listing[:] = await self._namespace.listing(request, node)
        answer: list[bytes] = []
        for entry in listing[offset:]:
            if len(entry) > size:
                break
            size -= len(entry)
            answer.append(entry)
        return answer or b""

    async def _releasedir(self, request: Request) -> Answer:
        self._handles.pop(kernel.RELEASE_IN.unpack_from(request.body)[0], None)
        return b""

    async def _fsyncdir(self, request: Request) -> Answer:  # noqa: ARG002 - one signature for all
        return b""  # a server's answer to a change of a directory says that the change is on its disk

    def _opened(self, node: Node) -> bytes:
        number = next(self._numbers)
        self._handles[number] = (node, node.state, [])
        return kernel.OPEN_OUT.pack(number, kernel.DIRECT_IO, 0)

    async def _open(self, request: Request) -> Answer:
        flags, _ = kernel.OPEN_IN.unpack_from(request.body)
        node = self._nodes[request.node]
        if node.parent is None:
            raise OSError(errno.EISDIR, "is a directory")
        opened, _ = await self._files.open(
            self._client.identity(request.uid, request.gid),
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

    async def _create(self, request: Request) -> Answer:
        flags, mode, umask, _ = kernel.CREATE_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.CREATE_IN.size :], 1)[0]
        values = attributes.encode(mode=mode & ~umask, size=0 if flags & os.O_TRUNC else None)
        node, found = await self._files.open(
            self._client.identity(request.uid, request.gid), self._nodes[request.node], name, _ACCESS[flags & os.O_ACCMODE],
            create=values, exclusive=bool(flags & os.O_EXCL),
        )  # fmt: skip
        entry = kernel.entry_out(node.number, found, self._lookup_s, self._attribute_s)
        return entry + self._opened(node)

    def _handle(self, number: int) -> tuple[Node, FileState]:
        node, state, _ = self._handles[number]
        if state is None:
            raise OSError(errno.EISDIR, "is a directory")
        return node, state

    async def _read(self, request: Request) -> Answer:
        handle, offset, size, flags, owner, _, _ = kernel.READ_IN.unpack_from(request.body)
        holder = self._holder(handle, owner if flags & kernel.READ_LOCKOWNER else None)
        return await self._data.read(
            self._client.identity(request.uid, request.gid), self._handle(handle), holder, offset, size
        )

    async def _write(self, request: Request) -> Answer:
        handle, offset, size, flags, owner, file_flags, _ = kernel.WRITE_IN.unpack_from(request.body)
        data = request.body[kernel.WRITE_IN.size : kernel.WRITE_IN.size + size]
        holder = self._holder(handle, owner if flags & kernel.WRITE_LOCKOWNER else None)
        taken = await self._data.write(
            self._client.identity(request.uid, request.gid), self._handle(handle), holder, offset, data,
            append=bool(file_flags & os.O_APPEND),
        )  # fmt: skip
        return kernel.WRITE_OUT.pack(taken, 0)

    async def _fsync(self, request: Request) -> Answer:
        handle, _, _ = kernel.FSYNC_IN.unpack_from(request.body)
        await self._data.sync(self._client.identity(request.uid, request.gid), self._handle(handle)[0])
        return b""

    async def _flush(self, request: Request) -> Answer:
        handle, _, _, owner = kernel.FLUSH_IN.unpack_from(request.body)
        node, state = self._handle(handle)
        try:  # what close() returns without an error for is on the server's disk
            await self._data.sync(self._client.identity(request.uid, request.gid), node)
        finally:
            self._lockers.get(handle, {}).pop(owner, None)
            await self._locking.closed(node, state, owner)
        return b""

    async def _release(self, request: Request) -> Answer:
        handle, _, flags, owner = kernel.RELEASE_IN.unpack_from(request.body)
        node, state = self._handle(handle)
        del self._handles[handle]
        for left in self._lockers.pop(handle, {}):  # no process': each has closed its own
            await self._locking.closed(node, state, left)
            self._files.forget(state, (POSIX, left))
        if flags & kernel.RELEASE_FLOCK_UNLOCK:
            await self._locking.released(node, state, owner)
        if node.hidden and state.openings == 1 and node.parent is not None:
            await self._files.close(node, state)
            await self._namespace.remove(request, node.parent, node.name)
        else:
            self._files.release(node, state)
        return b""

    async def _getlk(self, request: Request) -> Answer:
        return await self._locking.test(request, self._handle)

    def _holder(self, handle: int, process: int | None) -> int | None:
        """Whose locks stand for reading and writing here: the process', or those of the opening itself (``F_OFD_SETLK``)."""
        lockers = self._lockers.get(handle)
        return process if not lockers or process in lockers else next(iter(lockers))

    def _locks(self, request: Request) -> None:
        """Remember who locks through which opening. The kernel says at a close which process' locks go, and of an opening's own locks nothing."""
        handle, owner, _, _, _, _, flags, _ = kernel.LK_IN.unpack_from(request.body)
        if not flags & kernel.LK_FLOCK:
            self._lockers.setdefault(handle, {})[owner] = None

    async def _setlk(self, request: Request) -> Answer:
        self._locks(request)
        return await self._locking.set(request, self._handle, wait=False)

    async def _setlkw(self, request: Request) -> Answer:
        self._locks(request)
        return await self._locking.set(request, self._handle, wait=True)
