"""Workload ``request-reply``: requests, and replies to temporary queues of the requesters.

A requester has one connection, on which it subscribes to a temporary queue. The queue's name is
unique in the history. Then it sends requests that ask for replies to this queue. Responders consume
the requests. They send the reply to each request where the request says, before they acknowledge
the request. Requesters come and go, some without DISCONNECT. Their queues end with their
connections, with the messages that wait there, and each time they make another. Requesters that are
present when the load ends stay until the drain is over, since replies are owed to them.

Requests of a pair are answered there, since in some clusters only the broker of its owner takes
messages to a temporary queue. Where brokers forward replies, a test may have the responders at
another pair than the requesters (``share_replies``, or ``produce_at`` and ``consume_at``). Then
requests have no groups, because brokers do not forward messages of groups to queues.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from harness.interface import Dialect, TestSpec, WorkloadContext
from stomp_protocol.client.connection import Connection
from stomp_protocol.codec import head
from stomp_protocol.frames import Frame
from workloads import names, placement
from workloads.consumer import Consumer, Style
from workloads.drain import drain, draining
from workloads.failover import Nodes
from workloads.load import Churn, Load, Pair
from workloads.names import Numbers
from workloads.payload import PRODUCER_SHIFT, Payload
from workloads.producer import Producer, ProducerStream, Stream
from workloads.sending import Sending
from workloads.sessions import Session, Sessions

PREFETCH: Final = 5
"""The prefetch of a requester, which is low so that some replies wait in its queue."""
PRESENT_S: Final = (0.5, 3.0)
AWAY_S: Final = (0.1, 1.0)
SILENT: Final = 0.3
"""The share of leaving requesters that close their connection without DISCONNECT."""
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests as responders know them; the bodies of requests may arrive damaged.

    ``reply_to`` has the temporary queue of each request, by its name in the history. ``given_up``
    are requests whose reply was refused: it is not tried again.
    """

    reply_to: dict[int, str] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)


class Requester(Consumer):
    """A consumer of a temporary queue of its own, to which it asks for replies.

    The queue lasts as long as the connection.

    Args:
        context, zone, nodes, sessions, prefetch, hold_s, seed: see ``Consumer``.
        prefix: the prefix of the names of its queues.
        numbers: the source of the numbers of its queues.
    """

    __slots__ = ("_dropping", "_numbers", "_prefix")

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
        prefix: str,
        numbers: Numbers,
    ) -> None:
        super().__init__(context, zone, nodes, (), sessions, prefetch=prefetch, hold_s=hold_s, seed=seed)
        self._prefix = prefix
        self._numbers = numbers
        self._dropping: int | None = None

    @property
    def connection(self) -> Connection | None:
        """The connection on which it sends requests; None while it has no queue for the replies."""
        return self._connection if self.attached.is_set() else None

    @property
    def queue(self) -> str:
        """The name of its temporary queue, or of the last one if it has none now."""
        return self._queues[0]

    def _up(self, connection: Connection) -> None:
        self._queues = (names.temporary_queue(self._prefix, next(self._numbers.temporaries)),)
        super()._up(connection)

    async def _part(self, style: Style, connection: Connection) -> None:
        del style  # its queue ends with the connection, however it goes
        await self._settle(connection)
        if not connection.closed:
            self._drop(connection)

    def _down(self, reason: str) -> None:
        connection = self._connection
        super()._down(reason)
        if connection is None:
            return
        if self._dropping is None:
            self._drop(connection)
        assert self._dropping is not None, "a drop that was asked for"
        clean = connection.clean
        self._drop_row(self._dropping, "ok" if clean else "info", connection, None if clean else reason)
        self.processes.give(self._dropping, "ok" if clean else "info")
        self._dropping = None

    def _drop(self, connection: Connection) -> None:
        """Record that its queue is to end, because its connection is about to end or has ended."""
        self._dropping = self.processes.take()
        self._drop_row(self._dropping, "invoke", connection, None)

    def _drop_row(self, process: int, type: str, connection: Connection, error: str | None) -> None:  # noqa: A002 - the history's own name for it
        self._record(
            process,
            type,
            "drop",
            queue=self.queue,
            connection=connection.number,
            broker=None if type == "invoke" else connection.broker,
            error=error,
        )

    def vanish(self) -> None:
        """Close the connection without DISCONNECT."""
        if self._connection is not None:
            self._connection.close("client went away")


@dataclass(frozen=True, slots=True)
class Asker:
    """The client of a producer whose connection is a requester's.

    ``Stays`` lets the requester come and go.
    """

    requester: Requester

    @property
    def connection(self) -> Connection | None:
        """The connection of the requester; None while it has no queue."""
        return self.requester.connection

    @property
    def unclean_at(self) -> float | None:
        """The loop time of the requester's latest unclean end of a connection."""
        return self.requester.unclean_at

    @property
    def away(self) -> bool:
        """True from when the requester was told to leave until it connects again."""
        return self.requester.leaving

    async def run(self) -> None:
        """Wait until cancelled: there is nothing to do."""
        await asyncio.Event().wait()

    async def finish(self) -> None:
        """Do nothing: the requester stays to the end of the drain."""


class RequestStream(ProducerStream):
    """A stream of one requester's requests to one queue and group."""

    __slots__ = ("_dialect", "_requester", "_requests")

    def __init__(
        self,
        context: WorkloadContext,
        asker: Asker,
        producer: Producer,
        queue: str,
        group: str | None,
        requests: Requests,
    ) -> None:
        super().__init__(context, asker, producer, queue, group)
        self._dialect = context.dialect
        self._requester = asker.requester
        self._requests = requests

    def asked(self, sequence: int) -> tuple[bytes, str | None]:
        """Return the head of a request's frame and its ``value``, with the queue to reply to."""
        del sequence
        if self._requester.connection is None:
            return self.head, None
        queue, speech = self._requester.queue, self._dialect.temporaries
        assert speech is not None, "a dialect without temporary queues"
        self._requests.reply_to[self.producer.number << PRODUCER_SHIFT | self.producer.sent] = queue
        asking = f"{speech.reply_to}:{self._dialect.destination(queue)}\n".encode()
        return self.head + asking, msgspec.json.encode({"reply_to": queue}).decode()


class Responder(Consumer):
    """A consumer of requests that sends each reply and then acknowledges the request.

    Args:
        context, zone, nodes, queues, sessions, prefetch, hold_s, seed: see ``Consumer``.
        producer: the producer of its replies.
        requests: the requests that were sent, shared with the requesters.
    """

    __slots__ = ("_producer", "_reply_to", "_requests", "_streams", "context")

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
        producer: Producer,
        requests: Requests,
    ) -> None:
        super().__init__(context, zone, nodes, queues, sessions, prefetch=prefetch, hold_s=hold_s, seed=seed)
        self.context = context
        self._producer = producer
        self._requests = requests
        self._reply_to: dict[str, str] = {}
        """The destination of the reply to each held delivery, by the id that its ACK names."""
        self._streams: dict[tuple[str, str | None], Stream] = {}

    def _up(self, connection: Connection) -> None:
        self._reply_to.clear()
        super()._up(connection)

    def _message(self, frame: Frame) -> None:
        speech = self.context.dialect.temporaries
        assert speech is not None, "a dialect without temporary queues"
        headers = frame.headers
        if speech.reply_to in headers:
            self._reply_to[headers.get("ack") or headers.get("message-id", "")] = headers[speech.reply_to]
        super()._message(frame)

    def _acknowledge(self, session: Session, ack_id: str, payload: Payload | None) -> None:
        where = self._reply_to.pop(ack_id, None)
        connection = self._connection
        if connection is not None and not connection.closed and payload is not None and where is not None:
            request = payload.message
            if request in self._requests.reply_to and request not in self._requests.given_up:
                self._reply(connection, payload, where)
        super()._acknowledge(session, ack_id, payload)

    def _reply(self, connection: Connection, request: Payload, where: str) -> None:
        queue = self._requests.reply_to[request.message]
        stream = self._streams.get((queue, request.group))
        if stream is None:
            stream = Stream(self.context, self._producer, queue, request.group)
            self._streams[queue, request.group] = stream
        process = self.processes.take()
        headers = self.context.dialect.send_headers(stream.group, stream.queue)
        Sending(self.context, connection, stream, process, self._ending(process, request.message)).send(
            head("SEND", {"destination": where, **headers}), stream.producer.next_message()
        )

    def _ending(self, process: int, request: int) -> Callable[[str, str | None], None]:
        def ended(type_: str, error: str | None) -> None:
            self.processes.give(process, type_)
            if error is not None and error.startswith("refused"):
                self._requests.given_up.add(request)  # it would be refused again

        return ended


class RequestReplyLoad(Load):
    """A load of requesters, as many as a test has producers, and of responders, its consumers."""

    name = "request-reply"
    grouped = True
    at_home = True
    description = "requests, and replies to temporary queues that end with their connections"

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._requests = Requests()
        self._stays: Sequence[Stays] = ()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what brokers lack: the load needs temporary queues that clients can name."""
        return "" if dialect.temporaries is not None else "temporary queues that clients can name"

    @classmethod
    def shared_by(cls, dialect: Dialect) -> Collection[str]:
        """Return the policies under which brokers forward replies to temporary queues."""
        return dialect.temporaries.shared_by if dialect.temporaries is not None else ()

    @classmethod
    def queues_of(cls, spec: TestSpec, prefix: str = "") -> tuple[str, ...]:
        """Return the queues of requests: each pair has as many as a test has queues."""
        return names.queues(prefix, spec.pairs * max(spec.queues, 1))

    async def run(self, context: WorkloadContext) -> None:
        """Run the load at half of the rate: each request has a reply, which counts, too."""
        spec = msgspec.structs.replace(context.spec, rate=context.spec.rate / 2)
        try:
            await super().run(msgspec.structs.replace(context, spec=spec))
        except BaseException:
            for stay in self._stays:
                stay.abandon()
            raise
        self._remember([one for stay in self._stays for one in stay.requesters])

    async def drain(self, context: WorkloadContext) -> None:
        """Drain the requests; then let the requesters leave, once no reply comes any more.

        Each reply is acknowledged before that, since more replies may wait for the acknowledgement
        (``PREFETCH``).
        """
        loop = asyncio.get_running_loop()
        await drain(
            context, draining(context, self.queues(context), self._sessions, Consumer), self._unclean_at
        )
        requesters = [one for stay in self._stays for one in stay.requesters]
        quiet_s = context.dialect.quiet_s(context.spec.quiet_period_s)
        while any(requester.busy or loop.time() - requester.active_at < quiet_s for requester in requesters):  # noqa: ASYNC110 - as in the drain
            await asyncio.sleep(_POLL_S)
        await asyncio.gather(*(stay.part() for stay in self._stays))

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream for each requester, and each queue and group of its pair."""
        queues = self.queues(context)
        groups = placement.groups_by_pair(context, len(pairs))
        if self._is_apart(context):
            groups = [[None]] * len(pairs)
        return [
            RequestStream(context, Asker(requester), producer, queue, group, self._requests)
            for place, (pair, stay) in enumerate(zip(pairs, self._stays, strict=True))
            for (producer, _), requester in zip(pair.producers, stay.requesters, strict=True)
            for queue in queues[place :: len(pairs)]
            for group in groups[place]
        ]

    @staticmethod
    def _is_apart(context: WorkloadContext) -> bool:
        """Return whether requests may be answered at other pairs than where they are sent."""
        spec = context.spec
        same = [*placement.producing(context)] == [*placement.consuming(context)]
        return spec.share_replies or bool(spec.client_brokers) or not same

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        spec, chance = context.spec, context.random
        hold_s, prefetch = self._consuming(spec, full_speed=full_speed)
        pairs = {name: Pair(name) for name in placement.pairs_of(context.nodes)}
        asking: dict[str, list[Requester]] = {name: [] for name in placement.producing(context)}
        clients = placement.producers(context)
        first = self._numbers.producers(len(clients))
        for seat in clients:
            requester = Requester(
                context,
                seat.zone,
                seat.nodes,
                self._sessions,
                prefetch=spec.prefetch or PREFETCH,
                hold_s=hold_s,
                seed=chance.getrandbits(64),
                prefix=self._prefix,
                numbers=self._numbers,
            )
            asking[seat.pair].append(requester)
            pairs[seat.pair].producers.append((Producer(first + seat.number), Asker(requester)))
        clients = placement.consumers(context)
        first = self._numbers.producers(len(clients))
        queues, places = self.queues(context), len(placement.consuming(context))
        away = 1 if spec.share_replies else 0
        for seat in clients:
            responder = Responder(
                context,
                seat.zone,
                seat.nodes,
                queues[(seat.place + away) % places :: places],
                self._sessions,
                prefetch=prefetch,
                hold_s=hold_s,
                seed=chance.getrandbits(64),
                producer=Producer(first + seat.number),
                requests=self._requests,
            )
            pairs[seat.pair].consumers.append(responder)
        self._stays = [Stays(some, chance.getrandbits(64)) for some in asking.values()]
        return [*pairs.values()]

    def _churns(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Churn]:
        return [*super()._churns(context, pairs), *self._stays]


class Stays(Churn):
    """The churn of the requesters of one pair; those that are present at the end of the load stay.

    Their tasks do not belong to the load's, which end before the drain.
    """

    def __init__(self, requesters: Sequence[Requester], seed: int) -> None:
        super().__init__(requesters, seed)
        self.requesters = requesters

    def begin(self, group: asyncio.TaskGroup | asyncio.AbstractEventLoop) -> None:
        """Start all requesters."""
        del group
        super().begin(asyncio.get_running_loop())

    async def run(self) -> None:
        """Let one requester leave, or vanish, and return, again and again, until cancelled."""
        chance = random.Random(self._random.getrandbits(64))
        while True:
            await asyncio.sleep(chance.uniform(*PRESENT_S))
            there = [one for one in self.requesters if one in self._stays and one.attached.is_set()]
            if not there:
                continue
            one = chance.choice(there)
            if chance.random() < SILENT:
                one.vanish()
                continue
            await self._leave(one, "disconnect")
            await asyncio.sleep(chance.uniform(*AWAY_S))
            self._stays[one] = self._group.create_task(one.run())

    async def end(self) -> None:
        """Let the requesters leave that were about to; the others stay until ``part``."""
        leaving = [requester for requester in self._stays if requester.leaving]
        await asyncio.gather(*(self._leave(requester, "disconnect") for requester in leaving))

    async def part(self) -> None:
        """Let all requesters leave in order."""
        await super().end()

    def abandon(self) -> None:
        """Cancel all requesters at once, because the load has failed."""
        for stay in self._stays.values():
            stay.cancel()
