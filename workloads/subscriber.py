"""Subscribers: consumers of one subscription to a topic, which outlives them or ends with them.

A *durable* one is its client's and has one consumer, a *shared* one may have several, and a *plain*
one is a session and no more: it ends with its connection.

A subscription is told by its name. After a ``drop`` of unknown outcome nobody knows whether it is
still there, or will end in a moment; so it is left alone under that name, and its consumers make
another, under the next name. What was left behind would take everything that is sent from then on,
so whoever connects next tries to drop it again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from harness.interface import TOPIC, WorkloadContext
from stomp_protocol.codec import head
from workloads.connection import Connection
from workloads.consumer import Consumer, Style
from workloads.operations import Drop, Unsubscribe
from workloads.sessions import Session, Sessions

PLAIN_NAMES_MAX: Final = 12
"""Sessions of a plain consumer that have names of their own; what is sent is judged for each name.

Those that come later share the last one.
"""

Kind = Literal["durable", "shared", "plain"]


@dataclass(slots=True, eq=False)
class Subscription:
    """What its consumers know of a subscription.

    ``base`` is what its names begin with, and the client that a durable one belongs to;
    ``selector`` which properties what is wanted has, None for all; ``home`` the number of the pair
    that has the topic. ``dropped``: it is certainly not there. ``left``: names under which it may
    still be there, unwanted. ``there``: what brokers have said of it last, None where that is in
    doubt; ``pairs`` are those of the brokers that were asked for it.
    """

    topic: str
    base: str
    kind: Kind
    selector: Mapping[str, Sequence[str]] | None = None
    home: int = 0
    generation: int = 0
    dropped: bool = True
    there: bool | None = None
    pairs: set[str] = field(default_factory=set)
    left: deque[str] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """What it is called now."""
        return f"{self.base}-{self.generation}" if self.generation else self.base

    @property
    def asked(self) -> str | None:
        """The ``value`` of a subscribe."""
        return None if self.selector is None else json.dumps({"selector": self.selector})

    def begin_again(self) -> None:
        """Under the next name: nothing is known of it under this one any more."""
        self.left.append(self.name)
        self.generation += 1
        self.dropped = True
        self.there = None
        self.pairs.clear()


class Subscriber(Consumer):
    """Consumes from one subscription.

    ``leave`` with "drop" ends the subscription, too, and says by ``dropped`` of it how that went.

    Args:
        context, zone, nodes, sessions, prefetch, hold_s, seed: see ``Consumer``.
        subscription: from which; shared with its other consumers.
    """

    __slots__ = ("_drops", "_pairs", "_speech", "followed")

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Sequence[str],
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
        self._pairs = {node.name: node.pair for node in context.nodes}
        self._drops: dict[Session, int] = {}
        """Plain subscriptions whose end was asked for, and the process of each such drop."""

    @property
    def client_id(self) -> str | None:
        """Of a durable subscription its owner."""
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
        """Record that a plain subscription is to end: it ends with its session."""
        if self.followed.kind == "plain" and session not in self._drops:
            process = self._drops[session] = self.processes.take()
            self.drop_row(process, session, "invoke", None)

    def ended(self, session: Session) -> None:
        """Record the end of a session, and of the plain subscription that ended with it."""
        super().ended(session)
        if session in self._drops:
            self._ends_with_session(session, clean=True)

    def _ends_with_session(self, session: Session, *, clean: bool) -> None:
        """A plain subscription has ended, or will at some time."""
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
        """The name of its subscription, and what is wanted."""
        wanted = self._speech.wanting(self.followed.selector)
        return {**self._named(session.subscription_name or ""), **wanted, "id": session.subscription}

    def drop_head(self, session: Session) -> bytes:
        """The UNSUBSCRIBE that drops the subscription of a session."""
        return head(
            "UNSUBSCRIBE", {**self._named(session.subscription_name or ""), "id": session.subscription}
        )

    def _named(self, name: str) -> dict[str, str]:
        """The headers that name it; none of a plain one."""
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
        """As a consumer's; the subscription is there."""
        super().subscribed(session)
        if session.subscription_name == self.followed.name:
            self.followed.there = True

    def dropping(self, session: Session) -> None:
        """A drop is about to be asked for."""
        if session.subscription_name == self.followed.name:
            self.followed.there = None

    def dropped(self, session: Session, outcome: str) -> None:
        """A drop has its answer, or never will."""
        if session.subscription_name != self.followed.name:
            return  # one that was left behind
        if outcome == "ok":
            self.followed.dropped = True
            # Where it was asked for in several pairs another may have one of that name, too.
            self.followed.there = False if len(self.followed.pairs) == 1 else None
            self.followed.pairs.clear()
        elif outcome == "info":
            self.followed.begin_again()
