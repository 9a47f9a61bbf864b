"""A broker is not started before its directory is mounted, and a server that does not answer is
told from one that does.
"""

import asyncio
import os
import socket
import struct
import subprocess
import sys

import pytest

from filesystems.nfs import asking
from filesystems.nfs.await_mount import EXIT_USAGE, mounted

PLAIN = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
FUSE = "90 22 0:50 / /jepsen-run/store rw,nosuid - fuse.nfs4 10.0.0.2:2049/store rw,user_id=0\n"
KERNEL = "91 22 0:51 / /jepsen-run/store rw,relatime shared:7 - nfs4 10.0.0.2:/store rw,vers=4.0\n"
OVER = "92 22 0:52 / /jepsen-run/store rw - tmpfs tmpfs rw\n"
UMLAUT = "94 22 0:54 / /jürgen rw - fuse.nfs4 10.0.0.2:2049/store rw\n"
ODD = "95 22 0:55 / /\udcff\\040\u2028\x0b-\\134\\040 rw - fuse.nfs4 10.0.0.2:2049/store rw\n"
"""A place that is no UTF-8, and has what other texts end a line or a word with."""
SPACE = "93 22 0:53 / /jepsen\\040run/store rw - fuse.nfs4 10.0.0.2:2049/store rw\n"


@pytest.mark.parametrize(
    ("mounts", "directory", "answer"),
    [
        (PLAIN, "/jepsen-run/store", False),
        (PLAIN + FUSE, "/jepsen-run/store", True),
        (PLAIN + KERNEL, "/jepsen-run/store", True),
        (PLAIN + FUSE, "/jepsen-run", False),
        (PLAIN + FUSE + OVER, "/jepsen-run/store", False),
        (PLAIN + SPACE, "/jepsen run/store", True),
        (PLAIN + UMLAUT, "/jürgen", True),
        (PLAIN + ODD + FUSE, "/jepsen-run/store", True),
        (PLAIN + ODD, "/\udcff \u2028\x0b-\\ ", True),
    ],
)
def test_only_nfs_on_the_very_directory_counts_and_the_last_mount_hides_the_others(mounts, directory, answer):
    assert mounted(directory, os.fsencode(mounts)) is answer


def test_without_a_program_it_says_how_it_is_used():
    command = [sys.executable, "-m", "filesystems.nfs.await_mount", "/somewhere"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (EXIT_USAGE, "")
    assert run.stderr == "usage: await_mount DIRECTORY PROGRAM ARGUMENTS...\n"


def answered(reply, patience_s=30.0):
    """What the asker makes of a server that sends back what ``reply`` makes of its call."""

    async def main():
        async def serve(reader, writer):
            call = await reader.readexactly(44)
            mark, xid, kind, version, program, nfs, procedure = struct.unpack(">7I", call[:28])
            assert (mark, kind, version, program, nfs, procedure) == (0x80000028, 0, 2, 100003, 4, 0)
            writer.write(reply(xid))
            await writer.drain()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await asking.ask("127.0.0.1", server.sockets[0].getsockname()[1], patience_s)

    return asyncio.run(main())


def test_an_answer_to_this_very_question_is_an_answer():
    assert answered(lambda xid: struct.pack(">6I", 0x80000014, xid, 1, 0, 0, 0)) == asking.ANSWERS
    assert answered(lambda xid: struct.pack(">3I", 0x80000014, xid ^ 1, 1)) == asking.SILENT
    assert answered(lambda _: b"", patience_s=0.2) == asking.SILENT


def test_nobody_there_is_silence():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert asyncio.run(asking.ask("127.0.0.1", unused.getsockname()[1], 30.0)) == asking.SILENT
