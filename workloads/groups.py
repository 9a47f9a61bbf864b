"""Workload ``groups``: several producers per message group, consumers that come and go.

Each group has a home pair, and its producers connect there only: without a grouping handler a
message with a group is never forwarded to another broker, because two brokers could choose two
owners for one group. Groups are dealt to pairs in turn (more even than a hash where there are few),
and to queues so that a pair serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.interface import Dialect, WorkloadContext
from workloads.layout import group_homes
from workloads.load import Load, Pair
from workloads.producer import ProducerStream


class GroupsLoad(Load):
    """Every producer of a pair sends to every group at home there.

    A group has as many producers as its pair.
    """

    name = "groups"
    grouped = True
    description = "several producers per message group, consumers that come and go"

    @classmethod
    def lacks(cls, dialect: Dialect) -> str:
        """As ``Load``'s."""
        return "" if dialect.group_header else "message groups"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """One stream for each producer and group of a pair."""
        queues = self.queues(context)
        return [
            ProducerStream(context, client, producer, queues[turn % len(queues)], group)
            for group, home, turn in group_homes(context.spec.groups, len(pairs))
            for producer, client in pairs[home].producers
        ]
