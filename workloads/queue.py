"""Workload ``queue``: messages without groups, producers and consumers on every pair."""

from __future__ import annotations

from collections.abc import Sequence

from harness.interface import WorkloadContext
from workloads.load import Load, Pair
from workloads.producer import ProducerStream


class QueueLoad(Load):
    """A load in which every producer sends to every queue, through its own pair.

    Brokers may forward the messages to each other.
    """

    name = "queue"
    description = "messages without groups; producers and consumers on every pair, consumers come and go"

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream for each producer and queue."""
        return [
            ProducerStream(context, client, producer, queue, None)
            for pair in pairs
            for producer, client in pair.producers
            for queue in self.queues(context)
        ]
