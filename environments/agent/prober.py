"""Proof of what crosses the network between two machines, and so of whether a fault took effect.

Two ways are needed, because neither says all. A TCP connection with an echo shows what a broker's
peer would see, but needs both directions. A datagram crosses one direction only, so it tells which
of the two is broken. Both ends read their monotonic clocks, so a datagram also tells how slow its
direction is, if the difference of these clocks is known (`clock`; containers share their kernel's).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from environments.agent.control import PROBE_PORT

DATAGRAMS: Final = 5
"""The number of datagrams of each probe, sent some milliseconds apart.

If even the fastest of them is slow, the reason is not a machine that was busy for a moment.
"""

DATAGRAM_GAP_S: Final = 0.01
_BEFORE: Final = 4 * (bytes(1200),)
"""Datagrams sent ahead of each one: with them, a rate of up to 480 kB/s shows as a delay."""

ARRIVALS_MAX: Final = 8192


def clock() -> str:
    """Return which monotonic clock is read here: of which boot, in which time namespace."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path(os.path.realpath('/proc/self/ns/time')).name}"
    return ""


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Arrivals(asyncio.DatagramProtocol):
    """The datagrams that arrived, "<nonce> <sent, monotonic ns>", as counts and shortest times."""

    def __init__(self) -> None:
        self.delay_ns: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:  # noqa: ARG002 - asyncio's signature
        now = time.monotonic_ns()
        with contextlib.suppress(ValueError):  # a stranger's datagram
            nonce, sent = data.decode("ascii").split(" ")
            delay = now - int(sent)
            self.delay_ns[nonce] = min(delay, self.delay_ns.get(nonce, delay))
            self.counts[nonce] = self.counts.get(nonce, 0) + 1
            if len(self.delay_ns) > ARRIVALS_MAX:
                oldest = next(iter(self.delay_ns))
                del self.delay_ns[oldest], self.counts[oldest]


class Prober:
    """Both ends of every probe of this node: it sends probes, and answers those of other nodes."""

    def __init__(self) -> None:
        self._arrivals = _Arrivals()
        self._server: asyncio.Server | None = None
        self._datagrams: asyncio.DatagramTransport | None = None

    async def listen(self, host: str = "0.0.0.0", port: int = PROBE_PORT) -> None:
        """Answer the probes of other nodes. Raises OSError if the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(_Echo, host, port)
        self._datagrams, _ = await loop.create_datagram_endpoint(
            lambda: self._arrivals, local_addr=(host, port)
        )

    def arrived(self, nonces: list[str]) -> dict[str, tuple[float, int] | None]:
        """Return how long the fastest datagram took, and how many arrived, for each nonce.

        The time is in milliseconds by the clocks of both ends. None: no datagram arrived.
        """
        found = {nonce: self._arrivals.delay_ns.get(nonce) for nonce in nonces}
        return {
            nonce: None if delay is None else (delay / 1e6, self._arrivals.counts[nonce])
            for nonce, delay in found.items()
        }

    async def probe(
        self, targets: Mapping[str, str], timeout_s: float, port: int = PROBE_PORT
    ) -> dict[str, dict[str, Any]]:
        """Try each target (name -> address) at the same time, within ``timeout_s`` seconds.

        Each answer has ``connection`` ("open", "refused", "silent": connected but no echo, "lost")
        and the ``nonce`` to ask the target's own `arrived` for.
        """
        async with asyncio.TaskGroup() as group:
            tasks = {
                name: group.create_task(self._probe_one(address, port, timeout_s))
                for name, address in targets.items()
            }
        return {name: task.result() for name, task in tasks.items()}

    async def _probe_one(self, address: str, port: int, timeout_s: float) -> dict[str, Any]:
        nonce = os.urandom(8).hex()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_datagrams(address, port, nonce))
            connection = group.create_task(_try_connection(address, port, timeout_s))
        return {"connection": connection.result(), "nonce": nonce}

    async def _send_datagrams(self, address: str, port: int, nonce: str) -> None:
        assert self._datagrams is not None
        for _ in range(DATAGRAMS):
            for data in (*_BEFORE, f"{nonce} {time.monotonic_ns()}".encode()):
                self._datagrams.sendto(data, (address, port))
            await asyncio.sleep(DATAGRAM_GAP_S)


async def _try_connection(address: str, port: int, timeout_s: float) -> str:
    loop = asyncio.get_running_loop()
    connected = False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(sock, (address, port))
                connected = True
                await loop.sock_sendall(sock, b"?")
                if await loop.sock_recv(sock, 1):
                    return "open"
        except TimeoutError:
            # ETIMEDOUT of the kernel is a TimeoutError as well.
            return "silent" if connected else "lost"
        except ConnectionError:
            return "refused"
        except OSError:  # no route to the host: its container is down
            return "lost"
        return "refused"
