"""Proof of a link's state: bytes that really cross it, through the same proxy code as the traffic.

The condition that was set for a link does not show what the link does. So a `LinkProbe` keeps one
standing connection through the proxy for each pair of ends. To prove a directed link it writes on
the source's side, and looks whether and when the bytes come out on the target's side. It reads both
sides itself, so that one direction's answer does not depend on the other direction: this tells a
one-way cut from a full one.

The machine may be slow, too. So every probe is sent together with a control, which crosses the
proxy on a link that no fault ever breaks. The delay of a link is the time by which its probe is
slower than the control. The link is lost if nothing has come long after the control.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from environments.link_condition import CLEAR, link_name
from environments.link_proxy import LinkProxy
from harness.interface import Address, InfrastructureError, Link

PROBE_BYTES: Final = 16 * 1024
"""The size of a probe: enough for a rate limit of up to 1.6 MB/s to show as a delay."""

SLOW_MS: Final = 10.0
"""A link that takes this much longer than the control is called slow."""

AGAIN_MAX: Final = 4
"""The number of further probes that a link without a fault gets before it is called slow."""

PATIENCE_S: Final = 0.5
"""The time after the control's arrival (and the delay set) after which a silent link is lost."""

MACHINE_PATIENCE_S: Final = 10.0
"""A control that takes longer than this means that the machine, not the link, is at fault."""

_OUTSTANDING_MAX: Final = 4 * PROBE_BYTES
_CONTROL: Final = Link("probe", "control")
_HEADER: Final = struct.Struct(">I")


class _Side(asyncio.Protocol):
    """A side of a standing connection: counts the bytes that arrive, and resolves the watches."""

    def __init__(self, probe: LinkProbe, *, near: bool) -> None:
        self.probe = probe
        self.transport: Any = None
        self.sent = 0
        self.received = 0
        self.lost = False
        self.watches: deque[tuple[int, asyncio.Future[float]]] = deque()
        self._head = None if near else b""  # the other side's first bytes: the number of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.probe.sides.add(self)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += data
            if len(self._head) < _HEADER.size:
                return
            data = self._head[_HEADER.size :]
            number = _HEADER.unpack_from(self._head)[0]
            self._head = None
            self.probe.greeted(number, self)
        self.received += len(data)
        now = time.monotonic()
        while self.watches and self.watches[0][0] <= self.received:
            _, arrival = self.watches.popleft()
            if not arrival.done():
                arrival.set_result(now)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self.lost = True
        self.probe.sides.discard(self)
        for _, arrival in self.watches:
            if not arrival.done():
                arrival.set_exception(ConnectionResetError("the probe's connection was reset"))
        self.watches.clear()


class _Standing:
    """The standing connection of one pair of ends."""

    def __init__(self, link: Link, number: int, address: Address) -> None:
        self.link = link
        self.number = number
        self.address = address
        self.near: _Side | None = None
        self.far: _Side | None = None
        self.met: asyncio.Future[None] | None = None
        self.lock = asyncio.Lock()

    def up(self) -> bool:
        return self.near is not None and self.far is not None and not (self.near.lost or self.far.lost)

    def drop(self) -> None:
        for side in (self.near, self.far):
            if side is not None and side.transport is not None:
                side.transport.abort()
        self.near = self.far = None


class LinkProbe:
    """The standing connections of one deployment.

    Open it before anything is broken: a new connection needs both directions.
    """

    def __init__(self, proxy: LinkProxy) -> None:
        self.sides: set[_Side] = set()  # only for closing: never iterated where order matters
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self._standing: dict[Link, _Standing] = {}
        self._numbers: list[_Standing] = []

    @classmethod
    async def open(cls, proxy: LinkProxy, links: Iterable[Link]) -> LinkProbe:
        """Connect every pair of ends among ``links``; either direction names the pair."""
        probe = cls(proxy)
        loop = asyncio.get_running_loop()
        probe._server = await loop.create_server(lambda: _Side(probe, near=False), "127.0.0.1", 0)
        sink = Address(*probe._server.sockets[0].getsockname()[:2])
        for link in (_CONTROL, *links):
            back = Link(link.target, link.source)
            if link in probe._standing:
                continue
            standing = _Standing(link, len(probe._numbers), await proxy.add_route(link, sink))
            probe._numbers.append(standing)
            probe._standing[link] = probe._standing[back] = standing
        for standing in probe._numbers:
            answer = await probe._connect(standing, MACHINE_PATIENCE_S)
            if answer:
                await probe.close()
                raise InfrastructureError(
                    f"the probe of {link_name(standing.link)} cannot cross the proxy: {answer}"
                )
        return probe

    async def probe(self, links: Iterable[Link]) -> dict[Link, str]:
        """Return what each link does now.

        The answers are "open", "lost", "refused", "slow 120 ms", and "no such link".
        """
        wanted = list(dict.fromkeys(links))
        known = [link for link in wanted if link in self._standing]
        found = await self._ask(known)
        for _ in range(AGAIN_MAX):
            # The link is slow although no fault slows it: the machine may have been busy between
            # the control and this one probe.
            doubtful = [
                link
                for link, answer in found.items()
                if answer.startswith("slow ") and self._proxy.condition(link) == CLEAR
            ]
            found |= await self._ask(doubtful)
        return {link: found.get(link, "no such link") for link in wanted}

    async def _ask(self, known: list[Link]) -> dict[Link, str]:
        """Probe each of these links once, together with one control."""
        if not known:
            return {}
        control = self._send(_CONTROL)
        assert control is not None, "nobody breaks the control"
        begun, arrival = control
        beside = [(link, self._send(link)) for link in known]
        try:
            arrived = await asyncio.wait_for(asyncio.shield(arrival), MACHINE_PATIENCE_S)
        except (TimeoutError, ConnectionError) as error:
            raise InfrastructureError(
                f"the link proxy did not pass a control message within {MACHINE_PATIENCE_S:.0f} s: this "
                "machine is overloaded"
            ) from error
        machine_s = arrived - begun
        answers = await asyncio.gather(*(self._answer(link, sent, machine_s) for link, sent in beside))
        return dict(zip(known, answers, strict=True))

    async def mend(self) -> None:
        """Reconnect the standing connections that a reset has broken.

        Call this when a reset is healed: later a cut may stand in the way.
        """
        broken = [standing for standing in self._numbers if not standing.up()]
        await asyncio.gather(*(self._connect(standing, PATIENCE_S) for standing in broken))

    async def close(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for side in tuple(self.sides):
            side.transport.abort()

    def greeted(self, number: int, side: _Side) -> None:
        """Note that a connection of the probe has reached its far side."""
        standing = self._numbers[number]
        standing.far = side
        if standing.met is not None and not standing.met.done():
            standing.met.set_result(None)

    def _send(self, link: Link) -> tuple[float, asyncio.Future[float]] | None:
        """Send a probe along the link's standing connection; None if that connection is not up."""
        standing = self._standing[link]
        if not standing.up():
            return None
        near, far = standing.near, standing.far
        assert near is not None
        assert far is not None
        source, target = (near, far) if standing.link == link else (far, near)
        if source.sent - target.received < _OUTSTANDING_MAX:
            source.transport.write(bytes(PROBE_BYTES))
            source.sent += PROBE_BYTES
        arrival: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        target.watches.append((source.sent, arrival))
        return time.monotonic(), arrival

    async def _answer(
        self, link: Link, sent: tuple[float, asyncio.Future[float]] | None, machine_s: float
    ) -> str:
        standing = self._standing[link]
        condition = self._proxy.condition(link)
        patience_s = PATIENCE_S + (condition.delay_ms + condition.jitter_ms) / 1000
        if condition.rate_bytes_s:
            patience_s += min(5.0, PROBE_BYTES / condition.rate_bytes_s)
        if sent is None or (sent[1].done() and sent[1].exception() is not None):
            problem = await self._connect(standing, patience_s)
            if problem:
                return problem
            sent = self._send(link)
            if sent is None:
                return "refused"
        begun, arrival = sent
        before = self._received(link)
        try:
            arrived = await asyncio.wait_for(arrival, patience_s)
        except TimeoutError:
            some = self._received(link) > before
            return f"slow over {patience_s * 1000:.0f} ms" if some else "lost"
        except ConnectionError:
            return await self._connect(standing, patience_s) or "refused"
        slower_ms = (arrived - begun - machine_s) * 1000
        return f"slow {slower_ms:.0f} ms" if slower_ms >= SLOW_MS else "open"

    def _received(self, link: Link) -> int:
        standing = self._standing[link]
        target = standing.far if standing.link == link else standing.near
        return target.received if target is not None else 0

    async def _connect(self, standing: _Standing, patience_s: float) -> str:
        """Connect a pair's standing connection; "" if it stands, else how the attempt ended."""
        async with standing.lock:
            if standing.up():
                return ""
            standing.drop()
            loop = asyncio.get_running_loop()
            standing.met = loop.create_future()
            try:
                async with asyncio.timeout(patience_s):
                    near = _Side(self, near=True)
                    await loop.create_connection(lambda: near, standing.address.host, standing.address.port)
                    standing.near = near
                    near.transport.get_extra_info("socket").setsockopt(
                        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
                    )
                    near.transport.write(_HEADER.pack(standing.number))
                    await standing.met
            except TimeoutError:
                standing.drop()
                return "lost"
            except ConnectionError:
                standing.drop()
                return "refused"
            if standing.up():
                return ""
            standing.drop()
            return "refused"
