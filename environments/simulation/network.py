"""The network of a world.

It knows who listens where, which links there are, and how a connection attempt ends.

A host is named by its node: ``a1``. A node may also speak in another's name: the host ``a1@zone1``
is ``a1`` reached over the links ``zone1->a1`` and ``a1->zone1`` (see `via`). So the clients of all
zones live on one node, and each zone has links of its own to cut. Loopback names (``localhost``,
``127.0.0.1``) are the node itself. Every name is a machine that is switched on, whether a process
runs there or not.

An attempt to connect ends as with Linux. At a node that does not listen, it ends in
ConnectionRefusedError after a round trip. Over a cut link, it ends when it is cancelled or after
127 s (TimeoutError). At a paused process, it ends in a connection, since kernels accept for their
processes.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from environments.link_condition import LinkCondition
from environments.simulation.datagram import DatagramNetwork
from environments.simulation.link import Way
from environments.simulation.listener import Listener
from environments.simulation.pipe import PATIENCE_NS, ControlSegment, SimulatedPipe
from environments.simulation.stream import SimulatedConnection, StreamTransport
from harness.interface import Link

if TYPE_CHECKING:
    import random

    from environments.simulation.loop import NodeLoop
    from environments.simulation.scheduler import Scheduler
    from environments.simulation.trace import Trace

CONNECT_PATIENCE_S: Final = 127.0
"""The time after which Linux gives up: six retransmissions of the SYN."""

FIRST_FREE_PORT: Final = 32768

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "")


class Network:
    """All links, listeners and sockets of a world."""

    def __init__(self, scheduler: Scheduler, trace: Trace, chance: random.Random) -> None:
        self._scheduler = scheduler
        self._trace = trace
        self._chance = chance
        self._ways: dict[tuple[str, str], Way] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._sockets: dict[StreamTransport, None] = {}
        self._off: set[str] = set()
        self._unanswered: dict[StreamTransport | _Door, int] = {}
        self._next_port = FIRST_FREE_PORT
        self.datagrams = DatagramNetwork(self, scheduler, trace)

    # ---------------------------------------------------------------------------------------- links

    @staticmethod
    def via(source: str, node: str) -> str:
        """Return the host name, "a1@zone1", for reaching ``node`` in the name of ``source``."""
        return f"{node}@{source}"

    def apply(self, link: Link, condition: LinkCondition) -> None:
        """Put a link into a condition, which replaces the former: combine all that is in force."""
        self._trace.record(self._scheduler.now_ns, link.source, "link", f"->{link.target} {condition}")
        self.way(link.source, link.target).apply(condition)

    def condition(self, link: Link) -> LinkCondition:
        """Return the condition of a link."""
        return self.way(link.source, link.target).condition

    def way(self, source: str, target: str) -> Way:
        """Return the directed way between two names; it is made when first used."""
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = Way(Link(source, target), self._scheduler, self._chance)
        return way

    def ends(self, loop: NodeLoop, host: str) -> tuple[str, str]:
        """Return (name of the source, node) of a connection from the loop's node to ``host``."""
        node, at, source = host.partition("@")
        if node in LOOPBACK:
            node = loop.node
        return (source if at else loop.node), node

    # -------------------------------------------------------------------------------------- streams

    async def connect(
        self, loop: NodeLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[StreamTransport, asyncio.BaseProtocol]:
        """Connect to a port of a host, for ``loop.create_connection``."""
        source, node = self.ends(loop, host)
        own, there = (source, self.free_port()), (node, port)
        forward, backward = self.way(source, node), self.way(node, source)
        out = self._pipe(forward, backward, f"from {own[0]}:{own[1]}", f"{node}:{port}")
        back = self._pipe(backward, forward, f"from {node}:{port}", f"{own[0]}:{own[1]}")
        connection = SimulatedConnection(out, back)
        client = connection.client = StreamTransport(loop, connection, out, back, (own, there))
        client.established = loop.create_future()
        out.deliver = _Door(self, connection, own, there).arrive
        out.send(ControlSegment.SYN)
        timer = loop.call_later(CONNECT_PATIENCE_S, client.time_out)
        try:
            await client.established
        except BaseException:
            client.close_socket()
            connection.end()
            raise
        finally:
            timer.cancel()
        protocol = factory()
        client.start(protocol)
        await loop.turn()
        return client, protocol

    def _pipe(self, way: Way, back: Way, name: str, node: str) -> SimulatedPipe:
        return SimulatedPipe(way, back, name, node, self._scheduler, self._trace, self._chance)

    def listen(
        self, loop: NodeLoop, factory: Callable[[], asyncio.BaseProtocol], host: Any, port: int
    ) -> Listener:
        """Make a listener, for ``loop.create_server``; it accepts once it serves.

        Raises OSError (EADDRINUSE, EADDRNOTAVAIL) as the kernel would.
        """
        for name in [host] if isinstance(host, str) or host is None else host:
            if name is not None and name not in LOOPBACK and name != loop.node:
                raise OSError(
                    errno.EADDRNOTAVAIL,
                    f"{os.strerror(errno.EADDRNOTAVAIL)}: {name!r} is not {loop.node}",
                    name,
                )
        port = port or self.free_port()
        if (loop.node, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {loop.node}:{port}")
        listener = self._listeners[loop.node, port] = Listener(loop, factory, port)
        return listener

    def unlisten(self, listener: Listener) -> None:
        """Free the port of a listener."""
        self._listeners.pop((listener.node, listener.port), None)

    def listener(self, node: str, port: int) -> Listener | None:
        """Return the listener that accepts at a port; None if there is none."""
        found = self._listeners.get((node, port))
        return found if found is not None and found.is_serving() else None

    def free_port(self) -> int:
        """Return a port never used before in this world, until all have been."""
        self._next_port = self._next_port + 1 if self._next_port < 65535 else FIRST_FREE_PORT
        return self._next_port

    # ------------------------------------------------------------------------- sockets and machines

    def opened(self, socket: StreamTransport) -> None:
        """Add a socket that dies with its process."""
        self._sockets[socket] = None

    def closed(self, socket: StreamTransport) -> None:
        """Remove a socket that does not belong to its process any more."""
        self._sockets.pop(socket, None)

    def answers(self, node: str) -> bool:
        """Return whether the machine is on: its kernel resets connections that it does not know."""
        return node not in self._off

    def unanswered(self, socket: StreamTransport | _Door) -> None:
        """Note that something arrived at a machine that is off; it is sent again for a while."""
        if socket not in self._unanswered:
            since_ns = self._unanswered[socket] = self._scheduler.now_ns
            self._scheduler.at(since_ns + PATIENCE_NS, functools.partial(self._give_up, socket, since_ns))

    def _give_up(self, socket: StreamTransport | _Door, since_ns: int) -> None:
        if self._unanswered.get(socket) == since_ns:
            del self._unanswered[socket]
            socket.never_answered()

    def process_ended(self, loop: NodeLoop, *, power_lost: bool) -> None:
        """Close what a process had open, oldest first; a machine without power says nothing."""
        if power_lost:
            self._off.add(loop.node)
        for key, listener in list(self._listeners.items()):
            if listener.get_loop() is loop:
                listener.stop()
                del self._listeners[key]
        for socket in [socket for socket in self._sockets if socket.process is loop]:
            if power_lost:
                socket.vanish()
            else:
                socket.close_socket()
            socket.abandon()
        self.datagrams.process_ended(loop)

    def machine_started(self, node: str) -> None:
        """Let the machine's kernel answer again; it knows nothing of connections from before."""
        self._off.discard(node)
        for socket in [socket for socket in self._unanswered if socket.node == node]:
            del self._unanswered[socket]
            self._scheduler.at(self._scheduler.now_ns + int(self._chance.random() * 1e9), socket.tried_again)

    def end(self) -> None:
        """Drop everything: nothing will arrive any more."""
        for socket in self._sockets:
            socket.abandon()
        self._ways.clear()
        self._listeners.clear()
        self._sockets.clear()
        self._unanswered.clear()
        self.datagrams.end()


class _Door:
    """The arrival of a connection attempt: the kernel of the target looks for a listener."""

    def __init__(
        self,
        network: Network,
        connection: SimulatedConnection,
        client: tuple[str, int],
        server: tuple[str, int],
    ) -> None:
        self._network = network
        self._connection = connection
        self._names = (server, client)

    @property
    def node(self) -> str:
        """The node at which the attempt arrives."""
        return self._names[0][0]

    def never_answered(self) -> None:
        """Do nothing: the attempt was given up long before."""

    def tried_again(self) -> None:
        """Let the SYN arrive now that the machine is on; if it was given up, its end follows."""
        self.arrive(ControlSegment.SYN)

    def arrive(self, item: bytes | ControlSegment) -> None:
        """Take a SYN, or the end of an attempt that was given up before it was answered."""
        connection, network = self._connection, self._network
        if item is not ControlSegment.SYN:
            connection.end()
            return
        if not network.answers(self.node):
            network.unanswered(self)
            return
        forward, backward = connection.forward, connection.backward
        if forward.way.condition.reset or backward.way.condition.reset:
            backward.send(ControlSegment.RST)
            return
        listener = network.listener(*self._names[0])
        if listener is None:
            backward.send(ControlSegment.REFUSED)
            return
        connection.server = StreamTransport(listener.get_loop(), connection, backward, forward, self._names)
        backward.send(ControlSegment.SYN_ACK)
        listener.accept(connection.server)
