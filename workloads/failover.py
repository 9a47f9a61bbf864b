"""A client that knows the addresses of its brokers and finds the live one.

Why sequential attempts: only a live broker accepts clients, and its backup refuses at once, so one
attempt after the other finds the live broker in a round trip. A client stays with its broker as
long as that answers. That matters in a partition: clients of either side stay where they are, as
real ones would. When no broker answers, a short pause with jitter keeps clients from returning all
at once.

Where a dialect has a ``feed``, the broker's own list of live brokers decides the order of attempts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from harness.interface import Feed, WorkloadContext
from stomp_protocol.codec import head
from stomp_protocol.frames import Frame
from workloads.connection import Asked, ConnectError, Connection, connect, ignore
from workloads.processes import Processes

BACKOFF_S: Final = (0.05, 0.2)
REFUSED: Final = "subscribe refused"
"""The reason of the end of a connection whose subscribe was refused.

The subscribe would be refused on the next connection, too, so the client waits before it connects.
"""
TOPOLOGY_SUBSCRIPTION: Final = "topology"


class Client(Protocol):
    """A client that may have a connection to send on; see ``FailoverClient``."""

    @property
    def connection(self) -> Connection | None:
        """The present connection; None: there is none."""

    @property
    def unclean_at(self) -> float | None:
        """The loop time of the latest end of a connection that the broker may not have noticed."""

    @property
    def away(self) -> bool:
        """True while it has left by its own choice: it sends nothing then."""

    async def run(self) -> None:
        """Connect, and again whenever the connection ends; returns after ``finish``."""

    async def finish(self) -> None:
        """Leave, and never connect again."""


class FailoverClient:
    """A client that keeps one connection to the live one of ``nodes``, until ``finish``.

    Each attempt is a ``connect`` operation in the history. ``on_up`` gets every new connection
    before anything was asked on it; it must repeat what the old connection had asked for.

    Args:
        context: the context of the workload.
        zone: the client zone that it lives in.
        nodes: names of brokers of which one is live, the likeliest first.
        seed: the seed of its jitter.
        on_up: called with each new connection.
        on_down: called with the reason when the connection ended.
        store_session: the store that served the client before; None: not known.
        client_id: the client's name for itself; None: it has none.
    """

    __slots__ = (
        "_candidates", "_client_id", "_context", "_finishing", "_known", "_on_down", "_on_up", "_processes",
        "_random", "_refused", "_zone", "connection", "store_session", "topology", "unclean_at",
    )  # fmt: skip

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Sequence[str],
        seed: int,
        on_up: Callable[[Connection], None] = ignore,
        on_down: Callable[[str], None] = ignore,
        store_session: str | None = None,
        client_id: str | None = None,
    ) -> None:
        self.connection: Connection | None = None
        self.unclean_at: float | None = None
        """The loop time of the latest end of a connection that the broker may not have noticed."""
        self.store_session = store_session
        """The store of the latest connection, which the next connection asks for."""
        self.topology: Feed | None = context.dialect.feed
        """The broker's feed of live brokers; None once a broker has refused it."""
        self._client_id = client_id
        self._context = context
        self._zone = zone
        self._candidates = list(nodes)
        self._known = frozenset(nodes)
        self._random = random.Random(seed)
        self._on_up = on_up
        self._on_down = on_down
        self._processes = Processes(context.recorder)
        self._finishing = False
        self._refused = False

    @property
    def away(self) -> bool:
        """False: it leaves only at the end."""
        return False

    async def run(self) -> None:
        """Connect, and again whenever the connection ends; returns after ``finish``.

        A bug in a callback is raised here.
        """
        while not self._is_finishing():
            connection = None
            for node in tuple(self._candidates):
                connection = await self._attempt(node)
                if connection is not None:
                    self._prefer([node])
                    await self._stay(connection)
                    break
                if self._is_finishing():
                    return
            if connection is None or self._refused:
                self._refused = False
                await asyncio.sleep(self._random.uniform(*BACKOFF_S))

    async def finish(self) -> None:
        """Leave: send DISCONNECT if there is a connection, and never connect again.

        If there is no connection, ``run`` must be cancelled.
        """
        self._finishing = True
        if self.connection is not None:
            await self.connection.finish()

    def _is_finishing(self) -> bool:
        return self._finishing

    async def _attempt(self, node: str) -> Connection | None:
        context = self._context
        record = context.recorder.event
        process = self._processes.take()
        record(process, "invoke", "connect")
        connection = None
        error = "abandoned"
        try:
            connection = await connect(
                context.resolve(self._zone, node),
                node,
                context.dialect,
                operation_timeout_s=context.spec.operation_timeout_s,
                store_session=self.store_session,
                client_id=self._client_id,
            )
            self.store_session = connection.store_session
        except ConnectError as failure:
            error = str(failure)
            if failure.redirect:
                self._prefer([failure.redirect.partition(":")[0]])
        finally:
            if connection is None:
                record(process, "fail", "connect", broker=node, error=error)
            else:
                connection.number = context.recorder.next_connection()
                record(process, "ok", "connect", broker=connection.broker, connection=connection.number)
        self._processes.give(process, "ok")
        return connection

    async def _stay(self, connection: Connection) -> None:
        if connection.closed:
            await connection.ended
            return
        self.connection = connection
        connection.on_end = self._ended
        try:
            self._on_up(connection)
            self._watch_topology(connection)
            await connection.ended
        finally:
            connection.close("client ended")

    def _ended(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and not connection.clean:
            self.unclean_at = asyncio.get_running_loop().time()
        self._refused = reason == REFUSED
        self._on_down(reason)

    # ------------------------------------------------------------------------------------- topology

    def _prefer(self, nodes: Sequence[str]) -> None:
        known = [node for node in nodes if node in self._known]
        self._candidates = known + [node for node in self._candidates if node not in known]

    def _watch_topology(self, connection: Connection) -> None:
        topology = self.topology
        if topology is None or connection.closed:
            return
        user = connection.on_message

        def sort_out(frame: Frame) -> None:
            if frame.headers.get("subscription") == TOPOLOGY_SUBSCRIPTION:
                self._prefer([connection.node, *topology.nodes(frame.body)])
            else:
                user(frame)

        def asked(outcome: str) -> None:
            if outcome != "ok":  # a broker without such a feed is not asked twice
                self.topology = None

        # This is not recorded: the feed is no queue, and delivers nothing that could be lost.
        connection.on_message = sort_out
        connection.request(
            head(
                "SUBSCRIBE", {"id": TOPOLOGY_SUBSCRIPTION, "destination": topology.destination, "ack": "auto"}
            ),
            Asked(asked),
        )
