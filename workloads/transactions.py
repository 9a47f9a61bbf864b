"""Workload ``transactions``: messages move from queue to queue in transactions.

Producers send to the first queue. Movers (``workloads.mover``) take from every queue but the last.
In one transaction they acknowledge what they took and send new messages to later queues. So a
message is moved on at most as often as there are queues. Consumers empty the last queue. Groups are
at home with a pair, as in ``groups``; where brokers have no groups, messages have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.interface import WorkloadContext
from workloads import placement
from workloads.consumer import Consumer
from workloads.load import Churn, Load, Pair
from workloads.mover import Mover, Route
from workloads.producer import Producer, ProducerStream

PREFETCH: Final = 10
"""The prefetch of a mover, which holds all of these messages while a transaction is open."""


class TransactionsLoad(Load):
    """A load of producers for the first queue, movers, and consumers of the last queue."""

    name = "transactions"
    grouped = True
    description = "messages move from queue to queue in transactions that commit, roll back or are cut off"
    queues_least = 3

    def streams(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[ProducerStream]:
        """Return a stream to the first queue for each producer and group of a pair."""
        first = self.queues(context)[0]
        return [
            ProducerStream(context, client, producer, first, group)
            for pair, groups in zip(pairs, placement.groups_by_pair(context, len(pairs)), strict=True)
            for producer, client in pair.producers
            for group in groups
        ]

    def _staff(self, context: WorkloadContext, *, full_speed: bool) -> list[Pair]:
        spec, queues = context.spec, self.queues(context)
        pairs = self._with_producers(context)
        hold_s, prefetch = self._consuming(spec, full_speed=full_speed)
        onward = {queue: queues[place + 1 :] for place, queue in enumerate(queues[:-1])}
        seed = context.random.getrandbits
        groups = placement.groups_by_pair(context, len(placement.consuming(context)))
        clients = placement.consumers(context, least=2)
        first = self._numbers.producers(len(clients))
        for seat in clients:
            pair = pairs[seat.pair]
            if seat.turn % 2:
                pair.consumers.append(
                    Consumer(
                        context,
                        seat.zone,
                        seat.nodes,
                        queues[-1:],
                        self._sessions,
                        prefetch=prefetch,
                        hold_s=hold_s,
                        seed=seed(64),
                    )
                )
            else:
                pair.consumers.append(
                    Mover(
                        context,
                        seat.zone,
                        seat.nodes,
                        self._sessions,
                        prefetch=spec.prefetch or PREFETCH,
                        hold_s=hold_s,
                        seed=seed(64),
                        producer=Producer(first + seat.number),
                        route=Route(onward, groups[seat.place]),
                        numbers=self._numbers.transactions,
                    )
                )
        return [*pairs.values()]

    def _churns(self, context: WorkloadContext, pairs: Sequence[Pair]) -> list[Churn]:
        """Return a churn for movers and one for consumers, so that one of each kind is present."""
        kinds = [
            [one for one in pair.consumers if isinstance(one, Mover) is moving]
            for pair in pairs
            for moving in (True, False)
        ]
        return [Churn(some, context.random.getrandbits(64)) for some in kinds]
