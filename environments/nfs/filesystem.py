"""The file system: each FUSE request as NFS operations. Nothing is kept that another host could change, unless the mount's options allow it."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Final

from environments.nfs import attributes, xdr
from environments.nfs import fuse_kernel as kernel
from environments.nfs import operations as ops
from environments.nfs.attributes import Attributes
from environments.nfs.client import NfsClient
from environments.nfs.data import Data
from environments.nfs.files import READ, WRITE, FileState
from environments.nfs.fuse_kernel import Opcode
from environments.nfs.locking import Locking
from environments.nfs.nodes import Node, Nodes
from environments.nfs.open_files import OpenFiles
from environments.nfs.operations import Operation, Reply
from environments.nfs.requests import Answer, Request

_ACCESS: Final = {os.O_RDONLY: READ, os.O_WRONLY: WRITE, os.O_RDWR: READ | WRITE}
_NAME_BYTES_MAX: Final = 255
_BACKGROUND: Final = 64


class FileSystem:
    """Serves the requests of one mount. ``serve`` raises OSError for what the caller is to see."""

    def __init__(self, client: NfsClient, root: bytes, tell: Callable[[str], None]) -> None:
        self._client = client
        self._nodes = Nodes(root)
        self._files = OpenFiles(client, self._nodes, tell)
        self._data = Data(client, self._files)
        self._locking = Locking(self._files)
        self._handles: dict[int, tuple[Node, FileState | None, list[bytes]]] = {}
        self._numbers = itertools.count(1)
        self._identities: dict[tuple[int, int], bytes] = {}
        self._lookup_s = client.options.lookup_cache_s
        self._attribute_s = client.options.attribute_cache_s
        self._serves: dict[int, Callable[[Request], Awaitable[Answer]]] = {
            opcode: getattr(self, f"_{opcode.name.lower()}")
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

    def _identity(self, request: Request) -> bytes:
        key = (request.uid, request.gid)
        if key not in self._identities:
            self._identities[key] = self._client.identity(*key)
        return self._identities[key]

    async def _init(self, request: Request) -> Answer:
        major, minor, read_ahead, offered = kernel.INIT_IN.unpack_from(request.body)
        if major != kernel.MAJOR or minor < kernel.MINOR:
            raise OSError(errno.EPROTO, f"the kernel speaks FUSE {major}.{minor}, needed is 7.{kernel.MINOR}")
        size = min(kernel.WRITE_BYTES_MAX, self._client.transfer_bytes)
        return kernel.INIT_OUT.pack(
            kernel.MAJOR, kernel.MINOR, read_ahead, kernel.WANTED & offered, _BACKGROUND, _BACKGROUND * 3 // 4,
            size, 1, kernel.WRITE_BYTES_MAX // kernel.BLOCK_BYTES, 0, 0,
        )  # fmt: skip

    async def _destroy(self, request: Request) -> Answer:
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

    # ----------------------------------------------------------------------------------------------------------------
    # Names

    async def _at(
        self, request: Request, node: Node, operations: list[bytes], parse: Callable[[Reply], None]
    ) -> None:
        def whole(reply: Reply) -> None:
            reply.take(Operation.PUTFH)
            parse(reply)

        await self._client.call(self._identity(request), [ops.putfh(node.handle), *operations], whole)

    def _entry(self, parent: Node, name: bytes, found: tuple[bytes, Attributes]) -> bytes:
        node = self._nodes.found(found[0], parent, name)
        return kernel.entry_out(node.number, found[1], self._lookup_s, self._attribute_s)

    async def _made(self, request: Request, parent: Node, name: bytes, operation: bytes) -> bytes:
        """Make something in a directory, and say what the name leads to then."""

        def parse(reply: Reply) -> tuple[bytes, Attributes]:
            reply.take(Operation.PUTFH)
            ops.created(reply.take(Operation.CREATE))
            return reply.take(Operation.GETFH).opaque(), ops.getattr_in(reply)

        found = await self._client.call(
            self._identity(request), [ops.putfh(parent.handle), operation, ops.GETFH, ops.GETATTR], parse
        )
        return self._entry(parent, name, found)

    async def _found(self, request: Request, parent: Node, name: bytes) -> bytes:
        if len(name) > _NAME_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, "the name is too long")

        def parse(reply: Reply) -> tuple[bytes, Attributes]:
            handle = reply.take(Operation.PUTFH, Operation.LOOKUP, Operation.GETFH).opaque()
            return handle, ops.getattr_in(reply)

        found = await self._client.call(
            self._identity(request),
            [ops.putfh(parent.handle), ops.lookup(name), ops.GETFH, ops.GETATTR],
            parse,
        )
        return self._entry(parent, name, found)

    async def _lookup(self, request: Request) -> Answer:
        return await self._found(request, self._nodes[request.node], kernel.names(request.body, 1)[0])

    async def _getattr(self, request: Request) -> Answer:
        node = self._nodes[request.node]
        found = await self._client.call(
            self._identity(request),
            [ops.putfh(node.handle), ops.GETATTR],
            lambda reply: (reply.take(Operation.PUTFH), ops.getattr_in(reply))[1],
        )
        return kernel.attr_out(found, self._attribute_s)

    async def _setattr(self, request: Request) -> Answer:
        (
            valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _,
        ) = kernel.SETATTR_IN.unpack_from(request.body)  # fmt: skip
        node = self._nodes[request.node]
        values = attributes.encode(
            size=size if valid & kernel.SET_SIZE else None,
            mode=mode if valid & kernel.SET_MODE else None,
            uid=uid if valid & kernel.SET_UID else None,
            gid=gid if valid & kernel.SET_GID else None,
            accessed="now"
            if valid & kernel.SET_ATIME_NOW
            else (atime, atime_ns)
            if valid & kernel.SET_ATIME
            else None,
            modified="now"
            if valid & kernel.SET_MTIME_NOW
            else (mtime, mtime_ns)
            if valid & kernel.SET_MTIME
            else None,
        )
        state = node.state

        def operations() -> list[bytes]:
            # Cutting a file is writing: it needs the right to, and the server checks locks by it.
            writes = valid & kernel.SET_SIZE and state is not None and state.access & WRITE
            stateid = state.stateid_for(None) if writes and state is not None else ops.ANONYMOUS
            return [ops.putfh(node.handle), ops.setattr_(stateid, values), ops.GETATTR]

        def parse(reply: Reply) -> Attributes:
            reply.take(Operation.PUTFH, Operation.SETATTR).bits()
            return ops.getattr_in(reply)

        found = await self._files.surviving(
            state, lambda: self._client.call(self._identity(request), operations(), parse)
        )
        return kernel.attr_out(found, self._attribute_s)

    async def _readlink(self, request: Request) -> Answer:
        return await self._client.call(
            self._identity(request),
            [ops.putfh(self._nodes[request.node].handle), ops.READLINK],
            lambda reply: reply.take(Operation.PUTFH, Operation.READLINK).opaque(),
        )

    async def _symlink(self, request: Request) -> Answer:
        name, target = kernel.names(request.body, 2)
        values = attributes.encode(mode=0o777)
        return await self._made(
            request, self._nodes[request.node], name, ops.create_link(name, target, values)
        )

    async def _mkdir(self, request: Request) -> Answer:
        mode, umask = kernel.MKDIR_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.MKDIR_IN.size :], 1)[0]
        values = attributes.encode(mode=mode & ~umask)
        return await self._made(request, self._nodes[request.node], name, ops.create_directory(name, values))

    async def _mknod(self, request: Request) -> Answer:
        mode, _, umask, _ = kernel.MKNOD_IN.unpack_from(request.body)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EOPNOTSUPP, "a store keeps files and directories")
        name = kernel.names(request.body[kernel.MKNOD_IN.size :], 1)[0]
        node, found = await self._files.open(
            self._identity(request), self._nodes[request.node], name, READ,
            create=attributes.encode(mode=mode & ~umask), exclusive=True,
        )  # fmt: skip
        assert node.state is not None
        self._files.release(node, node.state)
        return kernel.entry_out(node.number, found, self._lookup_s, self._attribute_s)

    async def _link(self, request: Request) -> Answer:
        old = self._nodes[kernel.LINK_IN.unpack_from(request.body)[0]]
        name = kernel.names(request.body[kernel.LINK_IN.size :], 1)[0]
        directory = self._nodes[request.node]
        await self._at(
            request,
            old,
            [ops.SAVEFH, ops.putfh(directory.handle), ops.link(name)],
            lambda reply: (reply.take(Operation.SAVEFH, Operation.PUTFH, Operation.LINK), None)[1],
        )
        return await self._found(request, directory, name)

    async def _unlink(self, request: Request) -> Answer:
        directory = self._nodes[request.node]
        name = kernel.names(request.body, 1)[0]
        await self._hide_open(request, directory, name)
        return b""

    async def _hide_open(self, request: Request, directory: Node, name: bytes) -> None:
        """Remove a name; a file that is open here is renamed instead until it is closed, for the server would end it under its users."""
        node = self._nodes.named(directory, name)
        if node is None or node.state is None or node.hidden:
            await self._remove(request, directory, name)
            return
        hidden = f".nfs{os.urandom(8).hex()}".encode()
        await self._renamed(request, directory, name, directory, hidden)
        node.hidden, node.name = True, hidden

    async def _rmdir(self, request: Request) -> Answer:
        await self._remove(request, self._nodes[request.node], kernel.names(request.body, 1)[0])
        return b""

    async def _remove(self, request: Request, directory: Node, name: bytes) -> None:
        await self._at(
            request, directory, [ops.remove(name)], lambda reply: (reply.take(Operation.REMOVE), None)[1]
        )

    async def _rename(self, request: Request) -> Answer:
        (target,) = kernel.RENAME_IN.unpack_from(request.body)
        return await self._move(request, target, request.body[kernel.RENAME_IN.size :])

    async def _rename2(self, request: Request) -> Answer:
        target, flags, _ = kernel.RENAME2_IN.unpack_from(request.body)
        if flags:
            raise OSError(errno.EINVAL, "NFSv4.0 renames atomically in one way only")
        return await self._move(request, target, request.body[kernel.RENAME2_IN.size :])

    async def _move(self, request: Request, target: int, both: bytes) -> Answer:
        source, directory = self._nodes[request.node], self._nodes[target]
        old, new = kernel.names(both, 2)
        moved, replaced = self._nodes.named(source, old), self._nodes.named(directory, new)
        if replaced is not None and replaced is not moved and replaced.state is not None:
            await self._hide_open(request, directory, new)
        await self._renamed(request, source, old, directory, new)
        if moved is not None:
            moved.parent, moved.name = directory, new
        return b""

    async def _renamed(self, request: Request, source: Node, old: bytes, directory: Node, new: bytes) -> None:
        await self._at(
            request,
            source,
            [ops.SAVEFH, ops.putfh(directory.handle), ops.rename(old, new)],
            lambda reply: (reply.take(Operation.SAVEFH, Operation.PUTFH, Operation.RENAME), None)[1],
        )

    # ----------------------------------------------------------------------------------------------------------------
    # Directories

    async def _opendir(self, request: Request) -> Answer:
        number = next(self._numbers)
        self._handles[number] = (self._nodes[request.node], None, [])
        return kernel.OPEN_OUT.pack(number, 0, 0)

    async def _readdir(self, request: Request) -> Answer:
        handle, offset, size, _, _, _, _ = kernel.READ_IN.unpack_from(request.body)
        node, _, listing = self._handles[handle]
        if offset == 0:  # from the beginning: look again
            listing[:] = await self._listing(request, node)
        answer: list[bytes] = []
        for entry in listing[offset:]:
            if len(entry) > size:
                break
            size -= len(entry)
            answer.append(entry)
        return answer or b""

    async def _listing(self, request: Request, node: Node) -> list[bytes]:
        listing = [
            kernel.dirent(1, 1, attributes.DIRECTORY, b"."),
            kernel.dirent(1, 2, attributes.DIRECTORY, b".."),
        ]
        cookie, verifier, ended = 0, bytes(8), False
        while not ended:

            def parse(reply: Reply) -> tuple[int, bytes, bool]:
                reader = reply.take(Operation.PUTFH, Operation.READDIR)
                verifier = bytes(reader.fixed(8))
                last = cookie  # noqa: B023 - called at once
                while reader.u32():
                    last = reader.u64()
                    name = reader.opaque()
                    found = attributes.decode(reader)
                    listing.append(
                        kernel.dirent(
                            found.get(attributes.FILEID, 1),
                            len(listing) + 1,
                            found.get(attributes.TYPE, 0),
                            name,
                        )
                    )
                return last, verifier, bool(reader.u32())

            before = cookie
            cookie, verifier, ended = await self._client.call(
                self._identity(request), [ops.putfh(node.handle), ops.readdir(cookie, verifier)], parse
            )
            if not ended and cookie == before:
                raise xdr.XdrError("the server lists a directory without end")
        return listing

    async def _releasedir(self, request: Request) -> Answer:
        self._handles.pop(kernel.RELEASE_IN.unpack_from(request.body)[0], None)
        return b""

    async def _fsyncdir(self, request: Request) -> Answer:
        return b""  # a server's answer to a change of a directory says that the change is on its disk

    async def _statfs(self, request: Request) -> Answer:
        found = await self._client.call(
            self._identity(request),
            [ops.putfh(self._nodes[request.node].handle), ops.GETATTR_SPACE],
            lambda reply: attributes.decode(reply.take(Operation.PUTFH, Operation.GETATTR)),
        )
        blocks = [
            found.get(bit, 0) // kernel.BLOCK_BYTES
            for bit in (attributes.SPACE_TOTAL, attributes.SPACE_FREE, attributes.SPACE_AVAIL)
        ]
        return kernel.STATFS_OUT.pack(
            *blocks, found.get(attributes.FILES_TOTAL, 0), found.get(attributes.FILES_FREE, 0),
            kernel.BLOCK_BYTES, found.get(attributes.MAXNAME, _NAME_BYTES_MAX), kernel.BLOCK_BYTES, 0,
        )  # fmt: skip

    # ----------------------------------------------------------------------------------------------------------------
    # Files

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
            self._identity(request), node.parent, node.name, _ACCESS[flags & os.O_ACCMODE]
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
            self._identity(request), self._nodes[request.node], name, _ACCESS[flags & os.O_ACCMODE],
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
        process = owner if flags & kernel.READ_LOCKOWNER else None
        return await self._data.read(self._identity(request), self._handle(handle), process, offset, size)

    async def _write(self, request: Request) -> Answer:
        handle, offset, size, flags, owner, file_flags, _ = kernel.WRITE_IN.unpack_from(request.body)
        data = request.body[kernel.WRITE_IN.size : kernel.WRITE_IN.size + size]
        process = owner if flags & kernel.WRITE_LOCKOWNER else None
        taken = await self._data.write(
            self._identity(request), self._handle(handle), process, offset, data,
            append=bool(file_flags & os.O_APPEND),
        )  # fmt: skip
        return kernel.WRITE_OUT.pack(taken, 0)

    async def _fsync(self, request: Request) -> Answer:
        handle, _, _ = kernel.FSYNC_IN.unpack_from(request.body)
        await self._data.sync(self._identity(request), self._handle(handle)[0])
        return b""

    async def _flush(self, request: Request) -> Answer:
        handle, _, _, owner = kernel.FLUSH_IN.unpack_from(request.body)
        node, state = self._handle(handle)
        try:  # what close() returns without an error for is on the server's disk
            await self._data.sync(self._identity(request), node)
        finally:
            await self._locking.closed(node, state, owner)
        return b""

    async def _release(self, request: Request) -> Answer:
        handle, _, flags, owner = kernel.RELEASE_IN.unpack_from(request.body)
        node, state = self._handle(handle)
        del self._handles[handle]
        if flags & kernel.RELEASE_FLOCK_UNLOCK:
            await self._locking.released(node, state, owner)
        if node.hidden and state.openings == 1 and node.parent is not None:
            await self._files.close(node, state)
            await self._remove(request, node.parent, node.name)
        else:
            self._files.release(node, state)
        return b""

    async def _getlk(self, request: Request) -> Answer:
        return await self._locking.test(request, self._handle)

    async def _setlk(self, request: Request) -> Answer:
        return await self._locking.set(request, self._handle, wait=False)

    async def _setlkw(self, request: Request) -> Answer:
        return await self._locking.set(request, self._handle, wait=True)
