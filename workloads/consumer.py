"""Consumers: sessions, deliveries, acknowledgements, and the ways to leave.

A *session* is one subscription from its SUBSCRIBE to its end; a consumer that reconnects or comes
back has new ones. Deliveries are rows of a process that never invokes anything
(``Consumer.observer``), so that they cannot be mistaken for completions.

Why messages are held for a moment before they are acknowledged: two sessions that hold one message,
or one group, at the same time are only seen if holding takes time. A consumer that acknowledges
within the same turn of the loop would never see a group split.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from harness.interface import WorkloadContext
from stomp_protocol.client.connection import Connection
from stomp_protocol.codec import head
from stomp_protocol.frames import Frame
from workloads.failover import FailoverClient, Nodes
from workloads.operations import Ack, ConsumerOperation, Nack, Subscribe, Unsubscribe
from workloads.payload import Payload, decode, digest, unreadable
from workloads.processes import Processes
from workloads.sessions import Session, Sessions
from workloads.stamp import arrived

LEAVE_PATIENCE_S: Final = 1.0
Style = Literal["unsubscribe", "disconnect", "drop"]
"""The ways to leave; "drop" is for subscribers, and ends their subscription, too."""
_UNREADABLE: Final = (None, None, None, None, None)
"""The fields of a payload that cannot be read."""


class Consumer:
    """A client that consumes ``queues`` of one pair and acknowledges each message after ``hold_s``.

    It uses the dialect's ack mode and asks for receipts.

    ``run`` lasts for as long as the consumer is present; ``leave`` ends it. Then it may ``run``
    again, with new sessions.

    Args:
        context: the context of the workload.
        zone: the client zone that it lives in.
        nodes: the brokers of its pair, master first.
        queues: the queues that it subscribes to on each connection.
        sessions: the source of session numbers, shared by all consumers of a test.
        prefetch: the messages that it may hold unacknowledged per session.
        hold_s: the seconds from delivery to acknowledgement.
        seed: the seed of its random choices.
    """

    __slots__ = (
        "_client", "_connection", "_context", "_counters", "_held", "_hold_s", "_leaving", "_left", "_loop",
        "_nodes", "_open", "_prefetch", "_queues", "_random", "_record", "_sessions",
        "_store_session", "_timer", "_unclean_at", "acks_open", "active_at", "attached",
        "delivered_at", "observer", "processes", "zone",
    )  # fmt: skip

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Nodes,
        queues: Sequence[str],
        sessions: Sessions,
        *,
        prefetch: int,
        hold_s: float,
        seed: int,
    ) -> None:
        self.zone = zone
        self.observer = context.recorder.next_process()
        self.attached = asyncio.Event()
        """Set while every queue's subscription is confirmed on the present connection."""
        self.acks_open = 0
        self.delivered_at = 0.0
        """The loop time of the latest delivery."""
        self.active_at = 0.0
        """The loop time of the latest delivery, or answer to an acknowledgement."""
        self._unclean_at: float | None = None
        self._context = context
        self._record = context.recorder.event
        self._counters = context.counters
        self._loop = asyncio.get_running_loop()
        self._nodes = nodes
        self._queues = tuple(queues)
        self._sessions = sessions
        self._prefetch = prefetch
        self._hold_s = hold_s
        self._random = random.Random(seed)
        self.processes = Processes(context.recorder)
        self._client: FailoverClient | None = None
        self._store_session: str | None = None
        self._connection: Connection | None = None
        self._open: dict[str, Session] = {}  # by subscription id, which is the session's number
        self._left: dict[str, Session] = {}  # of this connection, those that ended in order
        self._leaving = False
        self._held: deque[tuple[float, Session, str, Payload | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def client_id(self) -> str | None:
        """The client's name for itself at every connection; None: it has none."""
        return None

    @property
    def unclean_at(self) -> float | None:
        """The loop time of the latest end of a connection that the broker may not have noticed."""
        client = self._client
        return self._unclean_at if client is None or client.unclean_at is None else client.unclean_at

    @property
    def leaving(self) -> bool:
        """True if the consumer was told to leave, and so acknowledges nothing any more."""
        return self._leaving

    @property
    def busy(self) -> bool:
        """True if a delivery is not acknowledged yet, or an acknowledgement has no answer yet."""
        return bool(self._held or self.acks_open)

    # ----------------------------------------------------------------------------- coming and going

    async def run(self) -> None:
        """Connect, subscribe and consume, and again after every loss of the connection.

        Returns when ``leave`` is done.
        """
        self._leaving = False
        client = FailoverClient(
            self._context,
            self.zone,
            self._nodes,
            self._random.getrandbits(64),
            self._up,
            self._down,
            self._store_session,
            self.client_id,
        )
        self._client = client
        try:
            await client.run()
        finally:
            self._client = None
            self._store_session = client.store_session
            if client.unclean_at is not None:
                self._unclean_at = client.unclean_at

    async def leave(self, style: Style) -> None:
        """Leave in order: end the subscriptions and then the connection, or the connection alone.

        Then ``run`` returns, or must be cancelled.
        """
        client, connection = self._client, self._connection
        if client is None:
            return
        self._held.clear()
        self.attached.clear()
        self._leaving = True
        if connection is not None and not connection.leaving:
            await self._part(style, connection)
        # The sessions that are still open end with the answer to DISCONNECT: deliveries before the
        # answer were sent to them.
        if connection is not None and not connection.closed:
            for session in self._open.values():
                self.ending(session)
        await client.finish()

    async def _part(self, style: Style, connection: Connection) -> None:
        """Do what a style of leaving requires before the end of the connection."""
        await (self._unsubscribe if style == "unsubscribe" else self._settle)(connection)

    async def _unsubscribe(self, connection: Connection) -> None:
        for session in tuple(self._open.values()):
            if not session.ending and not connection.closed:
                session.ending = True
                Unsubscribe(self, session, connection).begin()
                self.ending(session)
        await self._until(lambda: connection.closed or not self._open)

    async def _settle(self, connection: Connection) -> None:
        """Wait a moment for the answers to acknowledgements.

        Otherwise leaving would make their outcome unknown.
        """
        await self._until(lambda: connection.closed or not self.acks_open)

    async def _until(self, condition: Callable[[], bool]) -> None:
        end = self._loop.time() + LEAVE_PATIENCE_S
        while not condition() and self._loop.time() < end:  # noqa: ASYNC110 - rare, and cheaper than an event per ack
            await asyncio.sleep(0.005)

    def _up(self, connection: Connection) -> None:
        self._connection = connection
        self._left.clear()
        connection.on_message = self._message
        for queue in self._queues:
            session = self._session(queue, connection)
            self._open[session.subscription] = session
            Subscribe(self, session, connection).begin()

    def _session(self, queue: str, connection: Connection) -> Session:
        """Return a new session."""
        return self._sessions.begin(queue, connection.broker, connection.number)

    def _down(self, reason: str) -> None:
        self._connection = None
        self.attached.clear()
        self._held.clear()
        self._end_sessions(reason)

    def _end_sessions(self, reason: str) -> None:
        for session in self._open.values():
            self._record(
                self.observer,
                "info",
                "disconnect",
                queue=session.queue,
                session=session.number,
                connection=session.connection,
                subscription=session.subscription_name,
                broker=session.broker,
                error=reason,
            )
        self._open.clear()

    def subscribed(self, session: Session) -> None:
        """Mark a session as confirmed: the broker has answered its SUBSCRIBE."""
        session.confirmed = True
        if self._open and all(session.confirmed for session in self._open.values()):
            self.attached.set()

    def ending(self, session: Session) -> None:
        """Take note that the end of a session, or of its connection, is asked for."""

    def ended(self, session: Session) -> None:
        """Forget a session that never began, or whose end is confirmed: no disconnect row follows.

        Deliveries to it are late from now on.
        """
        self._open.pop(session.subscription, None)
        self._left[session.subscription] = session

    # ------------------------------------------------------------------------------------ consuming

    def _message(self, frame: Frame) -> None:
        headers = frame.headers
        subscription = headers.get("subscription", "")
        session = self._open.get(subscription) or self._left.get(subscription)
        if session is None:
            return  # a delivery to no session of this connection
        body = frame.body
        try:
            redelivered, count = self._context.dialect.delivery(headers)
        except ValueError:  # the broker's headers make no sense: no claim either way
            redelivered, count = None, None
        payload = decode(body)
        self.delivered_at = self.active_at = self._loop.time()
        counters = self._counters
        counters["deliver"] = counters.get("deliver", 0) + 1
        message, _, group, producer, sequence = payload or _UNREADABLE
        self._record(
            self.observer,
            "ok",
            "deliver",
            queue=session.queue,
            group=group,
            message=message,
            producer=producer,
            sequence=sequence,
            session=session.number,
            connection=session.connection,
            subscription=session.subscription_name,
            broker=session.broker,
            redelivered=redelivered,
            delivery_count=count,
            digest=digest(body),
            headers=arrived(headers),
            error=unreadable(body) if payload is None else None,
        )
        if session.ending or self._leaving:
            return  # not acknowledged any more: the session, or the connection, is about to end
        self.taken(session, headers.get("ack") or headers.get("message-id", ""), payload)

    def taken(self, session: Session, ack_id: str, payload: Payload | None) -> None:
        """Take a delivery that this consumer must acknowledge."""
        if not self._hold_s:
            self._acknowledge(session, ack_id, payload)
            return
        self._held.append((self.delivered_at + self._hold_s, session, ack_id, payload))
        if self._timer is None:
            self._timer = self._loop.call_later(self._hold_s, self._release)

    def _release(self) -> None:
        """Acknowledge the deliveries that were held long enough."""
        self._timer = None
        held = self._held
        now = self._loop.time()
        while held and held[0][0] <= now:
            _, session, ack_id, payload = held.popleft()
            self._acknowledge(session, ack_id, payload)
        if held:
            self._timer = self._loop.call_later(max(held[0][0] - now, 0.002), self._release)

    def _acknowledge(self, session: Session, ack_id: str, payload: Payload | None) -> None:
        self._answer(Ack, session, ack_id, payload)

    def _answer(self, kind: type[Ack | Nack], session: Session, ack_id: str, payload: Payload | None) -> None:
        connection = self._connection
        if connection is None or connection.closed:
            return
        operation = kind(self, session, payload)
        self.acks_open += 1
        self.row(operation, "invoke", None)
        connection.request(answer_head(kind.f.upper(), ack_id), operation)

    def row(self, operation: ConsumerOperation, type: str, error: str | None) -> None:  # noqa: A002 - the history's own name for it
        """Record a row of an operation."""
        session = operation.session
        message, _, group, producer, sequence = operation.payload or _UNREADABLE
        self._record(
            operation.process,
            type,
            operation.f,
            queue=session.queue,
            group=group,
            message=message,
            producer=producer,
            sequence=sequence,
            session=session.number,
            connection=session.connection,
            subscription=session.subscription_name,
            broker=None if type == "invoke" else session.broker,
            error=error,
            value=operation.value,
        )

    def acknowledged(self, type: str) -> None:  # noqa: A002 - as above
        """Count an acknowledgement that the broker has answered, or never will."""
        self.acks_open -= 1
        self.active_at = self._loop.time()
        self._counters[type] = self._counters.get(type, 0) + 1

    def asks(self, session: Session) -> Mapping[str, str]:
        """Return further headers of the SUBSCRIBE frame of a session."""
        del session
        return {}

    def subscribe_head(self, session: Session) -> bytes:
        """Return the head of the SUBSCRIBE frame of a session."""
        dialect = self._context.dialect
        return head(
            "SUBSCRIBE",
            {
                "id": session.subscription,
                "destination": dialect.destination(session.queue),
                "ack": dialect.ack_mode,
                **dialect.subscribe_headers(self._prefetch, session.queue),
                **self.asks(session),
            },
        )


def ack_head(ack_id: str) -> bytes:
    """Return the head of the ACK frame of a delivery."""
    return answer_head("ACK", ack_id)


def answer_head(command: str, ack_id: str) -> bytes:
    """Return the head of the ACK or NACK frame of a delivery."""
    if ack_id.isascii() and ack_id.isprintable() and ":" not in ack_id and "\\" not in ack_id:
        return f"{command}\nid:{ack_id}\n".encode()
    return head(command, {"id": ack_id})
