"""Workload ``destinations``: queues that an administrator makes, deletes and makes again.

Producers send and consumers consume all the while. A ``create`` makes a queue last; a ``delete``
ends it, with its messages and its consumers. Clients do not wait for that: what they send to a
queue that is gone begins it anew, as brokers do where clients may make queues.

Each request goes to a broker that is drawn from all that it concerns. In a cluster whose brokers
change queues together these are all brokers, and clients of all pairs use each queue. Elsewhere a
broker deletes only its own queue. So each queue is at home with a pair, as topics are, and so are
its clients.

After a ``delete`` of unknown outcome a queue may end at any time. So its name is given up for good,
and clients go on with the next one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.interface import CommandRefusedError, Dialect, TestSpec, WorkloadContext
from stomp_protocol.client.connection import Connection
from workloads import names, placement
from workloads.consumer import Consumer
from workloads.drain import PREFETCH, drain
from workloads.load import Churn, Load, Pair
from workloads.processes import Processes
from workloads.producer import ProducerStream

LASTING_S: Final = (0.3, 3.0)
"""The seconds, lowest and highest, for which a queue that was created is left alone."""
GONE_S: Final = (0.05, 1.5)
"""The seconds, lowest and highest, until a queue that was deleted is created again."""
PRESENT_S: Final = (0.3, 2.0)
AWAY_S: Final = (0.3, 2.0)
ALL_AWAY: Final = 0.6
"""The probability that all consumers leave, and not only one."""
AGAIN_S: Final = 0.3
"""The seconds until a request that was refused is made again."""

_CANCELLED: Final[tuple[str, str | None]] = ("info", "the test ended")
"""The outcome of a request whose answer the test does not wait for."""


@dataclass(slots=True, eq=False)
class ManagedQueue:
    """A queue that an administrator makes and deletes.

    ``home`` is the pair of its clients; None: they are at all pairs. ``names`` are all names that
    it has had; only the last one is used. ``there`` says whether it exists, by the latest answer;
    None where no broker answered yet or that is in doubt.
    """

    base: str
    home: str | None
    names: list[str] = field(default_factory=list)
    there: bool | None = None
    doubtful: bool = False
    """True if a request about the present name had an unknown outcome."""

    def __post_init__(self) -> None:
        self.names.append(self.base)

    @property
    def name(self) -> str:
        """The present name."""
        return self.names[-1]

    def begin_again(self) -> None:
        """Take the next name, because the present one may end at any time."""
        self.names.append(f"{self.base}-{len(self.names)}")
        self.there = None
        self.doubtful = False


class DestinationConsumer(Consumer):
    """A consumer of the queues of one pair, under their present names."""

    __slots__ = ("managed",)
    managed: Sequence[ManagedQueue]

    def _up(self, connection: Connection) -> None:
        self._queues = tuple(queue.name for queue in self.managed)
        super()._up(connection)


class DestinationsLoad(Load):
    """A load in which an administrator makes and deletes the queues that clients use."""

    name = "destinations"
    description = "queues that an administrator creates, deletes with their messages, and creates again"
    at_home = True
    repeats = False
    """Brokers forget the ids of repeated sends with the queue that is deleted."""
    consumer_kind = DestinationConsumer

    _managed: Sequence[ManagedQueue] = ()
    _leaving: Sequence[Churn] = ()
    _sending: Sequence[ProducerStream] = ()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what brokers lack: the load needs commands that create and delete queues."""
        return "" if dialect.queue_commands else "commands that create and delete queues"

    @classmethod
    def policies(cls, dialect: Dialect) -> Collection[str] | None:
        """Return the policies under which a deletion ends all that its clients can reach."""
        return dialect.queue_commands.policies if dialect.queue_commands else None

    @classmethod
    def shared_by(cls, dialect: Dialect) -> Collection[str]:
        """Return the policies under which all brokers make and delete queues together."""
        return dialect.queue_commands.shared_by if dialect.queue_commands else ()

    @classmethod
    def queues_of(cls, spec: TestSpec, prefix: str = "") -> tuple[str, ...]:
        """Return the first names of the queues: as many for each pair as a test has queues."""
        return names.queues(prefix, spec.pairs * max(spec.queues, 1))

    def _together(self, context: WorkloadContext) -> bool:
        """Return whether all brokers make and delete queues together."""
        shares = context.spec.policy in self.shared_by(context.dialect)
        return shares and any(node.master for node in context.nodes)

    def _queues_at(self, pair: str) -> list[ManagedQueue]:
        return [queue for queue in self._managed if queue.home in (None, pair)]

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        homes = [*placement.consuming(context)]
        together = self._together(context)
        self._managed = [
            ManagedQueue(queue, None if together else homes[place % len(homes)])
            for place, queue in enumerate(self.queues(context))
        ]
        pairs = super()._staff(context, full_speed=full_speed)
        for pair in pairs:
            for consumer in pair.consumers:
                assert isinstance(consumer, DestinationConsumer), "a consumer of another workload"
                consumer.managed = self._queues_at(pair.name)
        return pairs

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream for each producer, and each queue of its pair."""
        self._sending = [
            ProducerStream(context, client, producer, queue.name, None)
            for pair in pairs
            for queue in self._queues_at(pair.name)
            for producer, client in pair.producers
        ]
        return [*self._sending]

    def _churns(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Churn]:
        sets = [pair.consumers for pair in pairs]
        if self._together(context):
            sets = [[consumer for consumers in sets for consumer in consumers]]
        self._leaving = [Absences(consumers, context.random.getrandbits(64)) for consumers in sets]
        return [*self._leaving]

    def _besides(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Coroutine[Any, Any, None]]:
        del pairs
        return [self._administer(context, queue, context.random.getrandbits(64)) for queue in self._managed]

    async def _administer(self, context: WorkloadContext, queue: ManagedQueue, seed: int) -> None:
        """Make a queue and delete it, again and again, until cancelled."""
        chance, churn = random.Random(seed), context.spec.churn
        administrator = Administrator(context, chance)
        await asyncio.sleep(chance.uniform(*GONE_S) / churn)
        while True:
            if not await administrator.request("create", queue):
                await asyncio.sleep(AGAIN_S)
                continue
            await asyncio.sleep(chance.uniform(*LASTING_S) / churn)
            await self._delete(administrator, queue)
            if queue.there is None:
                await self._go_on(context, queue)
            await asyncio.sleep(chance.uniform(*GONE_S) / churn)

    async def _delete(self, administrator: Administrator, queue: ManagedQueue) -> None:
        """Request the deletion of a queue until it is certain, or in doubt."""
        while True:
            if await administrator.request("delete", queue) or queue.there is None:
                return
            await asyncio.sleep(AGAIN_S)

    async def _go_on(self, context: WorkloadContext, queue: ManagedQueue) -> None:
        """Give the present name of a queue up, and let its clients go on with the next one."""
        former = queue.name
        queue.begin_again()
        for stream in self._sending:
            if stream.queue == former:
                stream.go_to(context, queue.name)
        for churn in self._leaving:
            await churn.renew()

    def answered_queues(self) -> Mapping[str, bool]:
        """Return for queues not in doubt whether brokers answered that all of them have it."""
        return {
            queue.name: queue.there
            for queue in self._managed
            if queue.home is None and queue.there is not None and not queue.doubtful
        }

    async def drain(self, context: WorkloadContext) -> None:
        """Consume the messages of all queues, under all their names, on every station."""
        stations = []
        for station in placement.stations(context):
            used_names = [name for queue in self._queues_at(station.pair) for name in queue.names]
            if used_names:
                consumer = Consumer(
                    context,
                    station.zone,
                    (station.node,),
                    used_names,
                    self._sessions,
                    prefetch=PREFETCH,
                    hold_s=0.0,
                    seed=context.random.getrandbits(64),
                )
                stations.append((station.pair, consumer))
        await drain(context, stations, self._unclean_at)


class Absences(Churn):
    """The churn of the consumers of some queues: often all are away, so that messages wait."""

    async def run(self) -> None:
        """Let one consumer or all of them leave and return, again and again, until cancelled."""
        chance = self._random
        while True:
            await asyncio.sleep(chance.uniform(*PRESENT_S))
            there = [consumer for consumer in self._stays if consumer.attached.is_set()]
            if there and chance.random() > ALL_AWAY:
                there = [chance.choice(there)]
            for consumer in there:
                async with self._moving:
                    if consumer in self._stays and consumer.attached.is_set():
                        await self._leave(consumer, "disconnect" if chance.random() < 0.5 else "unsubscribe")
            await asyncio.sleep(chance.uniform(*AWAY_S))
            for consumer in self._consumers:
                if consumer not in self._stays:
                    self._stays[consumer] = self._group.create_task(consumer.run())


class Administrator:
    """The requests about one queue, each at a broker that is drawn from those of its clients."""

    def __init__(self, context: WorkloadContext, chance: random.Random) -> None:
        assert context.dialect.queue_commands is not None, "a dialect without commands about queues"
        self._commands = context.dialect.queue_commands
        self._context = context
        self._random = chance
        self._processes = Processes(context.recorder)

    async def request(self, f: str, queue: ManagedQueue) -> bool:
        """Request a ``create`` or a ``delete``, and return whether it was answered ``ok``."""
        creates = f == "create"
        commands = self._commands
        command = commands.create if creates else commands.delete
        arguments = {"queue": queue.name, **({} if creates else commands.deleting)}
        node = self._random.choice(self._nodes(queue))
        process = self._processes.take()
        before, queue.there = queue.there, None
        self._record(process, "invoke", f, queue)
        type_, error = _CANCELLED
        try:
            type_, error = await self._outcome(node, command, arguments)
        finally:
            self._record(process, type_, f, queue, None if type_ == "fail" else node, error)
            self._processes.give(process, type_)
            queue.doubtful |= type_ == "info"
            queue.there = {"ok": creates, "fail": before}.get(type_)
        return type_ == "ok"

    async def _outcome(self, node: str, command: str, arguments: Mapping[str, Any]) -> tuple[str, str | None]:
        """Give a command to a broker; return the type of the answer's row and why it is not ok."""
        context = self._context
        assert context.administer is not None, "nobody administers the brokers of this test"
        try:
            async with asyncio.timeout(context.spec.operation_timeout_s):
                await context.administer(node, command, arguments)
        except (CommandRefusedError, ConnectionRefusedError) as error:
            return "fail", str(error)
        except TimeoutError:
            return "info", f"no answer within {context.spec.operation_timeout_s:g} s"
        except OSError as error:
            return "info", str(error)
        return "ok", None

    def _nodes(self, queue: ManagedQueue) -> list[str]:
        """Return the brokers that a request about a queue may go to; a node that left is none."""
        pairs = placement.pairs_of(self._context.nodes)
        brokers = [node for pair in pairs if queue.home in (None, pair) for node in pairs[pair]]
        return [node for node in brokers if node not in self._context.departed] or brokers

    def _record(
        self,
        process: int,
        type: str,  # noqa: A002 - the history's own name for it
        f: str,
        queue: ManagedQueue,
        broker: str | None = None,
        error: str | None = None,
    ) -> None:
        self._context.recorder.event(process, type, f, queue=queue.name, broker=broker, error=error)
