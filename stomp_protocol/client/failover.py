"""A client that knows the addresses of its brokers and keeps a connection to one of them.

Why sequential attempts: only a live broker accepts clients, and its backup refuses at once, so one
attempt after the other finds the live broker in a round trip. A client stays with its broker as
long as that answers. That matters in a partition: clients of either side stay where they are. When
no broker answers, a pause with jitter keeps clients from returning all at once.

Where brokers have a feed of the cluster's topology, it decides the order of attempts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from stomp_protocol.client.connection import Asked, ConnectError, Connection, connect, ignore
from stomp_protocol.client.settings import Feed, Settings
from stomp_protocol.codec import head
from stomp_protocol.frames import Frame

REFUSED: Final = "subscribe refused"
"""The reason of the end of a connection whose subscribe was refused.

The subscribe would be refused on the next connection, too, so the client waits before it connects.
"""
TOPOLOGY_SUBSCRIPTION: Final = "topology"


class FailoverConnection:
    """A connection to the live one of ``brokers``, made again whenever it ends, until ``finish``.

    ``on_up`` gets every new connection before anything was asked on it; it must repeat what the old
    connection had asked for.

    Args:
        brokers: the client's names of brokers, the likeliest first.
        settings: the settings of each connection.
        resolve: returns the host and port of a broker.
        pause_s: the least and the most seconds between rounds in which no broker was found.
        chance: the generator of its jitter.
        feed: the feed of live brokers; None: brokers have none.
        headers: further headers of CONNECT.
        on_up: called with each new connection.
        on_down: called with the reason when the connection ended.
        store_session: the store that served the client before; None: not known.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        settings: Settings,
        *,
        resolve: Callable[[str], tuple[str, int]],
        pause_s: tuple[float, float],
        chance: random.Random,
        feed: Feed | None = None,
        headers: Mapping[str, str] | None = None,
        on_up: Callable[[Connection], None] = ignore,
        on_down: Callable[[str], None] = ignore,
        store_session: str | None = None,
    ) -> None:
        self.connection: Connection | None = None
        self.unclean_at: float | None = None
        """The loop time of the latest end of a connection that the broker may not have noticed."""
        self.store_session = store_session
        """The store of the latest connection, which the next connection asks for."""
        self.feed = feed
        """The brokers' feed of live brokers; None once a broker has refused it."""
        self._candidates = list(brokers)
        self._known = frozenset(brokers)
        self._settings = settings
        self._resolve = resolve
        self._pause_s = pause_s
        self._chance = chance
        self._headers = headers
        self._on_up = on_up
        self._on_down = on_down
        self._finishing = False
        self._refused = False

    async def run(self) -> None:
        """Connect, and again whenever the connection ends; returns after ``finish``.

        A bug in a callback is raised here.
        """
        while not self._is_finishing():
            connection = await self._find()
            if connection is not None:
                self._prefer([connection.node])
                await self._stay(connection)
            elif self._is_finishing():
                return
            if connection is None or self._refused:
                self._refused = False
                await asyncio.sleep(self._chance.uniform(*self._pause_s))

    async def finish(self) -> None:
        """Leave: send DISCONNECT if there is a connection, and never connect again.

        If there is no connection, ``run`` must be cancelled.
        """
        self._finishing = True
        if self.connection is not None:
            await self.connection.finish()

    def _is_finishing(self) -> bool:
        return self._finishing

    async def _find(self) -> Connection | None:
        """Try each broker once; return the first connection, or None."""
        for broker in tuple(self._candidates):
            try:
                return await self.attempt(broker)
            except ConnectError as failure:
                if failure.redirect:
                    self._prefer([failure.redirect.partition(":")[0]])
            if self._is_finishing():
                break
        return None

    async def attempt(self, broker: str) -> Connection:
        """Connect to a broker. Raises ConnectError."""
        host, port = self._resolve(broker)
        connection = await connect(
            host,
            port,
            self._settings,
            node=broker,
            store_session=self.store_session,
            headers=self._headers,
        )
        self.store_session = connection.store_session
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

    def _prefer(self, brokers: Sequence[str]) -> None:
        known = [broker for broker in brokers if broker in self._known]
        self._candidates = known + [broker for broker in self._candidates if broker not in known]

    def _watch_topology(self, connection: Connection) -> None:
        feed = self.feed
        if feed is None or connection.closed:
            return
        user = connection.on_message

        def sort_out(frame: Frame) -> None:
            if frame.headers.get("subscription") == TOPOLOGY_SUBSCRIPTION:
                self._prefer([connection.node, *feed.nodes(frame.body)])
            else:
                user(frame)

        def asked(outcome: str) -> None:
            if outcome != "ok":  # a broker without such a feed is not asked twice
                self.feed = None

        connection.on_message = sort_out
        connection.request(
            head("SUBSCRIBE", {"id": TOPOLOGY_SUBSCRIPTION, "destination": feed.destination, "ack": "auto"}),
            Asked(asked),
        )
