"""A proxy in user space that stands for the network between brokers and clients.

Why a proxy: with it, breaking the network needs no root.

Each (source, target, port) triple has a listener of its own. So the proxy knows from the port that
a connection reached who speaks to whom. Bytes from source to target obey the directed link
``source->target``, replies obey ``target->source``.

What a link can do to the bytes, in any combination (`LinkCondition`):

cut
    Bytes and closes are held and come later, in order: what TCP's retransmission makes of a
    partition that heals. The proxy stops reading, so that memory stays bounded and the sender feels
    back pressure. A new connection is accepted by the kernel, but reaches the target only when
    neither direction is cut (a TCP handshake needs both), and never if its client has given up by
    then.
reset
    Every connection that uses the link, either way, gets a RST; new ones are refused (nobody
    listens).
slow
    Bytes arrive ``delay_ms`` to ``delay_ms + jitter_ms`` later, in order, and no faster than
    ``rate_bytes_s`` over the whole link.

A TCP proxy, by its nature, cannot lose, duplicate or reorder packets, and cannot delay the
handshake. It cannot starve the open direction of a one-way cut either (real TCP stops that
direction after a window, because its acknowledgements are lost, too). A connection whose target
does not listen is accepted, then reset. A ``faithful`` route refuses it, as a network does, a tenth
of a second late at most. Bytes handed to the target's side before a cut, at most a socket buffer
and 64 KiB, still arrive.

While a link is clear, nothing is copied or queued: what is read is written to the other side in the
same call.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from environments.link_condition import LinkCondition
from environments.link_pipe import End, Line, Pipe, set_reset_on_close
from harness.interface import Address, InfrastructureError, Link

BACKLOG: Final = 512

RESERVE_ATTEMPTS: Final = 100

LOOK_S: Final = 0.1
"""The interval of the checks whether the targets of faithful routes listen."""

_ANY: Final = "00000000"
"""The text for "every address of the machine" in the kernel's tables; see `_in_table`."""

_LISTENS: Final = "0A"
"""The state of a listening socket in the kernel's tables."""


def reserve_port(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Take a free port, or the given one, and keep it while its server is down.

    Close the socket to give it back.

    Why: a port that was merely found free is soon taken. Another test may take it, or the kernel as
    the source port of any outgoing connection while the server that owned it is killed. A client
    that redials a dead port can even connect to itself. The socket returned is bound but does not
    listen, so connecting is refused. A server that sets SO_REUSEADDR, as servers do, may bind and
    listen at the same port, while the kernel gives the port to nobody else.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind((host, port))
        # Not before bind: then two reservations could get the same port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        holder.close()
        raise InfrastructureError(f"cannot take port {port or 'a free one'} on {host}: {error}") from error
    return holder


def reserve_ports(numbers: Sequence[int]) -> list[socket.socket]:
    """Take all these ports at one address of 127.0.0.0/8 where all are free, by `reserve_port`."""
    for left in reversed(range(RESERVE_ATTEMPTS)):
        host = ".".join(["127", *(str(random.randint(1, 254)) for _ in range(3))])
        taken: list[socket.socket] = []
        try:
            taken.extend(reserve_port(host, number) for number in numbers)
        except InfrastructureError:
            for holder in taken:
                holder.close()
            if not left:
                raise
        else:
            break
    return taken


class _Route:
    """The listener of one (source, target, port) triple."""

    __slots__ = ("absent", "address", "backward", "forward", "holder", "listener", "target", "waiting")

    def __init__(self, forward: Line, backward: Line, target: Address, holder: socket.socket) -> None:
        self.absent = False  # faithful routes only: nobody listens at the target
        self.forward = forward
        self.backward = backward
        self.target = target
        self.holder = holder  # keeps the port while nobody listens
        host, port = holder.getsockname()
        self.address = Address(host, port)
        self.listener: socket.socket | None = None
        self.waiting: list[socket.socket] = []  # accepted by the kernel, held by a cut

    @property
    def refusing(self) -> bool:
        return self.absent or self.forward.condition.reset or self.backward.condition.reset

    @property
    def passable(self) -> bool:
        return not (self.forward.condition.cut or self.backward.condition.cut)


class LinkProxy:
    """All links of one deployment. It belongs to one event loop; `close` it there.

    ``chance`` draws the jitter.
    """

    def __init__(self, *, chance: random.Random | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.random = chance or random.Random()
        self._lines: dict[Link, Line] = {}
        self._routes: dict[Address, _Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._faithful: list[_Route] = []
        self._closed = False

    async def add_route(
        self, link: Link, target: Address, *, host: str = "127.0.0.1", port: int = 0, faithful: bool = False
    ) -> Address:
        """Listen on ``host`` for connections from ``link.source`` to ``target``.

        Returns the address to give to the source. Several routes may share a link (one for each
        port of the target). Raises InfrastructureError if another program has the very port that is
        asked for.
        """
        assert not self._closed
        holder = reserve_port(host, port)
        route = _Route(self._line(link), self._line(Link(link.target, link.source)), target, holder)
        self._routes[route.address] = route
        if faithful:
            route.absent = True
            if not self._faithful:
                task = self.loop.create_task(self._look())
                self._tasks.add(task)
            self._faithful.append(route)
        self._listen(route)
        return route.address

    def set_condition(self, link: Link, condition: LinkCondition) -> None:
        """Put a directed link into a condition, at once and for existing connections, too.

        Raises KeyError for an unknown link.
        """
        line = self._lines[link]
        line.condition = condition
        for route in self._routes.values():
            if route.forward is line or route.backward is line:
                self._listen(route)
        if condition.reset:
            for pipe in tuple(line.pipes):
                pipe.source.reset()
                pipe.sink.reset()
        else:
            for pipe in tuple(line.pipes):
                pipe.change()

    def condition(self, link: Link) -> LinkCondition:
        """Return the condition that was set for a link.

        This is what was asked for, not what is proven (see `environments.link_probe`).
        """
        return self._lines[link].condition

    @property
    def links(self) -> tuple[Link, ...]:
        """The directed links that have routes, both directions of each."""
        return tuple(self._lines)

    async def close(self) -> None:
        """Reset all connections and give back all ports."""
        self._closed = True
        for route in self._routes.values():
            self._silence(route)
            self._forget_waiting(route)
            route.holder.close()
        self._routes.clear()
        for line in self._lines.values():
            for pipe in tuple(line.pipes):
                pipe.source.reset()
                pipe.sink.reset()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports' connection_lost run in the loop's next turn

    def _line(self, link: Link) -> Line:
        return self._lines.setdefault(link, Line(link))

    def _listen(self, route: _Route) -> None:
        """Bring a route's listener into the state that its links ask for."""
        if route.refusing:
            self._silence(route)
            self._forget_waiting(route)
            return
        if route.listener is None:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                listener.setblocking(False)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((route.address.host, route.address.port))
                listener.listen(BACKLOG)
            except OSError as error:
                listener.close()
                raise InfrastructureError(
                    f"the link proxy cannot listen on {route.address}: {error}"
                ) from error
            route.listener = listener
            self.loop.add_reader(listener, self._accept, route)
        if route.passable and route.waiting:
            waiting, route.waiting = route.waiting, []
            for sock in waiting:
                if _hung_up(sock):
                    sock.close()
                else:
                    self._begin(route, sock)

    async def _look(self) -> None:
        """Refuse connections whose targets do not listen; leave routes with a cut link alone."""
        while not self._closed:
            listening = _listening()
            for route in self._faithful:
                port = route.target.port
                absent = not listening & {(_in_table(route.target.host), port), (_ANY, port)}
                if absent != route.absent and route.passable:
                    route.absent = absent
                    self._listen(route)
            await asyncio.sleep(LOOK_S)

    def _silence(self, route: _Route) -> None:
        """Stop listening, so that the kernel refuses connections.

        The holder keeps the port meanwhile.
        """
        if route.listener is not None:
            self.loop.remove_reader(route.listener)
            route.listener.close()
            route.listener = None

    def _forget_waiting(self, route: _Route) -> None:
        for sock in route.waiting:
            set_reset_on_close(sock)
            sock.close()
        route.waiting.clear()

    def _accept(self, route: _Route) -> None:
        assert route.listener is not None
        for _ in range(BACKLOG):
            try:
                sock, _ = route.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of descriptors: try again when some may have been closed, without spinning on
                # the ready listener.
                self.loop.remove_reader(route.listener)
                self.loop.call_later(0.1, self._resume_accepting, route)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if route.passable:
                self._begin(route, sock)
                continue
            # Otherwise the abandoned attempts of clients that retry through a long cut would pile
            # up here.
            for old in [old for old in route.waiting if _hung_up(old)]:
                route.waiting.remove(old)
                old.close()
            route.waiting.append(sock)

    def _resume_accepting(self, route: _Route) -> None:
        if route.listener is not None:
            self.loop.add_reader(route.listener, self._accept, route)

    def _begin(self, route: _Route, sock: socket.socket) -> None:
        task = self.loop.create_task(self._connect(route, sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _unwanted(self, route: _Route) -> bool:
        return self._closed or route.refusing

    async def _connect(self, route: _Route, near_sock: socket.socket) -> None:
        """Connect to the target of an accepted connection, and join the two."""
        far_sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        ends: tuple[End, ...] = ()
        made = False
        try:
            far_sock.setblocking(False)
            far_sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.sock_connect(far_sock, (route.target.host, route.target.port))
            if self._unwanted(route):
                return
            forward = Pipe(self.loop, route.forward, self.random)
            backward = Pipe(self.loop, route.backward, self.random)
            near = End(near_sock, forward, backward)
            far = End(far_sock, backward, forward)
            ends = near, far
            await self.loop.create_connection(lambda: far, sock=far_sock)
            await self.loop.connect_accepted_socket(lambda: near, near_sock)
            made = not self._unwanted(route)
        except OSError:
            pass  # the target does not listen, or one side has gone: the source sees a reset
        finally:
            if not made:
                for end in ends:
                    end.abandon()
            if not ends:
                set_reset_on_close(near_sock)
                near_sock.close()
                far_sock.close()


def _listening() -> set[tuple[str, int]]:
    """Return where this machine's programs listen, by the kernel's tables: (`_in_table`, port)."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # a kernel without IPv6 has one of them
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, _, state, _ = line.split(None, 4)
                if state == _LISTENS:
                    host, _, port = local.partition(":")
                    found.add((host[-len(_ANY) :], int(port, 16)))
    return found


def _in_table(host: str) -> str:
    """Return an IPv4 address as the kernel's tables write it.

    A mapped IPv6 address ends with the same text.
    """
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}"


def _hung_up(sock: socket.socket) -> bool:
    """Return whether the peer has closed the connection.

    Such a peer has given up connecting; in a real network its attempt would never have arrived.
    """
    poller = select.poll()
    poller.register(sock, select.POLLRDHUP)
    return any(events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, events in poller.poll(0))
