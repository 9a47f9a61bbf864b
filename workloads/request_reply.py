"""Workload ``request-reply``: who asks gets the answer in a temporary queue of its connection.

A requester has one connection. On it, it subscribes to a temporary queue, of a name that no other
has in the history, and then sends requests that name this queue as the one to reply to. Responders
consume the requests, and send the answer to each where the request says, before they acknowledge
it. Requesters come and go, some of them without a word: their queues end with their connections,
with what waits there, and each time they make another. Those that are there when the load ends stay
until the drain is over, since what is sent to them is owed to them.

Requests of a pair are answered there: a temporary queue is known to the broker where its owner is,
and to no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from harness.interface import Dialect, TestSpec, WorkloadContext
from stomp_protocol.codec import head
from stomp_protocol.frames import Frame
from workloads import names
from workloads.connection import Connection
from workloads.consumer import Consumer, Style
from workloads.drain import drain, everywhere
from workloads.layout import group_homes, pairs_of, staffed
from workloads.load import Churn, Load, Pair
from workloads.names import Numbers
from workloads.payload import PRODUCER_SHIFT, Payload
from workloads.producer import Producer, ProducerStream, Stream
from workloads.sending import Sending
from workloads.sessions import Session, Sessions

PREFETCH: Final = 5
"""Of a requester: some replies shall wait in its queue."""
PRESENT_S: Final = (0.5, 3.0)
AWAY_S: Final = (0.1, 1.0)
SILENT: Final = 0.3
"""How many of those who go do so without a word."""
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Requests:
    """What responders know of requests beside their bodies, which may arrive damaged.

    ``reply_to`` has the temporary queue of each, by its name in the history; ``given_up`` are those
    of which a reply was refused: it is not tried again.
    """

    reply_to: dict[int, str] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)


class Requester(Consumer):
    """Has a temporary queue for as long as its connection lives, and asks for replies there.

    Args:
        context, zone, nodes, sessions, prefetch, hold_s, seed: see ``Consumer``.
        prefix: of the names of its queues.
        numbers: gives each queue its number.
    """

    __slots__ = ("_dropping", "_numbers", "_prefix")

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
        prefix: str,
        numbers: Numbers,
    ) -> None:
        super().__init__(context, zone, nodes, (), sessions, prefetch=prefetch, hold_s=hold_s, seed=seed)
        self._prefix = prefix
        self._numbers = numbers
        self._dropping: int | None = None

    @property
    def connection(self) -> Connection | None:
        """Over which it asks, once it has a queue for the answers."""
        return self._connection if self.attached.is_set() else None

    @property
    def queue(self) -> str:
        """Its temporary queue, the last one if there is none now."""
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
        """Its connection is about to end, or has ended, and its queue with it."""
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
        """Go away without a word."""
        if self._connection is not None:
            self._connection.close("client went away")


@dataclass(frozen=True, slots=True)
class Asker:
    """A requester as a producer's client; it comes and goes by itself (``Stays``)."""

    requester: Requester

    @property
    def connection(self) -> Connection | None:
        """As the requester's."""
        return self.requester.connection

    @property
    def unclean_at(self) -> float | None:
        """As a consumer's."""
        return self.requester.unclean_at

    async def run(self) -> None:
        """Nothing to do until it is cancelled."""
        await asyncio.Event().wait()

    async def finish(self) -> None:
        """It stays to the end of the drain."""


class RequestStream(ProducerStream):
    """Requests of one requester to one queue and group."""

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
        """As a stream's, with the queue to reply to."""
        del sequence
        if self._requester.connection is None:
            return self.head, None
        queue, speech = self._requester.queue, self._dialect.temporaries
        assert speech is not None, "a dialect without temporary queues"
        self._requests.reply_to[self.producer.number << PRODUCER_SHIFT | self.producer.sent] = queue
        asking = f"{speech.reply_to}:{self._dialect.destination(queue)}\n".encode()
        return self.head + asking, msgspec.json.encode({"reply_to": queue}).decode()


class Responder(Consumer):
    """Answers requests: it sends each reply where the request says, then acknowledges the request.

    Args:
        context, zone, nodes, queues, sessions, prefetch, hold_s, seed: see ``Consumer``.
        producer: whose messages its replies are.
        requests: what is known of requests.
    """

    __slots__ = ("_producer", "_reply_to", "_requests", "_streams", "context")

    def __init__(
        self,
        context: WorkloadContext,
        zone: str,
        nodes: Sequence[str],
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
        """What each delivery that is held says of where to reply, by what its ACK names."""
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
    """Each pair has requesters, as many as a test has producers, and responders, its consumers."""

    name = "request-reply"
    grouped = True
    description = "requests, and replies to temporary queues that end with their connections"

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._requests = Requests()
        self._stays: Sequence[Stays] = ()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """As ``Load``'s."""
        return "" if dialect.temporaries is not None else "temporary queues that clients can name"

    @classmethod
    def queues_of(cls, spec: TestSpec, prefix: str = "") -> tuple[str, ...]:
        """Each pair has as many as a test has queues."""
        return names.queues(prefix, spec.pairs * max(spec.queues, 1))

    async def run(self, context: WorkloadContext) -> None:
        """As a load's; every other message is a reply, and counts, too."""
        spec = msgspec.structs.replace(context.spec, rate=context.spec.rate / 2)
        try:
            await super().run(msgspec.structs.replace(context, spec=spec))
        except BaseException:
            for stay in self._stays:
                stay.abandon()
            raise
        self._remember([one for stay in self._stays for one in stay.requesters])

    async def drain(self, context: WorkloadContext) -> None:
        """Drain as a load does; then let the requesters leave, once no reply comes any more.

        Each reply is acknowledged before that, since more may wait for it (``PREFETCH``).
        """
        loop = asyncio.get_running_loop()
        stations = everywhere(context, pairs_of(context.nodes), self.queues(context), self._sessions)
        await drain(context, stations, self._unclean_at)
        requesters = [one for stay in self._stays for one in stay.requesters]
        quiet_s = context.dialect.quiet_s(context.spec.quiet_period_s)
        while any(requester.busy or loop.time() - requester.active_at < quiet_s for requester in requesters):  # noqa: ASYNC110 - as in the drain
            await asyncio.sleep(_POLL_S)
        await asyncio.gather(*(stay.part() for stay in self._stays))

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """One for each requester, and each queue and group of its pair."""
        queues = self.queues(context)
        groups: list[list[str | None]] = [[] for _ in pairs]
        for group, home, _ in group_homes(max(context.spec.groups, len(pairs)), len(pairs)):
            groups[home].append(group if context.dialect.group_header is not None else None)
        return [
            RequestStream(context, Asker(requester), producer, queue, group, self._requests)
            for place, (pair, stay) in enumerate(zip(pairs, self._stays, strict=True))
            for (producer, _), requester in zip(pair.producers, stay.requesters, strict=True)
            for queue in queues[place :: len(pairs)]
            for group in dict.fromkeys(groups[place])
        ]

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        spec, chance = context.spec, context.random
        hold_s, prefetch = self._consuming(spec, full_speed=full_speed)
        pairs = [Pair(name, nodes) for name, nodes in pairs_of(context.nodes).items()]
        homes = {pair.name: place for place, pair in enumerate(pairs)}
        asking: dict[str, list[Requester]] = {pair.name: [] for pair in pairs}
        clients = list(staffed(spec.producers, pairs, context.zones))
        first = self._numbers.producers(len(clients))
        for number, pair, zone in clients:
            requester = Requester(
                context,
                zone,
                pair.nodes,
                self._sessions,
                prefetch=spec.prefetch or PREFETCH,
                hold_s=hold_s,
                seed=chance.getrandbits(64),
                prefix=self._prefix,
                numbers=self._numbers,
            )
            asking[pair.name].append(requester)
            pair.producers.append((Producer(first + number), Asker(requester)))
        clients = list(staffed(spec.consumers, pairs, context.zones))
        first = self._numbers.producers(len(clients))
        for number, pair, zone in clients:
            responder = Responder(
                context,
                zone,
                pair.nodes,
                self.queues(context)[homes[pair.name] :: len(pairs)],
                self._sessions,
                prefetch=prefetch,
                hold_s=hold_s,
                seed=chance.getrandbits(64),
                producer=Producer(first + number),
                requests=self._requests,
            )
            pair.consumers.append(responder)
        self._stays = [Stays(asking[pair.name], chance.getrandbits(64)) for pair in pairs]
        return pairs

    def _churns(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Churn]:
        return [*super()._churns(context, pairs), *self._stays]


class Stays(Churn):
    """The requesters of one pair, who come and go; those that are there at the end wait.

    Their tasks are no part of the load's, which ends before the drain.
    """

    def __init__(self, requesters: Sequence[Requester], seed: int) -> None:
        super().__init__(requesters, seed)
        self.requesters = requesters

    def begin(self, group: asyncio.TaskGroup | asyncio.AbstractEventLoop) -> None:
        """All of them come."""
        del group
        super().begin(asyncio.get_running_loop())

    async def run(self) -> None:
        """Let one leave, or vanish, and return, again and again, until cancelled."""
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
        """Let those leave who were about to; the others stay until the drain is over (``part``)."""
        leaving = [requester for requester in self._stays if requester.leaving]
        await asyncio.gather(*(self._leave(requester, "disconnect") for requester in leaving))

    async def part(self) -> None:
        """All of them leave in order."""
        await super().end()

    def abandon(self) -> None:
        """The load has failed: they go at once."""
        for stay in self._stays.values():
            stay.cancel()
