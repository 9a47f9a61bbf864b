"""Every request gets exactly one answer, whatever becomes of it.

The kernel is played by a socket that keeps messages apart.
"""

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys

from filesystems.fuse import kernel
from filesystems.fuse.connection import FuseConnection
from filesystems.fuse.kernel import Opcode


class Kernel:
    """The other end of /dev/fuse."""

    def __init__(self):
        self._socket, self.device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)

    def ask(self, opcode, unique, body=b"", pid=0):
        size = kernel.IN_HEADER.size + len(body)
        self._socket.send(
            kernel.IN_HEADER.pack(size, opcode, unique, 1, 0, 0, pid or os.getpid(), 0, 0) + body
        )

    def interrupt(self, unique):
        self.ask(Opcode.INTERRUPT, 1_000_000 + unique, kernel.INTERRUPT_IN.pack(unique))

    async def answer(self):
        """(unique, error, body)"""
        data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        _, error, unique = kernel.OUT_HEADER.unpack_from(data)
        return unique, -error, data[kernel.OUT_HEADER.size :]


@contextlib.asynccontextmanager
async def served(serve, *, interruptible=True):
    here = Kernel()
    told = []
    connection = FuseConnection(here.device.detach(), serve, told.append, interruptible=interruptible)
    try:
        yield here, connection, told
    finally:
        connection.stop()
        connection.close()


async def forever(request):
    await asyncio.Event().wait()


def test_a_request_that_is_withdrawn_before_it_began_is_answered():
    async def scenario():
        async with served(forever) as (here, _, _):
            here.ask(Opcode.SETLKW, 7)
            here.interrupt(7)  # both are read before the first has had its turn
            assert await here.answer() == (7, errno.EINTR, b"")

    asyncio.run(scenario())


def test_a_request_is_not_withdrawn_by_a_signal_unless_the_mount_says_so_or_its_process_is_gone():
    async def scenario():
        async with served(forever, interruptible=False) as (here, _, _):
            waiting = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            here.ask(Opcode.SETLKW, 7, pid=waiting.pid)
            here.ask(Opcode.STATFS, 8, pid=os.getpid())
            here.interrupt(8)
            here.interrupt(7)
            waiting.kill()
            waiting.wait()
            assert await here.answer() == (7, errno.EINTR, b"")  # and 8 still waits

    asyncio.run(scenario())


def test_what_a_killed_process_lets_go_of_is_let_go_of():
    async def scenario():
        done = asyncio.Event()

        async def slowly(request):
            await done.wait()
            return b""

        async with served(slowly) as (here, _, _):
            here.ask(Opcode.FLUSH, 7)
            here.interrupt(7)
            asyncio.get_running_loop().call_later(0.05, done.set)
            assert await here.answer() == (7, 0, b"")

    asyncio.run(scenario())


def test_errors_are_answered_by_their_number_and_our_own_mistakes_as_eio_and_told():
    async def scenario():
        async def fails(request):
            raise OSError(errno.ENOSPC, "full") if request.unique == 1 else ValueError("a mistake")

        async with served(fails) as (here, _, told):
            here.ask(Opcode.WRITE, 1)
            assert await here.answer() == (1, errno.ENOSPC, b"")
            assert told == []
            here.ask(Opcode.WRITE, 2)
            assert await here.answer() == (2, errno.EIO, b"")
            assert "a mistake" in told[0]
            here.ask(999, 3)
            assert await here.answer() == (3, errno.ENOSYS, b"")

    asyncio.run(scenario())


def test_requests_that_want_no_answer_get_none_and_others_overtake_those_that_wait():
    async def scenario():
        async def serve(request):
            if request.opcode == Opcode.SETLKW:
                await forever(request)
            return None if request.opcode == Opcode.FORGET else request.body

        async with served(serve) as (here, connection, _):
            here.ask(Opcode.SETLKW, 1)
            here.ask(Opcode.FORGET, 2)
            here.ask(Opcode.READ, 3, b"body")
            assert await here.answer() == (3, 0, b"body")
            connection.stop()
            assert await here.answer() == (1, errno.EINTR, b"")
            assert connection.ended.done()

    asyncio.run(scenario())
