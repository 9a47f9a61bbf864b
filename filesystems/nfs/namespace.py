"""Names, directories, attributes: the requests that need no open file."""

# ruff: noqa: D102 - each method answers the FUSE request of its name
from __future__ import annotations

import errno
import os
import stat
from typing import Any, Final

from filesystems.fuse import kernel
from filesystems.fuse.connection import Answer, FuseRequest
from filesystems.fuse.directories import Entry
from filesystems.nfs import attributes, xdr
from filesystems.nfs import operations as ops
from filesystems.nfs.client import NfsClient
from filesystems.nfs.files import READ, WRITE
from filesystems.nfs.nodes import NfsNode, NfsNodes
from filesystems.nfs.open_files import OpenFiles
from filesystems.nfs.operations import NfsOperation

_NAME_BYTES_MAX: Final = 255


class NfsNamespace:
    """The requests about names; all methods raise the OSError that the caller is to see."""

    def __init__(self, client: NfsClient, nodes: NfsNodes, files: OpenFiles) -> None:
        self._client = client
        self._nodes = nodes
        self._files = files
        self._lookup_s = client.options.lookup_cache_s
        self._attribute_s = client.options.attribute_cache_s

    async def _at(self, request: FuseRequest, node: NfsNode, *operations: NfsOperation) -> list[Any]:
        """Return the results of operations on a node."""
        identity = self._client.identity(request.uid, request.gid)
        _, *found = await self._client.call(identity, ops.putfh(node.handle), *operations)
        return found

    async def _entry(
        self, request: FuseRequest, parent: NfsNode, name: bytes, operation: NfsOperation
    ) -> bytes:
        """Return the answer for a name in a directory, which ``operation`` looks up or makes."""
        _, handle, found = await self._at(request, parent, operation, ops.GETFH, ops.GETATTR)
        node = self._nodes.found(handle, parent, name)
        return kernel.entry_out(node.number, found, self._lookup_s, self._attribute_s)

    async def _found(self, request: FuseRequest, parent: NfsNode, name: bytes) -> bytes:
        if len(name) > _NAME_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, "the name is too long")
        return await self._entry(request, parent, name, ops.lookup(name))

    async def lookup(self, request: FuseRequest) -> Answer:
        return await self._found(request, self._nodes[request.node], kernel.names(request.body, 1)[0])

    async def getattr(self, request: FuseRequest) -> Answer:
        (found,) = await self._at(request, self._nodes[request.node], ops.GETATTR)
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

        async def change() -> list[Any]:
            # Cutting a file is a write: it needs the right to write, and the server checks locks.
            writes = valid & kernel.SET_SIZE and state is not None and state.access & WRITE
            stateid = state.stateid_for(None) if writes and state is not None else ops.ANONYMOUS
            return await self._at(request, node, ops.setattr_(stateid, values), ops.GETATTR)

        _, found = await self._files.surviving(state, change)
        if valid & kernel.SET_SIZE:
            node.cut(size)
        return kernel.attr_out(found, self._attribute_s)

    async def readlink(self, request: FuseRequest) -> Answer:
        (target,) = await self._at(request, self._nodes[request.node], ops.READLINK)
        return bytes(target)

    async def symlink(self, request: FuseRequest) -> Answer:
        name, target = kernel.names(request.body, 2)
        making = ops.create_link(name, target, attributes.encode(mode=0o777))
        return await self._entry(request, self._nodes[request.node], name, making)

    async def mkdir(self, request: FuseRequest) -> Answer:
        mode, umask = kernel.MKDIR_IN.unpack_from(request.body)
        name = kernel.names(request.body[kernel.MKDIR_IN.size :], 1)[0]
        making = ops.create_directory(name, attributes.encode(mode=mode & ~umask))
        return await self._entry(request, self._nodes[request.node], name, making)

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
        await self._at(request, old, ops.SAVEFH, ops.putfh(directory.handle), ops.link(name))
        return await self._found(request, directory, name)

    async def unlink(self, request: FuseRequest) -> Answer:
        directory = self._nodes[request.node]
        name = kernel.names(request.body, 1)[0]
        await self._hide_open(request, directory, name)
        return b""

    async def _hide_open(self, request: FuseRequest, directory: NfsNode, name: bytes) -> None:
        """Remove the name of a file that may be open here.

        A file that is open is renamed instead until it is closed, because the server would remove
        it while it is in use.
        """
        node = self._nodes.named(directory, name)
        if node is None or node.state is None or node.hidden:
            await self._remove(request, directory, name)
            return
        hidden = f".nfs{os.urandom(8).hex()}".encode()
        await self._renamed(request, directory, name, directory, hidden)
        node.hidden, node.name = True, hidden
        # Its last close may have ended meanwhile.
        who = self._client.identity(request.uid, request.gid)
        await self._files.remove_hidden(node, who, hard=False)

    async def rmdir(self, request: FuseRequest) -> Answer:
        await self._remove(request, self._nodes[request.node], kernel.names(request.body, 1)[0])
        return b""

    async def _remove(self, request: FuseRequest, directory: NfsNode, name: bytes) -> None:
        await self._at(request, directory, ops.remove(name))

    async def rename(self, request: FuseRequest) -> Answer:
        target, flags, old, new = kernel.renaming(request.opcode, request.body)
        if flags:
            raise OSError(errno.EINVAL, "NFSv4.0 renames atomically in one way only")
        source, directory = self._nodes[request.node], self._nodes[target]
        moved, replaced = self._nodes.named(source, old), self._nodes.named(directory, new)
        if replaced is not None and replaced is not moved and replaced.state is not None:
            await self._hide_open(request, directory, new)
        await self._renamed(request, source, old, directory, new)
        if moved is not None:
            moved.parent, moved.name = directory, new
        return b""

    rename2 = rename

    async def _renamed(
        self, request: FuseRequest, source: NfsNode, old: bytes, directory: NfsNode, new: bytes
    ) -> None:
        await self._at(request, source, ops.SAVEFH, ops.putfh(directory.handle), ops.rename(old, new))

    async def listed(self, request: FuseRequest) -> list[Entry]:
        """Return the entries of a directory."""
        node = self._nodes[request.node]
        entries = [Entry(1, stat.S_IFDIR, b"."), Entry(1, stat.S_IFDIR, b"..")]
        cookie, verifier, ended = 0, bytes(8), False
        while not ended:
            before = cookie
            ((verifier, some, ended),) = await self._at(request, node, ops.readdir(cookie, verifier))
            for cookie, name, found in some:  # noqa: B007 - reading goes on at the last cookie
                mode = attributes.FORMATS.get(found.get(attributes.TYPE, 0), 0)
                entries.append(Entry(found.get(attributes.FILEID, 1), mode, name))
            if not ended and cookie == before:
                raise xdr.XdrError("the server lists a directory without end")
        return entries

    async def fsyncdir(self, request: FuseRequest) -> Answer:  # noqa: ARG002 - one signature for all
        return b""  # a server's answer to a change of a directory says that the change is on its disk

    async def statfs(self, request: FuseRequest) -> Answer:
        (found,) = await self._at(request, self._nodes[request.node], ops.GETATTR_SPACE)
        blocks = [
            found.get(bit, 0) // kernel.BLOCK_BYTES
            for bit in (attributes.SPACE_TOTAL, attributes.SPACE_FREE, attributes.SPACE_AVAIL)
        ]
        return kernel.STATFS_OUT.pack(
            *blocks, found.get(attributes.FILES_TOTAL, 0), found.get(attributes.FILES_FREE, 0),
            kernel.BLOCK_BYTES, found.get(attributes.MAXNAME, _NAME_BYTES_MAX), kernel.BLOCK_BYTES, 0,
        )  # fmt: skip
