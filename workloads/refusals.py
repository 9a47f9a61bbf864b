"""Workload ``refusals``: messages that are refused, expire, come later or in a hurry.

Producers ask for an expiry, short or long, for some of their messages; for messages without a
group, too, that they be delivered later, or before others. Consumers acknowledge most of what they
get, refuse some once, some whenever they get it, and keep some without an answer until they leave.
So messages come again, die or expire. As far as brokers have such (``Dialect.nacks``, ``wishes``);
what becomes of a refused message is theirs to promise.

When a message expires, or is due, a broker's clock decides: what is asked for is written down as
the interval within which that must be, and clocks may be apart by ``APART_MS``.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from harness.interface import Dialect, Wishes, WorkloadContext
from workloads.consumer import Consumer
from workloads.failover import Client
from workloads.layout import group_homes
from workloads.load import Load, Pair
from workloads.operations import Nack
from workloads.payload import PRODUCER_SHIFT, Payload
from workloads.producer import Producer, ProducerStream
from workloads.sessions import Session

APART_MS: Final = 100
"""How far the clocks of machines may be apart."""
_MS: Final = 1_000_000

SHORT_MS: Final = (100, 1500)
LONG_MS: Final = (600_000, 3_600_000)
DELAY_MS: Final = (50, 1500)
PRIORITIES: Final = (0, 1, 7, 9)
_SHORT, _LONG, _DELAYED, _URGENT = 0.12, 0.05, 0.1, 0.2
"""How many of all messages ask for what; those without a group for the last two, too."""

REDELIVERED_S: Final = 1.0
"""Longer than a refused message waits until it comes again, where nobody asked for more."""
LATE_S: Final = 0.5
"""By how much it may come later."""

STUBBORN: Final = 17
"""One message of so many is refused by whoever gets it."""
_REFUSED, _KEPT = 0.08, 0.03
"""How many others are refused, and kept without an answer."""
KEPT_SHARE: Final = 4
"""A consumer keeps at most one in so many of what it may hold at once."""


class WishingStream(ProducerStream):
    """Messages that ask for something, some of them."""

    __slots__ = ("_chance", "_lasting", "_recorder", "_wishes", "_zero_ms", "due_ns")

    def __init__(
        self,
        context: WorkloadContext,
        client: Client,
        producer: Producer,
        queue: str,
        group: str | None,
    ) -> None:
        super().__init__(context, client, producer, queue, group)
        self._chance = random.Random(f"{context.spec.seed} {producer.number} {queue} {group}")
        self._recorder = context.recorder
        self._wishes = context.dialect.wishes
        self._zero_ms = context.zero_ms
        self._lasting: dict[int, int] = {}
        self.due_ns = 0
        """When the last of its messages is due."""

    def asked(self, sequence: int) -> tuple[bytes, str | None]:
        """As a stream's, with what this message asks for."""
        chance, wishes, now_ns = self._chance, self._wishes, self._recorder.now_ns()
        headers: list[tuple[str, int]] = []
        told: dict[str, Any] = {}
        kind = chance.random()
        if kind < _SHORT + _LONG and wishes.expires is not None:
            lasts_ms = chance.randint(*(SHORT_MS if kind < _SHORT else LONG_MS))
            if wishes.lasts:
                self._lasting[sequence] = lasts_ms
                headers.append((wishes.expires, lasts_ms))
            else:
                headers.append((wishes.expires, self._zero_ms + now_ns // _MS + lasts_ms))
            low, high = _interval(now_ns, lasts_ms)
            told["expires"] = [low, None if wishes.lasts else high]
        elif self.group is None and kind > 1 - _DELAYED and wishes.delay is not None:
            delay_ms = chance.randint(*DELAY_MS)
            headers.append((wishes.delay, delay_ms))
            low, _ = _interval(now_ns, delay_ms)
            told["delay"] = [low, None]
            self.due_ns = max(self.due_ns, now_ns + delay_ms * _MS)
        if self.group is None and wishes.priority is not None and chance.random() < _URGENT:
            told["priority"] = chance.choice(PRIORITIES)
            headers.append((wishes.priority, told["priority"]))
        if not told:
            return self.head, None
        lines = "".join(f"{name}:{value}\n" for name, value in headers)
        return self.head + lines.encode(), json.dumps(told)

    def answered(self, sequence: int, value: str | None) -> str | None:
        """What lasts so long from when the broker got it, it certainly has got by now."""
        lasts_ms = self._lasting.pop(sequence, None)
        if value is None or lasts_ms is None:
            return value
        told = json.loads(value)
        told["expires"][1] = _interval(self._recorder.now_ns(), lasts_ms)[1]
        return json.dumps(told)


def _interval(now_ns: int, after_ms: int) -> tuple[int, int]:
    """In which so long from now lies, whosever clock says so."""
    then_ns = now_ns + after_ms * _MS
    return then_ns - APART_MS * _MS, then_ns + APART_MS * _MS


class Refuser(Consumer):
    """Acknowledges most messages, and refuses or keeps others.

    None where brokers know no refusal: there an ACK may stand for all before it, kept ones, too.
    """

    __slots__ = ("_keeps", "_kept", "_refuses")

    def __init__(self, context: WorkloadContext, zone: str, *arguments: Any, **keywords: Any) -> None:
        super().__init__(context, zone, *arguments, **keywords)
        self._keeps = self._prefetch // KEPT_SHARE
        self._kept: dict[int, int] = {}
        self._refuses = context.dialect.nacks

    def _acknowledge(self, session: Session, ack_id: str, payload: Payload | None) -> None:
        chance = self._random.random()
        counter = 0 if payload is None else payload.message & ((1 << PRODUCER_SHIFT) - 1)
        if payload is None or not self._refuses:
            super()._acknowledge(session, ack_id, payload)
        elif counter % STUBBORN == 0 or chance < _REFUSED:
            self._answer(Nack, session, ack_id, payload)
        elif chance > 1 - _KEPT and self._kept.get(session.number, 0) < self._keeps:
            self._kept[session.number] = self._kept.get(session.number, 0) + 1
        else:
            super()._acknowledge(session, ack_id, payload)


class RefusalsLoad(Load):
    """Every producer of a pair sends to every queue, and to every group at home there."""

    name = "refusals"
    description = "messages that are refused, die, expire, are delayed or urgent; consumers come and go"
    grouped = True
    refuses = True
    consumer_kind: ClassVar[type[Consumer]] = Refuser
    _streams: Sequence[WishingStream] = ()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """As ``Load``'s."""
        return "" if dialect.nacks or dialect.wishes != Wishes() else "NACK, expiry, delay or priority"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """One stream for each producer and queue, and one for each producer and group of a pair."""
        queues = self.queues(context)
        plain = [
            WishingStream(context, client, producer, queue, None)
            for pair in pairs
            for producer, client in pair.producers
            for queue in queues
        ]
        homes = group_homes(context.spec.groups, len(pairs)) if context.dialect.group_header else ()
        grouped = [
            WishingStream(context, client, producer, queues[turn % len(queues)], group)
            for group, home, turn in homes
            for producer, client in pairs[home].producers
        ]
        self._streams = [*plain, *grouped]
        return [*self._streams]

    async def drain(self, context: WorkloadContext) -> None:
        """As ``Load``'s, when all is due that may still come: delayed, or refused before."""
        now_ns = context.recorder.now_ns()
        due_ns = max([now_ns, *(stream.due_ns for stream in self._streams)])
        again_s = context.redelivery_s
        again_s = REDELIVERED_S if again_s < REDELIVERED_S else again_s + LATE_S
        await asyncio.sleep((due_ns - now_ns) / 1e9 + again_s)
        await super().drain(context)
