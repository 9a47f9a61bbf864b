"""The base of all workloads: clients that connect, work until told to stop, and drain.

Clients complete the operations that they began before they stop.

Workloads differ mainly in their *streams*: which producer sends to which queue and group, through
which pair.
"""

from __future__ import annotations

import abc
import asyncio
import random
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from harness.interface import Dialect, InfrastructureError, TestSpec, WorkloadContext
from workloads import names, placement
from workloads.consumer import Consumer, Style
from workloads.drain import drain, draining
from workloads.failover import Client, FailoverClient
from workloads.names import Numbers
from workloads.pacer import Pacer
from workloads.producer import Producer, ProducerStream

UP_S: Final = 10.0
"""The seconds that clients have to connect; then the load begins without those that have not.

If brokers are suspended at first, they have these seconds besides. Clients of brokers that join
during the load are not waited for.
"""

PREFETCH: Final = 100
HOLD_S: Final = 0.02
PRESENT_S: Final = (1.0, 4.0)
AWAY_S: Final = (0.3, 1.5)
FULL_SPEED_PIPELINE: Final = 8


@dataclass(frozen=True, slots=True)
class Pair:
    """The producers and consumers that connect to a pair of brokers."""

    name: str
    producers: list[tuple[Producer, Client]] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)


class Load(abc.ABC):
    """A workload without streams; see ``harness.interface.Workload``.

    Args:
        pipeline: the sends under way per producer and group (or queue); None: 1, or 8 where the
            rate is "as fast as possible".
        prefix: the prefix of the names of its queues and topics; "" where it is the only workload.
        numbers: the source of numbers, shared with the other workloads of the test.
    """

    name = ""
    description = ""
    grouped: ClassVar[bool] = False
    """True if its messages have groups, where brokers have groups."""
    refuses: ClassVar[bool] = False
    """True if its consumers refuse messages, where brokers let them."""
    at_home: ClassVar[bool] = False
    """True if producers and consumers must be at the same pairs, except under ``shared_by``."""
    repeats: ClassVar[bool] = True
    """True if sends of unknown outcome may be repeated, where a test asks for it."""
    consumer_kind: ClassVar[type[Consumer]] = Consumer
    queues_least: ClassVar[int] = 1

    def __init__(
        self, *, pipeline: int | None = None, prefix: str = "", numbers: Numbers | None = None
    ) -> None:
        self._pipeline = pipeline
        self._prefix = prefix
        self._numbers = numbers or Numbers()
        self._sessions = self._numbers.sessions
        self._unclean_at: float | None = None

    @classmethod
    def queues_of(cls, spec: TestSpec, prefix: str = "") -> tuple[str, ...]:
        """Return its queues in a test of a spec: they must exist before any client connects."""
        return names.queues(prefix, max(spec.queues, cls.queues_least))

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what the load needs and brokers of a dialect lack; "" if nothing."""
        del dialect
        return ""

    @classmethod
    def policies(cls, dialect: Dialect) -> Collection[str] | None:
        """Return the policies under which brokers can be loaded with it; None: all."""
        del dialect
        return None

    @classmethod
    def shared_by(cls, dialect: Dialect) -> Collection[str]:
        """Return the policies under which what the load uses at one pair is there for all pairs."""
        del dialect
        return ()

    def queues(self, context: WorkloadContext) -> tuple[str, ...]:
        """Return its queues in this test."""
        return self.queues_of(context.spec, self._prefix)

    @classmethod
    def topics_of(cls, spec: TestSpec, prefix: str = "") -> tuple[str, ...]:
        """Return its topics in a test of a spec, by their names in the history."""
        del spec, prefix
        return ()

    def topics(self, context: WorkloadContext) -> tuple[str, ...]:
        """Return its topics in this test."""
        return self.topics_of(context.spec, self._prefix)

    @abc.abstractmethod
    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return the streams of the workload: which producer of ``pairs`` sends where."""

    async def run(self, context: WorkloadContext) -> None:
        """Load the cluster until ``context.stopping`` is set.

        Returns when every operation is completed.

        Raises InfrastructureError when no producer could connect at all before the load began.
        """
        full_speed = context.spec.rate <= 0
        pairs = self._staff(context, full_speed=full_speed)
        consumers = [consumer for pair in pairs for consumer in pair.consumers]
        clients = [client for pair in pairs for _, client in pair.producers]
        pacer = Pacer(context.spec.rate)
        pipeline = self._pipeline or (FULL_SPEED_PIPELINE if full_speed else 1)
        producing = [pair for pair in pairs if pair.producers]
        streams = self.streams(context, producing)
        pacer.drive(context, streams, pipeline, context.random, repeats=self.repeats)
        churns = self._churns(context, [pair for pair in pairs if pair.consumers])
        async with asyncio.TaskGroup() as group:
            stays = [group.create_task(client.run()) for client in clients]
            for churn in churns:
                churn.begin(group)
            up = await _come_up(context, _present(context, pairs))
            if not up and not context.stopping.is_set():
                raise InfrastructureError(
                    f"none of {len(clients)} producers could connect to a broker within "
                    f"{context.suspended_s + UP_S:g} s: "
                    "see the connect rows of the history and the brokers' logs"
                )
            working = [group.create_task(pacer.run()), *(group.create_task(churn.run()) for churn in churns)]
            working += [group.create_task(work) for work in self._besides(context, producing)]
            await context.stopping.wait()
            for task in working:
                task.cancel()
            await asyncio.wait(working)
            while pacer.busy:  # noqa: ASYNC110 - bounded by the operation time-out
                await asyncio.sleep(0.005)
            await asyncio.gather(*(churn.end() for churn in churns), *(client.finish() for client in clients))
            for task in stays:
                task.cancel()
        self._remember([*clients, *consumers])

    def answered(self) -> Mapping[tuple[str, str], bool]:
        """Return no subscriptions: most loads have none."""
        return {}

    def answered_queues(self) -> Mapping[str, bool]:
        """Return no queues: in most loads no administrator makes any."""
        return {}

    async def drain(self, context: WorkloadContext) -> None:
        """Consume the messages that are left on every pair."""
        await drain(
            context, draining(context, self.queues(context), self._sessions, Consumer), self._unclean_at
        )

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        """Return all pairs, with the producers and consumers that are placed there."""
        pairs = self._with_producers(context)
        seed = context.random.getrandbits
        hold_s, prefetch = self._consuming(context.spec, full_speed=full_speed)
        for seat in placement.consumers(context):
            consumer = self.consumer_kind(
                context,
                seat.zone,
                seat.nodes,
                self.queues(context),
                self._sessions,
                prefetch=prefetch,
                hold_s=hold_s,
                seed=seed(64),
            )
            pairs[seat.pair].consumers.append(consumer)
        return [*pairs.values()]

    def _with_producers(self, context: WorkloadContext) -> dict[str, Pair]:
        """Return all pairs by name, with their producers, and no consumers yet."""
        pairs = {name: Pair(name) for name in placement.pairs_of(context.nodes)}
        clients = placement.producers(context)
        first = self._numbers.producers(len(clients))
        for seat in clients:
            failover = FailoverClient(context, seat.zone, seat.nodes, context.random.getrandbits(64))
            pairs[seat.pair].producers.append((Producer(first + seat.number), failover))
        return pairs

    def _consuming(self, spec: TestSpec, *, full_speed: bool) -> tuple[float, int]:
        """Return the seconds for which a consumer holds a message, and its prefetch."""
        hold_s = (0.0 if full_speed else HOLD_S) if spec.hold_s is None else spec.hold_s
        return hold_s, spec.prefetch or (1000 if full_speed else PREFETCH)

    def _churns(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Churn]:
        """Return the churns: sets of consumers of which one is left while others come and go."""
        return [Churn(pair.consumers, context.random.getrandbits(64)) for pair in pairs]

    def _besides(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Coroutine[Any, Any, None]]:
        """Return further work during the load, which is cancelled at its end."""
        del context, pairs
        return []

    def _remember(self, clients: Sequence[Client | Consumer]) -> None:
        """Remember when a connection last ended in a way that its broker may not have noticed.

        The drain needs that moment: the broker may still take the connection for alive.
        """
        times = [client.unclean_at for client in clients if client.unclean_at is not None]
        self._unclean_at = max(times, default=None)


class Churn:
    """The churn of the consumers of one pair: they leave and return at seeded times.

    The last consumer that is attached never leaves.
    """

    def __init__(self, consumers: Sequence[Consumer], seed: int) -> None:
        self._consumers = list(consumers)
        self._random = random.Random(seed)
        self._stays: dict[Consumer, asyncio.Task[None]] = {}
        self._moving = asyncio.Lock()
        """Held while a consumer leaves: two that let it leave would lose its next stay."""
        self._group: asyncio.TaskGroup | asyncio.AbstractEventLoop

    def begin(self, group: asyncio.TaskGroup | asyncio.AbstractEventLoop) -> None:
        """Start all consumers."""
        self._group = group
        for consumer in self._consumers:
            self._stays[consumer] = group.create_task(consumer.run())

    async def run(self) -> None:
        """Let one consumer leave and return, again and again, until cancelled."""
        chance = self._random
        while len(self._consumers) > 1:
            await asyncio.sleep(chance.uniform(*PRESENT_S))
            attached = [consumer for consumer in self._consumers if consumer.attached.is_set()]
            if len(attached) > 1:
                consumer = chance.choice(attached)
                async with self._moving:
                    await self._leave(consumer, "disconnect" if chance.random() < 0.5 else "unsubscribe")
                await asyncio.sleep(chance.uniform(*AWAY_S))
                self._stays[consumer] = self._group.create_task(consumer.run())

    async def renew(self) -> None:
        """Let the consumers that are attached leave and return, with new sessions."""
        for consumer in [*self._stays]:
            async with self._moving:
                if consumer in self._stays and consumer.attached.is_set():
                    await self._leave(consumer, "disconnect")
                    self._stays[consumer] = self._group.create_task(consumer.run())

    async def end(self) -> None:
        """Let all consumers leave in order."""
        await asyncio.gather(*(self._leave(consumer, "unsubscribe") for consumer in list(self._stays)))

    async def _leave(self, consumer: Consumer, style: Style) -> None:
        stay = self._stays[consumer]
        await consumer.leave(style)
        stay.cancel()
        await asyncio.wait([stay])
        del self._stays[consumer]


def _present(context: WorkloadContext, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs, without clients all of whose brokers are to join during the load.

    If no producer is left, all clients are returned.
    """
    producing, consuming = (
        {pair for pair, nodes in placed.items() if not context.joining >= {*nodes}}
        for placed in (placement.producing(context), placement.consuming(context))
    )
    present = [
        Pair(
            pair.name,
            pair.producers if pair.name in producing else [],
            pair.consumers if pair.name in consuming else [],
        )
        for pair in pairs
    ]
    return present if any(pair.producers for pair in present) else [*pairs]


async def _come_up(context: WorkloadContext, pairs: Sequence[Pair]) -> bool:
    """Wait until all clients are connected, ``UP_S`` has passed, or the test must stop.

    Returns whether a producer is connected.
    """
    clients = [client for pair in pairs for _, client in pair.producers]
    consumers = [consumer for pair in pairs for consumer in pair.consumers]
    loop = asyncio.get_running_loop()
    end = loop.time() + context.suspended_s + UP_S
    while loop.time() < end and not context.stopping.is_set():
        if all(client.connection for client in clients) and all(c.attached.is_set() for c in consumers):
            return True
        await asyncio.sleep(0.01)
    return any(client.connection for client in clients)
