"""Names: looking up, making, moving and removing; directories; attributes.

Requests that need nothing open.
"""

# ruff: noqa: D102 - each method answers the FUSE request of its name
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from filesystems.fuse import kernel
from filesystems.fuse.attributes import Attributes
from filesystems.fuse.connection import Answer, FuseRequest
from filesystems.fuse.directories import Entry
from filesystems.nfs import attributes, xdr
from filesystems.nfs import operations as ops
from filesystems.nfs.client import NfsClient
from filesystems.nfs.files import READ, WRITE
from filesystems.nfs.nodes import Node, Nodes
from filesystems.nfs.open_files import OpenFiles
from filesystems.nfs.operations import Operation, Reply

_NAME_BYTES_MAX: Final = 255


class Namespace:
    """Answers the requests about names.

    All methods raise OSError with what the caller is to see.
    """

    def __init__(self, client: NfsClient, nodes: Nodes, files: OpenFiles) -> None:
        self._client = client
        self._nodes = nodes
        self._files = files
        self._lookup_s = client.options.lookup_cache_s
        self._attribute_s = client.options.attribute_cache_s

    async def _at(
        self, request: FuseRequest, node: Node, operations: list[bytes], parse: Callable[[Reply], None]
    ) -> None:
        def whole(reply: Reply) -> None:
            reply.take(Operation.PUTFH)
            parse(reply)

        await self._client.call(
            self._client.identity(request.uid, request.gid), [ops.putfh(node.handle), *operations], whole
        )

    def _entry(self, parent: Node, name: bytes, found: tuple[bytes, Attributes]) -> bytes:
        node = self._nodes.found(found[0], parent, name)
        return kernel.entry_out(node.number, found[1], self._lookup_s, self._attribute_s)

    async def _made(self, request: FuseRequest, parent: Node, name: bytes, operation: bytes) -> bytes:
        """Make something in a directory, and say what the name leads to then."""

        def parse(reply: Reply) -> tuple[bytes, Attributes]:
            reply.take(Operation.PUTFH)
            ops.created(reply.take(Operation.CREATE))
            return reply.take(Operation.GETFH).opaque(), ops.getattr_in(reply)

        found = await self._client.call(
            self._client.identity(request.uid, request.gid),
            [ops.putfh(parent.handle), operation, ops.GETFH, ops.GETATTR],
            parse,
        )
        return self._entry(parent, name, found)

    async def _found(self, request: FuseRequest, parent: Node, name: bytes) -> bytes:
        if len(name) > _NAME_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, "the name is too long")

        def parse(reply: Reply) -> tuple[bytes, Attributes]:
            handle = reply.take(Operation.PUTFH, Operation.LOOKUP, Operation.GETFH).opaque()
            return handle, ops.getattr_in(reply)

        found = await self._client.call(
            self._client.identity(request.uid, request.gid),
            [ops.putfh(parent.handle), ops.lookup(name), ops.GETFH, ops.GETATTR],
            parse,
        )
        return self._entry(parent, name, found)

    async def lookup(self, request: FuseRequest) -> Answer:
        return await self._found(request, self._nodes[request.node], kernel.names(request.body, 1)[0])

    async def getattr(self, request: FuseRequest) -> Answer:
        node = self._nodes[request.node]
        found = await self._client.call(
            self._client.identity(request.uid, request.gid),
            [ops.putfh(node.handle), ops.GETATTR],
            lambda reply: (reply.take(Operation.PUTFH), ops.getattr_in(reply))[1],
        )
        return kernel.attr_out(found, self._attribute_s)

    async def setattr(self, request: FuseRequest) -> Answer:
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
            state,
            lambda: self._client.call(self._client.identity(request.uid, request.gid), operations(), parse),
        )
        return kernel.attr_out(found, self._attribute_s)

    async def readlink(self, request: FuseRequest) -> Answer:
        return await self._client.call(
            self._client.identity(request.uid, request.gid),
            [ops.putfh(self._nodes[request.node].handle), ops.READLINK],
            lambda reply: reply.take(Operation.PUTFH, Operation.READLINK).opaque(),
        )

    async def symlink(self, request: FuseRequest) -> Answer:
        name, target = kernel.names(request.body, 2)
        values = attributes.encode(mode=0o777)
        return await self._made(
            request, self._nodes[request.node], name, ops.create_link(name, target, values)
        )

    async def mkdir(self, request: FuseRequest) -> Answer:
        mode, umask = kernel.MKDIR_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.MKDIR_IN.size :], 1)[0]
        values = attributes.encode(mode=mode & ~umask)
        return await self._made(request, self._nodes[request.node], name, ops.create_directory(name, values))

    async def mknod(self, request: FuseRequest) -> Answer:
        mode, _, umask, _ = kernel.MKNOD_IN.unpack_from(request.body)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EOPNOTSUPP, "a store keeps files and directories")
        name = kernel.names(request.body[kernel.MKNOD_IN.size :], 1)[0]
        node, found = await self._files.open(
            self._client.identity(request.uid, request.gid), self._nodes[request.node], name, READ,
            create=attributes.encode(mode=mode & ~umask), exclusive=True,
        )  # fmt: skip
        assert node.state is not None
        self._files.release(node, node.state)
        return kernel.entry_out(node.number, found, self._lookup_s, self._attribute_s)

    async def link(self, request: FuseRequest) -> Answer:
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

    async def unlink(self, request: FuseRequest) -> Answer:
        directory = self._nodes[request.node]
        name = kernel.names(request.body, 1)[0]
        await self._hide_open(request, directory, name)
        return b""

    async def _hide_open(self, request: FuseRequest, directory: Node, name: bytes) -> None:
        """Removes the name of a file that may be open here.

        One that is open is renamed instead until it is closed, for the server would end it under
        its users.
        """
        node = self._nodes.named(directory, name)
        if node is None or node.state is None or node.hidden:
            await self.remove(request, directory, name)
            return
        hidden = f".nfs{os.urandom(8).hex()}".encode()
        await self._renamed(request, directory, name, directory, hidden)
        node.hidden, node.name = True, hidden

    async def rmdir(self, request: FuseRequest) -> Answer:
        await self.remove(request, self._nodes[request.node], kernel.names(request.body, 1)[0])
        return b""

    async def remove(self, request: FuseRequest, directory: Node, name: bytes) -> None:
        """Take a name out of a directory."""
        await self._at(
            request, directory, [ops.remove(name)], lambda reply: (reply.take(Operation.REMOVE), None)[1]
        )

    async def rename(self, request: FuseRequest) -> Answer:
        (target,) = kernel.RENAME_IN.unpack_from(request.body)
        return await self._move(request, target, request.body[kernel.RENAME_IN.size :])

    async def rename2(self, request: FuseRequest) -> Answer:
        target, flags, _ = kernel.RENAME2_IN.unpack_from(request.body)
        if flags:
            raise OSError(errno.EINVAL, "NFSv4.0 renames atomically in one way only")
        return await self._move(request, target, request.body[kernel.RENAME2_IN.size :])

    async def _move(self, request: FuseRequest, target: int, both: bytes) -> Answer:
        source, directory = self._nodes[request.node], self._nodes[target]
        old, new = kernel.names(both, 2)
        moved, replaced = self._nodes.named(source, old), self._nodes.named(directory, new)
        if replaced is not None and replaced is not moved and replaced.state is not None:
            await self._hide_open(request, directory, new)
        await self._renamed(request, source, old, directory, new)
        if moved is not None:
            moved.parent, moved.name = directory, new
        return b""

    async def _renamed(
        self, request: FuseRequest, source: Node, old: bytes, directory: Node, new: bytes
    ) -> None:
        await self._at(
            request,
            source,
            [ops.SAVEFH, ops.putfh(directory.handle), ops.rename(old, new)],
            lambda reply: (reply.take(Operation.SAVEFH, Operation.PUTFH, Operation.RENAME), None)[1],
        )

    async def listed(self, request: FuseRequest) -> list[Entry]:
        """What is in a directory."""
        node = self._nodes[request.node]
        entries = [Entry(1, stat.S_IFDIR, b"."), Entry(1, stat.S_IFDIR, b"..")]
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
                    mode = attributes.FORMATS.get(found.get(attributes.TYPE, 0), 0)
                    entries.append(Entry(found.get(attributes.FILEID, 1), mode, name))
                return last, verifier, bool(reader.u32())

            before = cookie
            cookie, verifier, ended = await self._client.call(
                self._client.identity(request.uid, request.gid),
                [ops.putfh(node.handle), ops.readdir(cookie, verifier)],
                parse,
            )
            if not ended and cookie == before:
                raise xdr.XdrError("the server lists a directory without end")
        return entries

    async def fsyncdir(self, request: FuseRequest) -> Answer:  # noqa: ARG002 - one signature for all
        return b""  # a server's answer to a change of a directory says that the change is on its disk

    async def statfs(self, request: FuseRequest) -> Answer:
        found = await self._client.call(
            self._client.identity(request.uid, request.gid),
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
