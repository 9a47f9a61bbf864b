"""Subscribers: consumers of one subscription to a topic, which outlives them or ends with them.

A *durable* subscription belongs to its client and has one consumer. A *shared* one may have several
consumers. A *plain* one is only a session: it ends with its connection.

A subscription is identified by its name. After a ``drop`` of unknown outcome it is not known
whether the subscription still exists, or will end in a moment. So that name is given up, and the
consumers make another subscription under the next name. The old one, if it exists, would take every
message from then on, so the consumer that connects next tries to drop it again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from harness.interface import TOPIC, WorkloadContext
from stomp_protocol.client.connection import Connection
from stomp_protocol.codec import head
from workloads import placement
from workloads.consumer import Consumer, Style
from workloads.failover import Nodes
from workloads.operations import Drop, Unsubscribe
from workloads.sessions import Session, Sessions

PLAIN_NAMES_MAX: Final = 12
"""The number of sessions of a plain consumer that have names of their own.

Later sessions share the last name. Why so few: each message is judged for each name.
"""

Kind = Literal["durable", "shared", "plain"]


@dataclass(slots=True, eq=False)
class Subscription:
    """A subscription, as its consumers know it.

    ``base`` is the beginning of its names, and the id of the client that owns a durable one.
    ``selector`` has the texts that are wanted in each property; None: all messages. ``home`` is the
    pair that has the topic. ``dropped``: it certainly does not exist. ``left`` are names under
    which it may still exist, unwanted. ``there`` says whether it exists, by the latest answer of a
    broker; None where that is in doubt. ``pairs`` are the pairs of the brokers that were asked for
    it.
    """

    topic: str
    base: str
    kind: Kind
    selector: Mapping[str, Sequence[str]] | None = None
    home: str = ""
    generation: int = 0
    dropped: bool = True
    there: bool | None = None
    pairs: set[str] = field(default_factory=set)
    left: deque[str] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """The present name of the subscription."""
        return f"{self.base}-{self.generation}" if self.generation else self.base

    @property
    def asked(self) -> str | None:
        """The ``value`` of a subscribe to it."""
        return None if self.selector is None else json.dumps({"selector": self.selector})

    def begin_again(self) -> None:
        """Take the next name, because it is not known whether the present one still exists."""
        self.left.append(self.name)
        self.generation += 1
        self.dropped = True
        self.there = None
        self.pairs.clear()


class Subscriber(Consumer):
    """A consumer of one subscription.

    ``leave`` with "drop" ends the subscription, too; then its ``dropped`` says whether that is
    certain.

    Args:
        context, zone, nodes, sessions, prefetch, hold_s, seed: see ``Consumer``.
        subscription: the subscription, shared with its other consumers.
    """

    __slots__ = ("_drops", "_pairs", "_speech", "followed")

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Nodes,
        sessions: Sessions,
        *,
        prefetch: int,
        hold_s: float,
        seed: int,
        subscription: Subscription,
    ) -> None:
        super().__init__(
            context, zone, nodes, (subscription.topic,), sessions, prefetch=prefetch, hold_s=hold_s, seed=seed
        )
        assert context.dialect.topics is not None, "a dialect without topics"
        self._speech = context.dialect.topics
        self.followed = subscription
        self._pairs = placement.pair_names(context)
        self._drops: dict[Session, int] = {}
        """The process of each drop under way of a plain subscription, by its session."""

    @property
    def client_id(self) -> str | None:
        """The id of the client that owns a durable subscription; None for others."""
        return self.followed.base if self.followed.kind == "durable" else None

    def _up(self, connection: Connection) -> None:
        super()._up(connection)
        if self.followed.left and self._speech.drops != "with-consumer":
            Drop(self, self._of(self.followed.left.popleft(), connection), connection).begin()

    def _down(self, reason: str) -> None:
        connection, ended = self._connection, tuple(self._open.values())
        super()._down(reason)
        for session in ended:
            self._ends_with_session(session, clean=connection is not None and connection.clean)

    def ending(self, session: Session) -> None:
        """Record that a plain subscription is to end, since it ends with its session."""
        if self.followed.kind == "plain" and session not in self._drops:
            process = self._drops[session] = self.processes.take()
            self.drop_row(process, session, "invoke", None)

    def ended(self, session: Session) -> None:
        """Record the end of a session, and of the plain subscription that ended with it."""
        super().ended(session)
        if session in self._drops:
            self._ends_with_session(session, clean=True)

    def _ends_with_session(self, session: Session, *, clean: bool) -> None:
        """Record the end of a plain subscription: "ok" if ``clean``, else of unknown time."""
        if self.followed.kind != "plain":
            return
        self.ending(session)
        process = self._drops.pop(session)
        type_ = "ok" if clean else "info"
        self.drop_row(process, session, type_, None if clean else "connection lost")
        self.processes.give(process, type_)

    def drop_row(self, process: int, session: Session, type: str, error: str | None) -> None:  # noqa: A002 - the history's own name for it
        """Record that the subscription of a session is to end."""
        self._record(
            process,
            type,
            "drop",
            queue=session.queue,
            subscription=session.subscription_name,
            connection=session.connection,
            broker=None if type == "invoke" else session.broker,
            error=error,
        )

    def _session(self, queue: str, connection: Connection) -> Session:
        assert queue == self.followed.topic, queue
        followed = self.followed
        if followed.kind == "plain" and followed.generation < PLAIN_NAMES_MAX:
            followed.generation += 1
        followed.dropped = False
        followed.pairs.add(self._pairs[connection.node])
        if not followed.there:
            followed.there = None
        return self._of(followed.name, connection)

    def _of(self, name: str, connection: Connection) -> Session:
        session = super()._session(self.followed.topic, connection)
        session.subscription_name = name
        session.asked = self.followed.asked
        session.frame_id = self._named(name).get("id")
        return session

    def asks(self, session: Session) -> Mapping[str, str]:
        """Return the headers with the name of the session's subscription and its selector."""
        wanted = self._speech.wanting(self.followed.selector)
        return {**self._named(session.subscription_name or ""), **wanted, "id": session.subscription}

    def drop_head(self, session: Session) -> bytes:
        """Return the head of the UNSUBSCRIBE frame that drops the subscription of a session."""
        return head(
            "UNSUBSCRIBE", {**self._named(session.subscription_name or ""), "id": session.subscription}
        )

    def _named(self, name: str) -> dict[str, str]:
        """Return the headers that name a subscription; a plain one has none."""
        kinds = {"durable": self._speech.durable, "shared": self._speech.shared}
        headers = kinds.get(self.followed.kind) or {}
        topic = self.followed.topic.removeprefix(TOPIC)
        return {header: value.format(name, topic=topic) for header, value in headers.items()}

    async def _part(self, style: Style, connection: Connection) -> None:
        if style != "drop":
            await super()._part(style, connection)
            return
        await self._settle(connection)
        session = next(iter(self._open.values()), None)
        if session is None or connection.closed:
            return
        together = self._speech.drops == "with-consumer"
        if self._speech.drops == "either":
            together = self._random.random() < 0.5
        if not together:
            await self._unsubscribe(connection)
        if not connection.closed:
            session.ending = True
            ending = Unsubscribe(self, session, connection) if together else None
            drop = Drop(self, session, connection, ending)
            drop.begin()
            await self._until(lambda: connection.closed or drop.outcome is not None)

    def subscribed(self, session: Session) -> None:
        """Mark a session as confirmed, and its subscription as existing."""
        super().subscribed(session)
        if session.subscription_name == self.followed.name:
            self.followed.there = True

    def dropping(self, session: Session) -> None:
        """Take note that a drop is about to be asked for: until its answer all is in doubt."""
        if session.subscription_name == self.followed.name:
            self.followed.there = None

    def dropped(self, session: Session, outcome: str) -> None:
        """Take the outcome of a drop; after an unknown one, begin again under the next name."""
        if session.subscription_name != self.followed.name:
            return  # the drop of a former name
        if outcome == "ok":
            self.followed.dropped = True
            # If brokers of several pairs were asked for it, another pair may still have it.
            self.followed.there = False if len(self.followed.pairs) == 1 else None
            self.followed.pairs.clear()
        elif outcome == "info":
            self.followed.begin_again()
