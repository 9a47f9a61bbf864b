"""Workload ``selectors``: consumers of queues that each want some of the messages.

Messages have a colour. The consumers of a pair ask in turn for some colours, so that together they
want all. They come and go, and messages that no present consumer wants wait. The drain takes all
that is left.

With ``select_by_pair`` the consumers of one pair want the same, those of the next pair the rest,
and so does the drain at nodes that ``drain_at`` names. A message that nobody wants where it is must
move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.interface import Dialect, WorkloadContext
from stomp_protocol.client.connection import Connection
from workloads import placement
from workloads.consumer import Consumer
from workloads.drain import drain, draining
from workloads.load import Load, Pair
from workloads.producer import ProducerStream
from workloads.sessions import Session
from workloads.subscriptions import COLOURS, PROPERTY, ColouredStream

WANTED: Final = (COLOURS[:1], COLOURS[1:])
"""The colours that the consumers of a pair ask for, in turn; a pair's only consumer takes all."""


class Chooser(Consumer):
    """A consumer with a selector."""

    __slots__ = ("_speech", "wanted")

    def __init__(self, context: WorkloadContext, zone: str, *arguments: Any, **keywords: Any) -> None:
        super().__init__(context, zone, *arguments, **keywords)
        assert context.dialect.topics is not None, "a dialect without selectors"
        self._speech = context.dialect.topics
        self.wanted: Mapping[str, Sequence[str]] | None = None
        """The texts that it wants in each property; None: it wants all messages."""

    def _session(self, queue: str, connection: Connection) -> Session:
        session = super()._session(queue, connection)
        session.asked = None if self.wanted is None else json.dumps({"selector": self.wanted})
        return session

    def asks(self, session: Session) -> Mapping[str, str]:
        """Return the headers that ask for the messages that it wants."""
        del session
        return self._speech.wanting(self.wanted)


class SelectorsLoad(Load):
    """A load in which every producer sends to every queue, through its own pair."""

    name = "selectors"
    description = "queues whose consumers select messages, and come and go"
    consumer_kind = Chooser

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what brokers lack: the load needs selectors."""
        return "" if dialect.topics is not None and dialect.topics.selector is not None else "selectors"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream for each producer and queue."""
        return [
            ColouredStream(context, client, producer, queue, None)
            for pair in pairs
            for producer, client in pair.producers
            for queue in self.queues(context)
        ]

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        pairs = super()._staff(context, full_speed=full_speed)
        for pair in pairs:
            for place, consumer in enumerate(pair.consumers):
                assert isinstance(consumer, Chooser)
                if context.spec.select_by_pair:
                    consumer.wanted = _wanted_at(context, pair.name)
                elif len(pair.consumers) > 1:
                    consumer.wanted = {PROPERTY: WANTED[place % len(WANTED)]}
        return pairs

    async def drain(self, context: WorkloadContext) -> None:
        """Consume the messages that are left on every pair, or what is wanted at named nodes."""
        stations = draining(context, self.queues(context), self._sessions, Chooser)
        if context.spec.select_by_pair and context.spec.drain_at:
            for pair, consumer in stations:
                consumer.wanted = _wanted_at(context, pair)
        await drain(context, stations, self._unclean_at)


def _wanted_at(context: WorkloadContext, pair: str) -> Mapping[str, Sequence[str]] | None:
    """Return what the consumers of a pair want; None, which is all, if it has no consumers."""
    pairs = [*placement.consuming(context)]
    return {PROPERTY: WANTED[pairs.index(pair) % len(WANTED)]} if pair in pairs else None
