"""What a round trip over the simulated network costs.

Beside the same ping-pong on a stock event loop over loopback sockets.

Two nodes of a `World` send a line to and fro: once with bare protocols, once with asyncio's
streams. The baseline does the same with a stock selector loop in this process, in turns with ours,
so that both meet the same machine. Figures are processor time per round trip, the median of the
rounds: a simulation never waits, and a busy machine must not be charged to either.

    python bench/simulation_network.py [round trips] [rounds]
"""
# ruff: noqa: D102 - the methods are asyncio's

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from time import process_time  # under this name, because the world's guards let no one look at a clock

from environments.simulation import World

LINE = b"a line of a size that frames have, without saying much: " + b"x" * 70 + b"\n"
PORT = 61613


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


class Pinger(asyncio.Protocol):
    """Sends a line whenever the last one has come back."""

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.left = count
        self.missing = 0
        self.done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.missing = len(LINE)
        self.transport.write(LINE)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing:
            return
        self.left -= 1
        if self.left:
            self.send()
        elif not self.done.done():
            self.done.set_result(None)


async def serve_protocols(host: str) -> asyncio.AbstractServer:
    return await asyncio.get_running_loop().create_server(Echo, host, PORT)


async def serve_streams(host: str) -> asyncio.AbstractServer:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    return await asyncio.start_server(serve, host, PORT)


async def ping_protocols(host: str, count: int) -> float:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    began = process_time()
    transport, _ = await loop.create_connection(lambda: Pinger(count, done), host, PORT)
    await done
    spent = process_time() - began
    transport.close()
    return spent


async def ping_streams(host: str, count: int) -> float:
    reader, writer = await asyncio.open_connection(host, PORT)
    began = process_time()
    for _ in range(count):
        writer.write(LINE)
        await reader.readline()
    spent = process_time() - began
    writer.write_eof()
    await reader.read()  # the other side has closed: nothing is left to be cancelled
    writer.close()
    return spent


def in_world(serve: Callable, ping: Callable, count: int) -> tuple[float, float]:  # type: ignore[type-arg]
    """(seconds, virtual seconds) of a run between two nodes."""
    world = World("bench")

    async def node() -> None:
        await serve("a1")
        await asyncio.Event().wait()

    async def main() -> float:
        world.spawn("a1", node)
        await asyncio.sleep(0.1)
        spent: float = await ping("a1", count)
        return spent

    return world.run(main), world.now_ns / 1e9


def on_sockets(serve: Callable, ping: Callable, count: int) -> float:  # type: ignore[type-arg]
    """Seconds of the same on a stock loop."""

    async def main() -> float:
        server = await serve("127.0.0.1")
        try:
            spent: float = await ping("127.0.0.1", count)
        finally:
            server.close()
            await server.wait_closed()
        return spent

    return asyncio.run(main())


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    print(f"{rounds} rounds of {count} round trips of {len(LINE)} bytes, Python {sys.version.split()[0]}")
    for name, serve, ping in (
        ("protocols", serve_protocols, ping_protocols),
        ("streams", serve_streams, ping_streams),
    ):
        simulated, virtual, sockets = [], [], []
        for _ in range(rounds):
            began = time.monotonic()
            spent, virtual_s = in_world(serve, ping, count)
            virtual.append(virtual_s / (time.monotonic() - began))
            simulated.append(spent / count * 1e6)
            sockets.append(on_sockets(serve, ping, count) / count * 1e6)
        print(
            f"{name:10} simulated {statistics.median(simulated):6.1f} us a round trip (least "
            f"{min(simulated):.1f}), "
            f"stock loop over loopback {statistics.median(sockets):6.1f} us (least {min(sockets):.1f}); "
            f"{statistics.median(virtual):.0f} virtual seconds a second of ceaseless ping-pong"
        )


if __name__ == "__main__":
    main()
