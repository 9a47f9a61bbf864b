"""Workload ``groups``: several producers per message group, consumers that come and go.

Each group has a home pair, and its producers connect there only. Without a grouping handler a
message with a group is never forwarded to another broker, because two brokers could choose two
owners for one group. Groups are dealt to pairs in turn (more evenly than by a hash where there are
few), and to queues so that a pair serves all queues.

Where a test asks for it (``close_groups``), some messages close their group: once such a message is
given out, the next one may go to another consumer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from harness.interface import Dialect, WorkloadContext
from workloads.failover import Client
from workloads.load import Load, Pair
from workloads.placement import group_homes
from workloads.producer import Producer, ProducerStream

CLOSING: Final = 0.12
"""The share of messages that close their group, where a test asks for that."""


class ClosingStream(ProducerStream):
    """A stream of messages of one group, some of which close the group."""

    __slots__ = ("_chance", "_closing")

    def __init__(
        self,
        context: WorkloadContext,
        client: Client,
        producer: Producer,
        queue: str,
        group: str | None,
    ) -> None:
        super().__init__(context, client, producer, queue, group)
        self._chance = random.Random(f"{context.spec.seed} closing {producer.number} {queue} {group}")
        lines = "".join(f"{name}:{value}\n" for name, value in context.dialect.closing.items())
        self._closing = self.head + lines.encode()

    def asked(self, sequence: int) -> tuple[bytes, str | None]:
        """Return the head of a message's frame and its ``value``; a closing message says so."""
        if self._chance.random() < CLOSING:
            return self._closing, '{"close": true}'
        return super().asked(sequence)


class GroupsLoad(Load):
    """A load in which every producer of a pair sends to every group at home there.

    A group has as many producers as its pair.
    """

    name = "groups"
    grouped = True
    description = "several producers per message group, consumers that come and go"

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """Return what brokers lack: the load needs message groups."""
        return "" if dialect.group_header else "message groups"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream for each producer and group of a pair."""
        queues = self.queues(context)
        kind = ClosingStream if context.spec.close_groups else ProducerStream
        return [
            kind(context, client, producer, queues[turn % len(queues)], group)
            for group, home, turn in group_homes(context.spec.groups, len(pairs))
            for producer, client in pairs[home].producers
        ]
