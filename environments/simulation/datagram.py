"""Datagrams: each arrives whole, late, twice, or not at all, and its sender is not told.

A socket that is bound to a multicast address hears what is sent to that address, and nothing else,
as on Linux. A socket that is bound to its machine hears everything that is sent to its port.
"""

from __future__ import annotations

import asyncio
import errno
import os
from asyncio import events
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from environments.simulation.trace import DATAGRAM, Trace

if TYPE_CHECKING:
    from environments.simulation.loop import NodeLoop
    from environments.simulation.network import Network
    from environments.simulation.scheduler import Scheduler

RECEIVE_BUFFER_BYTES: Final = 208 * 1024
"""The size of a receive buffer, Linux' default; datagrams that do not fit are lost."""

DATAGRAM_BYTES_MAX: Final = 65507


def is_broadcast(host: str) -> bool:
    """Return whether a datagram goes to all: ``host`` is the broadcast or a multicast address."""
    return host in ("255.255.255.255", "<broadcast>") or is_multicast(host)


def is_multicast(host: str) -> bool:
    """Return whether a host is a multicast address, of class D."""
    first = host.partition(".")[0]
    return first.isascii() and first.isdigit() and 224 <= int(first) <= 239


async def open_multicast(
    protocol: Callable[[], asyncio.DatagramProtocol],
    group: tuple[str, int],
    bind: tuple[str, int],
    *,
    listens: bool,
) -> asyncio.DatagramTransport:
    """Open a multicast socket on the running simulated loop, for a broker's ``Seams``.

    A simulated machine has one network interface, so only the port of ``bind`` counts.
    """
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        protocol, local_addr=group if listens else ("0.0.0.0", bind[1])
    )
    return transport


class DatagramNetwork:
    """The bound sockets of a world.

    Several sockets of one machine may share a port for what is sent to everyone, as with
    SO_REUSEPORT.
    """

    def __init__(self, network: Network, scheduler: Scheduler, trace: Trace) -> None:
        self._network = network
        self._scheduler = scheduler
        self._trace = trace
        self._bound: dict[DatagramTransport, None] = {}

    def bind(
        self,
        loop: NodeLoop,
        factory: Callable[[], asyncio.DatagramProtocol],
        local: tuple[str, int] | None,
        remote: tuple[str, int] | None,
    ) -> tuple[DatagramTransport, asyncio.DatagramProtocol]:
        """Make a new socket with its protocol."""
        group = local[0] if local is not None and is_multicast(local[0]) else None
        port = (local[1] if local is not None else 0) or self._network.free_port()
        protocol = factory()
        transport = DatagramTransport(loop, self, protocol, port, remote, group)
        self._bound[transport] = None
        loop.call_soon(protocol.connection_made, transport)
        return transport, protocol

    def unbind(self, transport: DatagramTransport) -> None:
        """Remove a socket: nothing arrives there any more."""
        self._bound.pop(transport, None)

    def process_ended(self, loop: NodeLoop) -> None:
        """Remove the sockets of a process."""
        for transport in [transport for transport in self._bound if transport.process is loop]:
            self.unbind(transport)

    def end(self) -> None:
        """Remove all sockets: nothing will arrive any more."""
        self._bound.clear()

    def send(self, sender: DatagramTransport, data: bytes, address: tuple[str, int]) -> None:
        """Send a datagram to one machine or to all."""
        host, port = address[0], address[1]
        if is_broadcast(host):
            nodes = list(dict.fromkeys(other.process.node for other in self._bound if other.hears(address)))
            source = sender.process.node
            ends = [(source, node) for node in nodes]
        else:
            ends = [self._network.ends(sender.process, host)]
        for source, node in ends:
            name = (source, sender.port)
            for arrival in self._network.way(source, node).datagram_arrivals_ns(len(data)):
                self._scheduler.at(arrival, partial(self.arrive, node, (host, port), data, name))

    def arrive(self, node: str, address: tuple[str, int], data: bytes, name: tuple[str, int]) -> None:
        """Put a datagram into the buffers of the sockets that are bound there now."""
        port = address[1]
        self._trace.record(
            self._scheduler.now_ns, f"{node}:{port}", DATAGRAM, f"from {name[0]}:{name[1]}", data
        )
        for transport in [each for each in self._bound if each.process.node == node and each.hears(address)]:
            transport.arrive(data, name)


class DatagramTransport(asyncio.DatagramTransport):
    """A bound socket."""

    def __init__(
        self,
        loop: NodeLoop,
        network: DatagramNetwork,
        protocol: asyncio.DatagramProtocol,
        port: int,
        remote: tuple[str, int] | None,
        group: str | None,
    ) -> None:
        super().__init__({"sockname": (loop.node, port), "peername": remote})
        self.process = loop
        self.port = port
        self._group = group
        self._network = network
        self._protocol = protocol
        self._remote = remote
        self._arrived: deque[tuple[bytes, tuple[str, int]]] = deque()
        self._arrived_bytes = 0
        self._closing = False
        self._read_planned = False
        self._read_handle = events.Handle(self._read, (), loop)

    def hears(self, address: tuple[str, int]) -> bool:
        """Return whether the socket gets what is sent to this address of its machine."""
        return address[1] == self.port and self._group in (None, address[0])

    def arrive(self, data: bytes, name: tuple[str, int]) -> None:
        """Take a datagram into the kernel's buffer, if it fits."""
        if self._arrived_bytes + len(data) > RECEIVE_BUFFER_BYTES:
            return
        self._arrived.append((data, name))
        self._arrived_bytes += len(data)
        self._wake()

    def _wake(self) -> None:
        if not self._read_planned:
            self._read_planned = True
            self.process.put(self._read_handle)

    def _read(self) -> None:
        """Deliver one datagram a round, as asyncio does."""
        self._read_planned = False
        if self._closing or not self._arrived:
            return
        data, name = self._arrived.popleft()
        self._arrived_bytes -= len(data)
        self._protocol.datagram_received(data, name)
        if self._arrived:
            self._wake()

    def sendto(self, data: bytes | bytearray | memoryview, addr: Any = None) -> None:
        """Send a datagram; success says nothing."""
        if self._closing:
            return
        if self._remote is not None and addr not in (None, self._remote):
            raise ValueError(f"Invalid address: must be None or {self._remote}")
        address = addr if addr is not None else self._remote
        if address is None:
            raise ValueError("sendto needs an address: the endpoint was made without a remote one")
        if len(data) > DATAGRAM_BYTES_MAX:
            self._protocol.error_received(OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE)))
            return
        self._network.send(self, bytes(data), address)

    def is_closing(self) -> bool:
        """Return whether the socket is closed."""
        return self._closing

    def close(self) -> None:
        """Close the socket: it receives nothing more."""
        if not self._closing:
            self._closing = True
            self._network.unbind(self)
            self.process.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        """Close the socket as `close` does: nothing is ever kept back."""
        self.close()
