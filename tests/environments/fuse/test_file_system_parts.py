"""What is the same for every file system behind FUSE.

Who answers what, the greeting, forgetting, listing.
"""

import asyncio
import errno
import os
import stat
from dataclasses import dataclass

import pytest

from filesystems.fuse import kernel
from filesystems.fuse.connection import FuseRequest
from filesystems.fuse.directories import Directories, Entry
from filesystems.fuse.dispatch import Dispatch
from filesystems.fuse.kernel import Opcode
from filesystems.fuse.node_table import ROOT, NodeTable
from filesystems.fuse.session import FuseSession


def request(opcode, body=b"", node=ROOT):
    return FuseRequest(opcode, 1, node, 0, 0, os.getpid(), body)


class Reading:
    async def read(self, asked):
        return b"read"


def test_a_request_is_answered_by_the_part_that_has_its_name_and_by_enosys_if_none_has():
    forgotten = []
    dispatch = Dispatch(Reading(), FuseSession(lambda *what: forgotten.append(what), wanted=0))

    async def scenario():
        assert await dispatch.serve(request(Opcode.READ)) == b"read"
        assert await dispatch.serve(request(Opcode.FORGET, kernel.FORGET_IN.pack(2), node=7)) is None
        with pytest.raises(OSError) as refused:
            await dispatch.serve(request(Opcode.WRITE))
        assert refused.value.errno == errno.ENOSYS

    asyncio.run(scenario())
    assert forgotten == [(7, 2)]


def test_two_parts_do_not_answer_the_same():
    with pytest.raises(AssertionError, match="READ"):
        Dispatch(Reading(), Reading())


def test_a_greeting_takes_of_what_the_kernel_offers_only_what_is_wanted():
    wanted = kernel.ASYNC_READ | kernel.BIG_WRITES
    session = FuseSession(lambda *_: None, wanted=wanted, write_bytes=8192)

    async def greet(minor):
        body = kernel.INIT_IN.pack(kernel.MAJOR, minor, 131072, kernel.BIG_WRITES | kernel.POSIX_LOCKS)
        return kernel.INIT_OUT.unpack(await session.init(request(Opcode.INIT, body)))

    major, minor, read_ahead, taken, _, _, write_bytes, *_ = asyncio.run(greet(kernel.MINOR + 5))
    assert (major, minor, read_ahead, taken) == (kernel.MAJOR, kernel.MINOR, 131072, kernel.BIG_WRITES)
    assert write_bytes == 8192
    with pytest.raises(OSError, match="needed is 7.31") as refused:
        asyncio.run(greet(kernel.MINOR - 1))
    assert refused.value.errno == errno.EPROTO


def test_many_are_forgotten_at_once():
    forgotten = []
    body = kernel.BATCH_FORGET_IN.pack(2, 0) + kernel.FORGET_ONE.pack(7, 1) + kernel.FORGET_ONE.pack(8, 3)
    session = FuseSession(lambda *what: forgotten.append(what), wanted=0)
    assert asyncio.run(session.batch_forget(request(Opcode.BATCH_FORGET, body))) is None
    assert forgotten == [(7, 1), (8, 3)]


def names_in(answer):
    """What a piece of a listing says: [(offset to go on at, kind, name)]."""
    data, found = b"".join(answer), []
    while data:
        _, offset, size, kind = kernel.DIRENT.unpack_from(data)
        end = kernel.DIRENT.size + size
        found.append((offset, kind, data[kernel.DIRENT.size : end]))
        data = data[end + (-end & 7) :]
    return found


def test_a_directory_is_read_in_pieces_of_one_look_and_looked_at_again_from_its_beginning():
    entries = [Entry(1, stat.S_IFDIR | 0o755, b"."), Entry(2, stat.S_IFREG | 0o600, b"journal")]

    async def listed(asked):
        assert asked.node == ROOT
        return list(entries)

    async def scenario():
        directories = Directories(listed)
        handle, _, _ = kernel.OPEN_OUT.unpack(await directories.opendir(request(Opcode.OPENDIR)))

        async def read(offset, size):
            body = kernel.READ_IN.pack(handle, offset, size, 0, 0, 0, 0)
            return names_in(await directories.readdir(request(Opcode.READDIR, body)))

        assert await read(0, 40) == [(1, stat.S_IFDIR >> 12, b".")]
        entries.append(Entry(3, stat.S_IFREG, b"new"))
        assert await read(1, 4096) == [(2, stat.S_IFREG >> 12, b"journal")]
        assert await read(2, 4096) == []
        assert [name for _, _, name in await read(0, 4096)] == [b".", b"journal", b"new"]
        await directories.releasedir(request(Opcode.RELEASEDIR, kernel.RELEASE_IN.pack(handle, 0, 0, 0)))
        with pytest.raises(KeyError):
            await read(0, 4096)

    asyncio.run(scenario())


@dataclass(eq=False)
class File:
    number: int
    key: str
    lookups: int = 0
    needed: bool = False


def table():
    return NodeTable(File(ROOT, "/", lookups=1))


def test_a_number_means_the_same_file_until_the_kernel_has_forgotten_all_findings_of_it():
    nodes = table()
    first = nodes.counted("a", lambda number: File(number, "a"))
    assert nodes.counted("a", lambda number: File(number, "a")) is first
    nodes.forget(first.number, 1)
    assert nodes[first.number] is nodes.known("a") is first
    nodes.forget(first.number, 1)
    assert nodes.known("a") is None
    second = nodes.counted("a", lambda number: File(number, "a"))
    assert second.number != first.number
    nodes.forget(ROOT, 1)
    assert [node.key for node in nodes] == ["/", "a"]


def test_a_file_that_is_needed_stays_though_the_kernel_has_forgotten_it():
    nodes = table()
    file = nodes.counted("a", lambda number: File(number, "a", needed=True))
    nodes.forget(file.number, 1)
    assert nodes.known("a") is file


def test_the_key_of_an_orphan_may_lead_to_another_file_and_outlives_it():
    nodes = table()
    old = nodes.counted("a", lambda number: File(number, "a"))
    nodes.orphan(old)
    new = nodes.counted("a", lambda number: File(number, "a"))
    assert new is not old
    nodes.forget(old.number, 1)
    assert nodes.known("a") is new
