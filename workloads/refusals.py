"""Workload ``refusals``: messages that are refused, expire, are delayed or urgent.

Producers ask for an expiry, short or long, for some of their messages. For messages without a
group they also ask that some be delivered later, or before others. Consumers acknowledge most
messages, refuse some once and some whenever they get them, and keep some without an answer until
they leave. So messages come again, die or expire. All this is done as far as brokers can do it
(``Dialect.nacks``, ``wishes``); brokers promise what becomes of a refused message.

A broker's clock decides when a message expires or is due. So the history has the interval within
which that must be, and clocks may be apart by ``APART_MS``.
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
from workloads.load import Load, Pair
from workloads.operations import Nack
from workloads.payload import PRODUCER_SHIFT, Payload
from workloads.placement import group_homes
from workloads.producer import Producer, ProducerStream
from workloads.sessions import Session

APART_MS: Final = 100
"""The milliseconds by which the clocks of machines may be apart."""
_MS: Final = 1_000_000

SHORT_MS: Final = (100, 1500)
LONG_MS: Final = (600_000, 3_600_000)
DELAY_MS: Final = (50, 1500)
PRIORITIES: Final = (0, 1, 7, 9)
_SHORT, _LONG, _DELAYED, _URGENT = 0.12, 0.05, 0.1, 0.2
"""The shares of messages that ask for a short or long expiry, a delay, or another priority.

Only messages without a group ask for the last two.
"""

REDELIVERED_S: Final = 1.0
"""More seconds than a refused message waits until it comes again, unless a test asks for more."""
LATE_S: Final = 0.5
"""The seconds by which a redelivery may be late."""

STUBBORN: Final = 17
"""The interval of stubborn messages: one message of so many is refused by every consumer."""
_REFUSED, _KEPT = 0.08, 0.03
"""The shares of other messages that are refused, and that are kept without an answer."""
KEPT_SHARE: Final = 4
"""The divisor of the prefetch that gives the number of messages that a consumer keeps at most."""


class WishingStream(ProducerStream):
    """A stream of messages, some of which ask for an expiry, a delay or a priority."""

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
        """The moment (ns) at which the last of its delayed messages is due."""

    def asked(self, sequence: int) -> tuple[bytes, str | None]:
        """Return the head of a message's frame and its ``value``, with the options it asks for."""
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
        """Return the ``value`` of an answered send, with the end of the message's expiry.

        Where a message lasts for a time from when the broker got it, that end is known only now:
        the broker certainly has got the message.
        """
        lasts_ms = self._lasting.pop(sequence, None)
        if value is None or lasts_ms is None:
            return value
        told = json.loads(value)
        told["expires"][1] = _interval(self._recorder.now_ns(), lasts_ms)[1]
        return json.dumps(told)


def _interval(now_ns: int, after_ms: int) -> tuple[int, int]:
    """Return the interval (ns) in which a moment after ``now_ns`` lies by any machine's clock."""
    then_ns = now_ns + after_ms * _MS
    return then_ns - APART_MS * _MS, then_ns + APART_MS * _MS


class Refuser(Consumer):
    """A consumer that acknowledges most messages, and refuses or keeps others.

    Where brokers know no refusal, it acknowledges all: there an ACK may stand for all messages
    before it, kept ones, too.
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
    """A load in which producers send to every queue, and to every group at home with their pair."""

    name = "refusals"
    description = "messages that are refused, die, expire, are delayed or urgent; consumers come and go"
    grouped = True
    refuses = True
    consumer_kind: ClassVar[type[Consumer]] = Refuser
    _streams: Sequence[WishingStream] = ()

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what brokers lack: the load needs refusals, or one of the options of sends."""
        return "" if dialect.nacks or dialect.wishes != Wishes() else "NACK, expiry, delay or priority"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream for each producer and queue, and for each producer and group at home."""
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
        """Drain, once all messages are due that were delayed, or that were refused before."""
        now_ns = context.recorder.now_ns()
        due_ns = max([now_ns, *(stream.due_ns for stream in self._streams)])
        again_s = context.redelivery_s
        again_s = REDELIVERED_S if again_s < REDELIVERED_S else again_s + LATE_S
        await asyncio.sleep((due_ns - now_ns) / 1e9 + again_s)
        await super().drain(context)
