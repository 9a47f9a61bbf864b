"""What the NFS client makes of the kernel's requests and of the server's answers.

The server is played by a stub that notes what it is asked.
"""

import asyncio
import grp
import os
import pwd

import pytest

from filesystems.fuse import kernel
from filesystems.fuse.connection import FuseRequest
from filesystems.fuse.kernel import Attributes, Opcode
from filesystems.fuse.node_table import ROOT
from filesystems.nfs import attributes, xdr
from filesystems.nfs import operations as ops
from filesystems.nfs.files import FileState
from filesystems.nfs.filesystem import FileSystem
from filesystems.nfs.nodes import NfsNode
from filesystems.nfs.operations import OperationCode
from filesystems.nfs.options import parse


class Server:
    """The client as a file system needs it, and the server behind it."""

    options = parse("hard,async")
    transfer_bytes = 1 << 16
    life = client_id = 0

    def __init__(self):
        self.verifier = b"life one"
        self.written, self.names, self.commits = [], [b"file"], 0

    def identity(self, *_):
        return b""

    async def settled(self, **_):
        pass

    async def call(self, _, *operations, **__):
        await asyncio.sleep(0)
        return [self.answer(operation) for operation in operations]

    once = call

    def answer(self, operation):
        reader = xdr.XdrReader(operation.arguments)
        if operation.code == OperationCode.WRITE:
            reader.fixed(16)
            offset, stable, data = reader.u64(), reader.u32(), reader.opaque()
            self.written.append((offset, data))
            return len(data), stable, self.verifier
        if operation.code == OperationCode.REMOVE:
            self.names.remove(reader.opaque())
        if operation.code == OperationCode.RENAME:
            old, new = reader.opaque(), reader.opaque()
            self.names[self.names.index(old)] = new
        if operation.code == OperationCode.COMMIT:
            self.commits += 1
            return self.verifier
        return Attributes(1, 0o600, 0, 1, 0, 0, 0, (0, 0), (0, 0), (0, 0))


class Opened:
    """A file that is open under handles from 1 on."""

    def __init__(self, openings=1):
        self.server = Server()
        self.files = files = FileSystem(self.server, b"root", lambda _: None)
        node = files._nodes.counted(b"h", lambda number: NfsNode(number, b"h", files._nodes[ROOT], b"file"))
        node.state = FileState(b"", 3, ops.ANONYMOUS, openings)
        files._handles = dict.fromkeys(range(1, openings + 1), (node, node.state))
        self._number = node.number

    async def ask(self, opcode, body, number=0):
        return await self.files.serve(FuseRequest(opcode, 1, number or self._number, 0, 0, 0, body))

    async def release(self, handle):
        await self.ask(Opcode.RELEASE, kernel.RELEASE_IN.pack(handle, 0, 0, 0))

    async def unlink(self):
        await self.ask(Opcode.UNLINK, b"file\0", ROOT)

    async def write(self, data, flags=0):
        await self.ask(Opcode.WRITE, kernel.WRITE_IN.pack(1, 0, len(data), 0, 0, flags, 0) + data)

    async def cut(self, size):
        await self.ask(Opcode.SETATTR, kernel.SETATTR_IN.pack(kernel.SET_SIZE, 0, 0, size, *[0] * 12))

    async def sync(self):
        await self.ask(Opcode.FSYNC, kernel.FSYNC_IN.pack(1, 0, 0))


def test_what_was_cut_off_is_not_sent_again_to_a_restarted_server():
    async def scenario():
        file = Opened()
        await file.write(b"0123456789")
        await file.cut(4)
        file.server.verifier, file.server.written = b"life two", []
        await file.sync()
        assert file.server.written == [(0, b"0123")]

    asyncio.run(scenario())


@pytest.mark.parametrize(("flags", "commits"), [(0, 0), (os.O_DSYNC, 1), (os.O_SYNC, 1)])
def test_what_is_written_to_be_synced_at_once_is_synced(flags, commits):
    async def scenario():
        file = Opened()
        await file.write(b"abc", flags)
        assert file.server.commits == commits

    asyncio.run(scenario())


def test_a_file_removed_while_open_is_removed_with_the_last_of_openings_that_end_together():
    async def scenario():
        file = Opened(openings=2)
        await file.unlink()
        assert file.server.names != [b"file"]
        await asyncio.gather(file.release(1), file.release(2))
        await file.files.close()
        assert file.server.names == []

    asyncio.run(scenario())


def test_a_file_removed_while_it_is_closed_is_removed():
    async def scenario():
        file = Opened()
        await asyncio.gather(file.release(1), file.unlink())
        await file.files.close()
        assert file.server.names == []

    asyncio.run(scenario())


def test_users_and_groups_are_found_by_name_each_among_their_own():
    group = next(
        one for one in grp.getgrall() if one.gr_name not in {user.pw_name for user in pwd.getpwall()}
    )
    name = xdr.opaque(f"{group.gr_name}@domain".encode())
    bits = attributes.OWNER, attributes.OWNER_GROUP
    found = attributes.of_file(xdr.XdrReader(xdr.bitmap(bits) + xdr.opaque(name + name)))
    assert (found.uid, found.gid) == (attributes.NOBODY, group.gr_gid)
