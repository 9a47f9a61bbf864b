"""A system under test that is only a pair of echo servers, and what tests of environments need
around it.
"""

import asyncio
import contextlib
import json
import time
from pathlib import Path

from harness.interface import NodePlan, TestSpec

PATIENCE_S = 90.0
"""Bounds every wait of a test; reached only when the test fails."""

SPEC = TestSpec(name="echo")
SCRIPT = Path(__file__).with_name("echo_broker.py")


def node(name):
    return NodePlan(
        name=name, pair=name[0], configured="master", ports={"stomp": 61613, "cluster": 61616, "admin": 8161}
    )


NODES = (node("a1"), node("b1"))


class EchoSystem:
    """`harness.interface.System` as far as an environment uses it.

    ``argv`` replaces the command.
    """

    name = "echo"

    def __init__(self, argv=None):
        self.argv = argv
        self.hosts = {}

    def files(self, spec, node, nodes, layout, listen, hosts):
        self.hosts[node.name] = hosts
        settings = {
            "name": node.name,
            "configured": node.configured,
            "data": layout.data,
            "listen": {port: [address.host, address.port] for port, address in listen.items()},
        }
        return {"echo.json": json.dumps(settings).encode(), "deep/er.txt": b"nested"}

    def command(self, layout):
        return self.argv or ["python", str(SCRIPT), layout.etc]


async def until(condition, what, patience_s=PATIENCE_S):
    """Wait for a condition (a function, async or not) and return its first true value."""
    deadline = time.monotonic() + patience_s
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        await asyncio.sleep(0.02)


async def connect(address):
    return await asyncio.wait_for(asyncio.open_connection(address.host, address.port), PATIENCE_S)


async def receive(reader, count):
    return await asyncio.wait_for(reader.readexactly(count), PATIENCE_S)


async def echo(address, data=b"ping"):
    """Connect, send and get back; retries while the server is still starting."""

    async def once():
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            reader, writer = await connect(address)
            try:
                if (
                    writer.is_closing()
                ):  # a proxy whose broker refused; uvloop's transport cannot be written to then
                    return False
                writer.write(data)
                return await receive(reader, len(data)) == data
            finally:
                writer.transport.abort()
        return False

    await until(once, f"an echo from {address}")
