"""Broadcasts: what live brokers say of themselves in a group, and the sockets that carry it.

A broadcast says where a broker can be dialled, and nothing that others must not know: whoever is in
the group can read it, and can forge one. So it is worth an attempt to connect and no more. Only a
live broadcasts (AMQ 17.2.2). A backup shares the node ID of its live, and others hear of it over
the links that it opens.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from broker.cluster import messages as m
from broker.contradictions import CONNECTOR_MAX
from broker.multicast import OpenMulticast
from broker.sections import BroadcastGroup, DiscoveryGroup

_log = logging.getLogger(__name__)

BROADCAST_MAX: Final = 2048
"""The most bytes of a broadcast: a connector of four bytes a character, and the rest."""


class Broadcast(msgspec.Struct, frozen=True, kw_only=True, tag_field="broadcast", tag=1, rename="kebab"):
    """A broker that can be dialled.

    ``start`` orders the starts of one broker (``cluster.incarnation``), and ``number`` its
    broadcasts since then: a copy of an earlier broadcast does not show that its sender is there.
    """

    node_id: Annotated[str, Meta(pattern=r"^[\x21-\x7e]{1,64}\Z")]
    connector: Annotated[str, Meta(pattern=r"^.+:\d{1,5}\Z", max_length=CONNECTOR_MAX)]
    start: Annotated[int, Meta(ge=0)]
    number: Annotated[int, Meta(ge=0)]


_decoder: Final = msgspec.json.Decoder(Broadcast)


def decode(data: bytes) -> Broadcast | None:
    """Return the broadcast that the bytes are; None for bytes that are none."""
    if len(data) > BROADCAST_MAX:
        return None
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


class GroupTask(abc.ABC):
    """A task that uses a group from ``start`` to ``stop``, and begins again after an error.

    ``purpose`` names it in logs. An error is logged once, however often it occurs in a row.
    """

    def __init__(self, purpose: str, retry_s: float) -> None:
        self._purpose = purpose
        self._retry_s = retry_s
        self._last_error = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name=self._purpose)

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @abc.abstractmethod
    async def _use(self) -> None:
        """Use the group until an error, which is raised as an OSError."""

    def _works(self) -> None:
        """Note that the group could be used."""
        if self._last_error:
            self._last_error = ""
            _log.info("%s: works again", self._purpose)

    async def _run(self) -> None:
        while True:
            try:
                await self._use()
            except OSError as error:
                text = error.strerror or str(error) or type(error).__name__
                if text != self._last_error:
                    self._last_error = text
                    _log.warning("%s: %s; it is tried again every %g s", self._purpose, text, self._retry_s)
            await asyncio.sleep(self._retry_s)


class Broadcaster(GroupTask):
    """Broadcasts this broker in a group, once in each ``broadcast-period``, while it is live.

    ``own`` returns how this broker introduces itself at this moment, and ``numbers`` counts the
    broadcasts in all groups.
    """

    def __init__(
        self, group: BroadcastGroup, own: Callable[[], m.Member], numbers: Iterator[int], retry_s: float
    ) -> None:
        super().__init__(f"broadcast-groups of {group.name!r}", retry_s)
        self._group = group
        self._own = own
        self._numbers = numbers

    def _next(self) -> bytes | None:
        """Return the next broadcast; None while this broker is not live."""
        member = self._own()
        if not member.live or member.node_id is None:
            return None
        broadcast = Broadcast(
            node_id=member.node_id,
            connector=member.connector,
            start=member.incarnation,
            number=next(self._numbers),
        )
        return msgspec.json.encode(broadcast)


class MulticastBroadcaster(Broadcaster):
    """Broadcasts this broker in a multicast group."""

    def __init__(
        self,
        group: BroadcastGroup,
        open_multicast: OpenMulticast,
        own: Callable[[], m.Member],
        numbers: Iterator[int],
        retry_s: float,
    ) -> None:
        super().__init__(group, own, numbers, retry_s)
        self._open = open_multicast

    async def _use(self) -> None:
        group = self._group
        address = group.group_address, group.group_port
        bind = group.local_bind_address, max(0, group.local_bind_port)
        socket = _Socket(lambda _: None)
        transport = await self._open(lambda: socket, address, bind, listens=False)
        with contextlib.closing(transport):
            while True:
                broadcast = self._next()
                if broadcast is not None:
                    transport.sendto(broadcast, address)
                await socket.work(group.broadcast_period / 1000)
                self._works()


class MulticastListener(GroupTask):
    """Calls ``hear`` with each broadcast in a multicast group, whoever sent it."""

    def __init__(
        self,
        group: DiscoveryGroup,
        open_multicast: OpenMulticast,
        hear: Callable[[Broadcast], None],
        retry_s: float,
    ) -> None:
        super().__init__(f"discovery-groups of {group.name!r}", retry_s)
        self._group = group
        self._open = open_multicast
        self._hear = hear

    async def _use(self) -> None:
        group = self._group
        socket = _Socket(self._take)
        transport = await self._open(
            lambda: socket,
            (group.group_address, group.group_port),
            (group.local_bind_address, 0),
            listens=True,
        )
        with contextlib.closing(transport):
            await socket.work(None)

    def _take(self, data: bytes) -> None:
        broadcast = decode(data)
        if broadcast is not None:
            self._works()
            self._hear(broadcast)


class _Socket(asyncio.DatagramProtocol):
    """A socket of a group; ``take`` is called with each datagram."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def work(self, period_s: float | None) -> None:
        """Wait for so long, or for ever. Raises OSError if the socket fails before or meanwhile."""
        await asyncio.wait([self._failed], timeout=period_s)
        if self._failed.done():
            raise OSError(str(self._failed.result()))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002 - asyncio's signature
        self._take(data)

    def error_received(self, exc: Exception) -> None:
        self._fail(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or OSError("the socket was closed"))

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_result(error)
