"""Workload ``subscriptions``: topics, and subscriptions to them that come, go, and are made again.

Each topic is at home with a pair, as groups are, because in some clusters each broker has topics of
its own. Where brokers share topics, a test may have the subscribers of each topic at another pair
than its producers (``share_topics``, or ``produce_at`` and ``consume_at``).

Each topic has the subscriptions of ``SHARES`` that brokers support: durable ones, one of them with
a selector, a shared one, and one that ends with its session. Consumers leave for a while and come
back, and messages sent meanwhile wait for them. Or they drop their subscription and, after a while,
make it again under the same name. Where a test asks for it (``change_selectors``), a durable
subscription with a selector is made again with another one, which drops the former.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from harness.interface import TOPIC, Dialect, TestSpec, WorkloadContext
from workloads import names, placement
from workloads.consumer import Style
from workloads.drain import PREFETCH, drain
from workloads.failover import Client
from workloads.load import Churn, Load, Pair
from workloads.producer import Producer, ProducerStream
from workloads.subscriber import Kind, Subscriber, Subscription

COLOURS: Final = ("red", "green", "blue")
"""The texts of the property that selectors ask for."""
PROPERTY: Final = "colour"


class Share(NamedTuple):
    """A kind of subscription that each topic has.

    ``drops`` is the probability that it is dropped when a consumer leaves. A message that was sent
    before the last drop is owed to no subscription. So one durable subscription is hardly ever
    dropped, and another is dropped and made again often.
    """

    kind: Kind
    consumers: int
    drops: float
    selector: Mapping[str, Sequence[str]] | None = None


SHARES: Final = (
    Share("durable", 1, 0.04),
    Share("shared", 2, 0.2),
    Share("durable", 1, 0.5, {PROPERTY: COLOURS[:2]}),
    Share("plain", 1, 0.0),
)

PRESENT_S: Final = (0.5, 3.0)
AWAY_S: Final = (0.2, 2.0)
SELECTORS: Final = tuple({PROPERTY: wanted} for wanted in (COLOURS[:1], COLOURS[:2], COLOURS[1:]))
"""The selectors of a durable subscription that is made again with another one."""
CHANGES: Final = 0.4
"""The probability that a durable subscription gets another selector when its consumer leaves."""
GONE_S: Final = (0.1, 2.0)
"""The seconds, lowest and highest, until a subscription that was dropped is made again."""


class SubscriptionsLoad(Load):
    """A load in which every producer of a pair sends to every topic and group at home there."""

    name = "subscriptions"
    grouped = True
    at_home = True
    description = "topics with durable, shared and plain subscriptions that come, go and are made again"

    _followed: Sequence[tuple[Subscription, Share]] = ()
    _followings: Sequence[Following] = ()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what brokers lack: the load needs topics with lasting subscriptions."""
        topics = dialect.topics
        if topics is None:
            return "topics that jepsen-run can look into"
        return "" if topics.durable or topics.shared else "subscriptions that outlive their connections"

    @classmethod
    def shared_by(cls, dialect: Dialect) -> Collection[str]:
        """Return the policies under which a message reaches the subscriptions at all brokers."""
        return dialect.topics.shared_by if dialect.topics is not None else ()

    @classmethod
    def queues_of(cls, spec: TestSpec, prefix: str = "") -> tuple[str, ...]:
        """Return no queues: the load has only topics."""
        del spec, prefix
        return ()

    @classmethod
    def topics_of(cls, spec: TestSpec, prefix: str = "") -> tuple[str, ...]:
        """Return the topics: each pair has as many as a test has queues."""
        return names.topics(prefix, spec.pairs * max(spec.queues, 1))

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream for each producer, and each topic and group of its pair."""
        topics = self.topics(context)
        pairs = [pair for pair in pairs if pair.producers]
        groups = placement.groups_by_pair(context, len(pairs))
        speech = context.dialect.topics
        kind = ColouredStream if speech is not None and speech.selector is not None else ProducerStream
        return [
            kind(context, client, producer, topics[place], group)
            for place in range(len(topics))
            for group in groups[place % len(pairs)]
            for producer, client in pairs[place % len(pairs)].producers
        ]

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        """Return the pairs with producers, and with the consumers of each subscription.

        Further consumers that a test asks for join the shared subscriptions.
        """
        pairs = self._with_producers(context)
        hold_s, prefetch = self._consuming(context.spec, full_speed=full_speed)
        self._followed = self._subscriptions(context)
        spare = context.spec.consumers - sum(share.consumers for _, share in self._followed)
        shared = sum(share.kind == "shared" for _, share in self._followed)
        more = -(-spare // shared) if shared and spare > 0 else 0
        followings = []
        nodes = placement.consuming(context)
        for subscription, share in self._followed:
            pair = pairs[subscription.home]
            some = [
                Subscriber(
                    context,
                    placement.zone(context.zones, len(pair.consumers) + member),
                    nodes[pair.name],
                    self._sessions,
                    prefetch=prefetch,
                    hold_s=hold_s,
                    seed=context.random.getrandbits(64),
                    subscription=subscription,
                )
                for member in range(share.consumers + (more if share.kind == "shared" else 0))
            ]
            pair.consumers.extend(some)
            drops = min(1.0, share.drops * context.spec.churn)
            selects = share.kind == "durable" and share.selector is not None
            changes = CHANGES if selects and context.spec.change_selectors else 0.0
            seed = context.random.getrandbits(64)
            followings.append(Following(some, drops, context.spec.churn, seed, changes=changes))
        self._followings = followings
        return [*pairs.values()]

    def _subscriptions(self, context: WorkloadContext) -> list[tuple[Subscription, Share]]:
        """Return the subscriptions of each topic, of those kinds that brokers have."""
        speech, pairs = context.dialect.topics, [*placement.consuming(context)]
        assert speech is not None, "a dialect without topics"
        there = {"durable": speech.durable is not None, "shared": speech.shared is not None, "plain": True}
        found = []
        away = 1 if context.spec.share_topics else 0
        for place, topic in enumerate(self.topics(context), away):
            for n, share in enumerate(SHARES):
                if there[share.kind] and (share.selector is None or speech.selector is not None):
                    base = f"{share.kind}{n}-{topic.removeprefix(TOPIC)}"
                    one = Subscription(topic, base, share.kind, share.selector, pairs[place % len(pairs)])
                    found.append((one, share))
        return found

    def _churns(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Churn]:
        del context, pairs
        return [*self._followings]

    def answered(self) -> Mapping[tuple[str, str], bool]:
        """Return for subscriptions not in doubt whether brokers answered that they exist."""
        return {
            (one.topic, one.name): one.there
            for one, _ in self._followed
            if one.kind != "plain" and one.there is not None
        }

    async def drain(self, context: WorkloadContext) -> None:
        """Consume the messages of each subscription, on every station of its pair."""
        kept = [one for one, _ in self._followed if not one.dropped and one.kind != "plain"]
        await drain(
            context,
            [
                (
                    one.base,
                    Subscriber(
                        context,
                        station.zone,
                        (station.node,),
                        self._sessions,
                        prefetch=PREFETCH,
                        hold_s=0.0,
                        seed=context.random.getrandbits(64),
                        subscription=one,
                    ),
                )
                for one in kept
                for station in placement.stations(context, one.home)
            ],
            self._unclean_at,
        )


class ColouredStream(ProducerStream):
    """A stream of messages to one topic and group, each with a colour for selectors."""

    __slots__ = ("_asked", "_chance")

    def __init__(
        self,
        context: WorkloadContext,
        client: Client,
        producer: Producer,
        queue: str,
        group: str | None,
    ) -> None:
        super().__init__(context, client, producer, queue, group)
        self._chance = random.Random(f"{producer.number} {queue} {group}")
        self._asked = [
            (self.head + f"{PROPERTY}:{colour}\n".encode(), json.dumps({"properties": {PROPERTY: colour}}))
            for colour in COLOURS
        ]

    def asked(self, sequence: int) -> tuple[bytes, str | None]:
        """Return the head of a message's frame and its ``value``, with its colour."""
        del sequence
        return self._chance.choice(self._asked)


class Following(Churn):
    """The churn of the consumers of one subscription: they leave for a while, or drop it.

    A dropped subscription is made again. ``drops`` and ``changes`` are the probabilities that it is
    dropped, or made again with another selector, when a consumer leaves.
    """

    def __init__(
        self,
        consumers: Sequence[Subscriber],
        drops: float,
        churn: float,
        seed: int,
        *,
        changes: float = 0.0,
    ) -> None:
        super().__init__(consumers, seed)
        self._subscription = consumers[0].followed
        self._drops = drops
        self._changes = changes
        self._churn = churn

    async def run(self) -> None:
        """Let one consumer leave, or let all leave and drop the subscription, until cancelled."""
        chance = self._random
        while True:
            await asyncio.sleep(chance.uniform(*PRESENT_S) / self._churn)
            there = [one for one in self._consumers if one in self._stays and one.attached.is_set()]
            if not there:
                continue
            one = chance.choice(there)
            style: Style = "disconnect" if chance.random() < 0.5 else "unsubscribe"
            if chance.random() < self._drops:
                for other in [other for other in self._stays if other is not one]:
                    await self._leave(other, style)
                await self._leave(one, "drop")
                await asyncio.sleep(chance.uniform(*GONE_S) / self._churn)
            else:
                await self._leave(one, style)
                await asyncio.sleep(chance.uniform(*AWAY_S) / self._churn)
                if self._changes and chance.random() < self._changes:
                    others = [wanted for wanted in SELECTORS if wanted != self._subscription.selector]
                    self._subscription.selector = chance.choice(others)
            for missing in self._consumers:
                if missing not in self._stays:
                    self._stays[missing] = self._group.create_task(missing.run())
