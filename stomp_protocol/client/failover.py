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
from typing import Final, Literal, NamedTuple

from stomp_protocol.client.addresses import AddressList
from stomp_protocol.client.connection import Asked, ConnectError, Connection, connect, ignore
from stomp_protocol.client.feed import Feed
from stomp_protocol.client.settings import Rules, Settings
from stomp_protocol.codec import head
from stomp_protocol.frames import Frame

REFUSED: Final = "subscribe refused"
"""The reason, or its beginning, of the end of a connection whose subscribe was refused.

The subscribe would be refused on the next connection, too, so the client waits before it connects.
"""
TOPOLOGY_SUBSCRIPTION: Final = "topology"


StateKind = Literal["reached", "connected", "recovering", "recovered", "failed", "lost", "given-up", "closed"]


class State(NamedTuple):
    """A state of a client: what has happened with which broker, and why.

    "reached": the broker can be reached, and is asked to accept the client. "connected": it has
    accepted the client. "recovering": after a loss, the client subscribes again at this broker.
    "recovered": the broker has confirmed all of that. "failed": an attempt to connect has failed.
    "lost": the connection has ended without being asked to. "given-up": no broker of the list
    accepts the client, which tries no more. "closed": the client has left.
    """

    kind: StateKind
    broker: str = ""
    reason: str = ""


class FailoverConnection:
    """A connection to one of ``brokers``, made again whenever it ends, until ``finish``.

    After a loss the same broker is tried first: it was perhaps only out of reach for a moment (AMQ
    17.3.6). Then come the others, those first that a feed names.

    Args:
        brokers: the brokers that the client knows, a list that other clients may share.
        settings: the settings of each connection.
        rules: the rules by which it connects again.
        resolve: returns the host and port of a broker.
        chance: the generator of its jitter.
        feed: the feed of live brokers; None: brokers have none.
        headers: further headers of CONNECT.
        on_up: called with each new connection before anything was asked on it; it must repeat what
            the old connection had asked for.
        on_down: called with the reason when the connection ended.
        on_state: called with each new state.
        on_failure: called with the "lost" state; returns the broker to try first, or None to leave
            that to the client.
        store_session: the store that served the client before; None: not known.
    """

    def __init__(
        self,
        brokers: AddressList,
        settings: Settings,
        rules: Rules,
        *,
        resolve: Callable[[str], tuple[str, int]],
        chance: random.Random,
        feed: Feed | None = None,
        headers: Mapping[str, str] | None = None,
        on_up: Callable[[Connection], None] = ignore,
        on_down: Callable[[str], None] = ignore,
        on_state: Callable[[State], None] = ignore,
        on_failure: Callable[[State], str | None] = ignore,
        store_session: str | None = None,
    ) -> None:
        self.connection: Connection | None = None
        self.unclean_at: float | None = None
        """The loop time of the latest end of a connection that the broker may not have noticed."""
        self.store_session = store_session
        """The store of the latest connection, which the next connection asks for."""
        self.feed = feed
        """The brokers' feed of live brokers; None once a broker has refused it."""
        self._brokers = brokers
        self._candidates = brokers.order()
        self._settings = settings
        self._rules = rules
        self._resolve = resolve
        self._chance = chance
        self._headers = headers
        self._on_up = on_up
        self._on_down = on_down
        self._on_state = on_state
        self._on_failure = on_failure
        self._finishing = False
        self._refused = False

    async def run(self) -> None:
        """Connect, and again whenever the connection ends; return after ``finish``.

        Returns after the first connection if the rules do not ask for more. Raises ConnectError if
        no broker of the list accepts the client, and whatever a callback raises.
        """
        recovers = False
        while not self._is_finishing():
            connection = await self._find()
            if connection is None:
                return
            self._prefer([connection.node])
            self._on_state(State("connected", connection.node))
            await self._stay(connection, recovers=recovers)
            recovers = True
            if self._is_finishing():
                return
            if not self._rules.reconnect:
                return
            chosen = self._on_failure(_lost(connection))
            if chosen:
                self._prefer([chosen])
            if self._refused:
                self._refused = False
                await self._pause()

    async def finish(self) -> None:
        """Leave: send DISCONNECT if there is a connection, and never connect again.

        If there is no connection, ``run`` must be cancelled.
        """
        self._finishing = True
        if self.connection is not None:
            await self.connection.finish()
        self._on_state(State("closed"))

    def _is_finishing(self) -> bool:
        return self._finishing

    async def _find(self) -> Connection | None:
        """Try brokers until one accepts; return None after ``finish``. Raises ConnectError."""
        rounds = self._rules.iterations
        while True:
            for broker in tuple(self._candidates):
                more = self._rules.attempts
                while True:
                    try:
                        return await self.attempt(broker)
                    except ConnectError as failure:
                        self._failed(broker, failure)
                    if self._is_finishing():
                        return None
                    if not more:
                        break
                    more -= 1
                    await asyncio.sleep(self._rules.interval_s)
            rounds -= 1
            if not rounds:
                self._on_state(State("given-up"))
                raise ConnectError(f"none of {', '.join(self._candidates)} accepts the client")
            await self._pause()
            if self._is_finishing():
                return None

    def _failed(self, broker: str, failure: ConnectError) -> None:
        self._on_state(State("failed", broker, str(failure)))
        if failure.redirect:
            self._prefer([self._named(failure.redirect)])

    async def _pause(self) -> None:
        """Wait before a further round."""
        least_s, most_s = self._rules.jitter_s or (self._rules.interval_s,) * 2
        await asyncio.sleep(self._chance.uniform(least_s, most_s))

    async def attempt(self, broker: str) -> Connection:
        """Connect to a broker. Raises ConnectError."""
        try:
            host, port = self._resolve(broker)
        except ValueError as error:
            raise ConnectError("no address of a broker") from error
        connection = await connect(
            host,
            port,
            self._settings,
            node=broker,
            store_session=self.store_session,
            headers=self._headers,
            on_transport=lambda: self._on_state(State("reached", broker)),
        )
        self.store_session = connection.store_session
        return connection

    async def _stay(self, connection: Connection, *, recovers: bool) -> None:
        if connection.closed:
            await connection.ended
            self._on_state(_lost(connection))
            return
        self.connection = connection
        connection.on_end = self._ended
        try:
            self._on_up(connection)
            if recovers:
                self._on_state(State("recovering", connection.node))
                connection.when_answered(lambda: self._on_state(State("recovered", connection.node)))
            self._watch_topology(connection)
            await connection.ended
        except asyncio.CancelledError:
            self._finishing = True  # the connection is not lost: its client ends it
            raise
        finally:
            connection.close("client ended")

    def _ended(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and not connection.clean:
            self.unclean_at = asyncio.get_running_loop().time()
        self._refused = reason.startswith(REFUSED)
        self._on_down(reason)
        if connection is not None and not self._finishing:
            # Told at once: a client that is closed in the next moment has lost its connection, too.
            self._on_state(State("lost", connection.node, reason))

    # ------------------------------------------------------------------------------------- topology

    def _named(self, address: str) -> str:
        """Return the client's name for the broker at an address that a broker has told."""
        return address

    def _prefer(self, brokers: Sequence[str]) -> None:
        """Try these brokers first from now on, as far as the client may connect to them."""
        first = [broker for broker in brokers if self._brokers.knows(broker)]
        preferred = {*first}
        self._candidates = first + [broker for broker in self._candidates if broker not in preferred]

    def _learnt(self, connection: Connection) -> None:
        """Take in a new message of the feed: brokers that only older ones named are forgotten."""
        named = self._brokers.named
        allowed = {*named}
        remaining = [broker for broker in self._candidates if broker in allowed]
        self._candidates = [*dict.fromkeys((*remaining, *named))]
        self._prefer(self._brokers.order_after(connection.node))

    def _watch_topology(self, connection: Connection) -> None:
        feed = self.feed
        if feed is None or connection.closed:
            return
        if feed.announced and feed.destination not in connection.feeds:
            return
        user = connection.on_message

        def sort_out(frame: Frame) -> None:
            if frame.headers.get("subscription") == TOPOLOGY_SUBSCRIPTION:
                self._brokers.learn(feed.nodes(frame.body))
                self._learnt(connection)
            else:
                user(frame)

        def answer(outcome: str) -> None:
            if outcome != "ok":  # a broker without such a feed is not asked twice
                self.feed = None

        connection.on_message = sort_out
        connection.request(
            head("SUBSCRIBE", {"id": TOPOLOGY_SUBSCRIPTION, "destination": feed.destination, "ack": "auto"}),
            Asked(answer),
        )


def _lost(connection: Connection) -> State:
    """Return the state of a client whose connection has ended without being asked to."""
    return State("lost", connection.node, connection.ended.result())
