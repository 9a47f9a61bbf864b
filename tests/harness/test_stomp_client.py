"""The STOMP client for looking."""

import asyncio
import contextlib

import pytest

from harness.interface import Address, Dialect
from harness.systems.stomp_client import StompClient


def test_a_server_that_never_answers_is_let_go_of():
    async def test():
        gone = asyncio.Event()

        async def silent(reader, writer):
            with contextlib.suppress(ConnectionResetError):
                while await reader.read(1000):
                    pass
            gone.set()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        at = Address(*server.sockets[0].getsockname())
        async with server:
            with pytest.raises(TimeoutError):
                await StompClient.open(at, Dialect(), 0.1)
            async with asyncio.timeout(5):
                await gone.wait()

    asyncio.run(test())
