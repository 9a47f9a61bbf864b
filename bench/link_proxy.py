"""What the link proxy costs: the same traffic through it and directly, in the same minutes.

Why a baseline: loopback figures of a shared machine vary twofold from hour to hour; only the ratio
says what the proxy does. The proxy runs in a process of its own, as in a deployment; client and
server share another, so on a machine with few cores the direct figure profits from a core that the
proxy would use.

    chunks       small messages one way, as fast as they go, each written by itself (messages a
                 second)
    round trips  one message there and back at a time, many connections at once (round trips a
                 second; median milliseconds)
    bulk         large writes one way (MB a second)

    python bench/link_proxy.py [--seconds 2] [--rounds 3] [--bytes 200] [--connections 8]
"""
# ruff: noqa: D102 - the methods are asyncio's

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import uvloop  # noqa: E402 - after the path

from environments.link_proxy import LinkProxy  # noqa: E402 - after the path
from harness.interface import Address, Link  # noqa: E402 - after the path

CHUNKS_BAR = 30_000
BULK_BAR_MB_S = 1000 / 60
BULK_BYTES = 256 * 1024
WINDOW_BYTES = 1 << 20


class Sink(asyncio.Protocol):
    """Counts what arrives on one connection, and echoes it where asked."""

    def __init__(self, totals: dict[str, int]) -> None:
        self.totals = totals
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.totals["bytes"] += len(data)
        if self.totals["echo"]:
            self.transport.write(data)


class Pour(asyncio.Protocol):
    """Writes pieces of one size until told to stop, at most ``WINDOW_BYTES`` ahead of the sink."""

    def __init__(self, totals: dict[str, int], size: int) -> None:
        self.totals = totals
        self.piece = bytes(size)
        self.sent = 0
        self.running = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def go(self) -> None:
        """Write for a turn of the loop, then let the others have theirs."""
        if not self.running:
            return
        for _ in range(64):
            if self.sent - self.totals["bytes"] > WINDOW_BYTES:
                break
            self.transport.write(self.piece)
            self.sent += len(self.piece)
        asyncio.get_running_loop().call_soon(self.go)


class Ping(asyncio.Protocol):
    """Sends a message, waits for its echo, and sends the next."""

    def __init__(self, size: int, times: list[float]) -> None:
        self.piece = bytes(size)
        self.times = times
        self.got = 0
        self.begun = 0.0
        self.running = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def go(self) -> None:
        self.begun = time.perf_counter()
        self.transport.write(self.piece)

    def data_received(self, data: bytes) -> None:
        self.got += len(data)
        if self.got == len(self.piece):
            self.got = 0
            self.times.append(time.perf_counter() - self.begun)
            if self.running:
                self.go()


async def pour(address: Address, totals: dict[str, int], size: int, seconds: float) -> float:
    """Bytes a second that arrive."""
    loop = asyncio.get_running_loop()
    totals.update(bytes=0, echo=0)
    _, client = await loop.create_connection(lambda: Pour(totals, size), address.host, address.port)
    client.running = True
    client.go()
    await asyncio.sleep(0.2)  # the first pieces warm up the buffers
    before, begun = totals["bytes"], time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (totals["bytes"] - before) / (time.perf_counter() - begun)
    client.running = False
    client.transport.abort()
    return rate


async def pings(
    address: Address, totals: dict[str, int], size: int, connections: int, seconds: float
) -> tuple[float, float]:
    """Round trips a second, and the median in milliseconds."""
    loop = asyncio.get_running_loop()
    totals.update(bytes=0, echo=1)
    times: list[float] = []
    clients = [
        (await loop.create_connection(lambda: Ping(size, times), address.host, address.port))[1]
        for _ in range(connections)
    ]
    begun = time.perf_counter()
    for client in clients:
        client.running = True
        client.go()
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - begun
    count = len(times)
    for client in clients:
        client.running = False
        client.transport.abort()
    return count / elapsed, statistics.median(times) * 1000


async def measure(options: argparse.Namespace) -> None:
    totals = {"bytes": 0, "echo": 0}
    server = await asyncio.get_running_loop().create_server(lambda: Sink(totals), "127.0.0.1", 0)
    direct = Address(*server.sockets[0].getsockname())
    proxy = subprocess.Popen(  # noqa: ASYNC220 - a fork, not a wait
        [sys.executable, __file__, "--proxy", str(direct.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert proxy.stdout is not None
    try:
        proxied = Address("127.0.0.1", int(proxy.stdout.readline()))
        results: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for way, address in (("direct", direct), ("proxy", proxied)):
                found = {
                    "chunks": await pour(address, totals, options.bytes, options.seconds) / options.bytes,
                    "bulk": await pour(address, totals, BULK_BYTES, options.seconds) / 1e6,
                }
                found["round trips"], found["round trip ms"] = await pings(
                    address, totals, options.bytes, options.connections, options.seconds
                )
                for name, value in found.items():
                    results.setdefault((name, way), []).append(value)
    finally:
        proxy.kill()
        proxy.wait()
        server.close()
    print(
        f"{os.cpu_count()} cores, {options.rounds} rounds of {options.seconds} s, median; chunks of "
        f"{options.bytes} bytes"
    )
    print(f"{'':14} {'direct':>12} {'proxy':>12} {'ratio':>7}  bar")
    bars = {"chunks": f"{CHUNKS_BAR:,} /s", "bulk": f"{BULK_BAR_MB_S:,.0f} MB/s"}
    for name in ("chunks", "round trips", "round trip ms", "bulk"):
        plain, through = (statistics.median(results[name, way]) for way in ("direct", "proxy"))
        form = ".3f" if name.endswith("ms") else ",.0f"
        print(
            f"{name:14} {plain:>12{form}} {through:>12{form}} {through / plain:>7.2f}  {bars.get(name, '')}"
        )


async def serve(port: int) -> None:
    """The proxy's own process: ends with its parent."""
    proxy = LinkProxy()
    address = await proxy.add_route(Link("c1", "a1"), Address("127.0.0.1", port))
    print(address.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--proxy", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    uvloop.run(serve(options.proxy) if options.proxy else measure(options))


if __name__ == "__main__":
    main()
