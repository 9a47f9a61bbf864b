"""Redistribution (AMQ 17.4): messages that wait where nobody consumes move to where somebody does.

A queue is redistributed while all of this holds: its ``redistribution-delay`` is not -1 and has
passed since the last client's consumer left, no client consumes it here, and clients consume it at
another broker. Then an internal consumer takes its messages, and each moves, in one entry, to the
store-and-forward queue of a broker that has consumers; these get messages in turn.

Messages of groups stay: another broker could give the group to a second consumer. A consumer here
prevents all of it, even one whose selector matches nothing (AMQ 17.4.1.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.core.consumer import Delivery, QueueConsumer
from broker.core.engine import DemotedError, Engine
from broker.core.message import Message
from broker.core.queue import Queue
from broker.core.selector import Selector
from broker.storage.errors import JournalError

_log = logging.getLogger(__name__)

WINDOW: Final = 100
"""The most messages of a queue that are taken for one entry."""
FULL_S: Final = 0.5
"""The pause when the store-and-forward queue of the chosen broker has no room (s)."""


class Demand(NamedTuple):
    """The demand of other brokers' consumers for a queue.

    ``selector`` matches what they want of the messages without a group; None: they want all.
    """

    selector: Selector | None


class Redistribution:
    """Redistributes the queues of an engine, until ``stop``.

    Whoever knows what consumers other brokers have calls ``review`` when that changes.

    Args:
        engine: the engine; changes of its consumers and queues are noticed by themselves.
        route: returns the node ID of the broker that gets the next message of a queue, or None.
        demand: returns what clients at other brokers want of a queue; None: no client consumes it.
    """

    def __init__(
        self,
        engine: Engine,
        route: Callable[[str, Message], str | None],
        demand: Callable[[str], Demand | None],
    ) -> None:
        self._engine = engine
        self._route = route
        self._demand = demand
        self._redistributors: dict[str, QueueConsumer] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False
        engine.queue_observers.append(self._made)

    def stop(self) -> None:
        """Move nothing more."""
        self._stopped = True
        self._engine.queue_observers.remove(self._made)
        for name in [*self._redistributors, *self._timers]:
            self._end(name)

    def review(self, names: Iterable[str]) -> None:
        """Begin or end the redistribution of these queues, as their consumers demand."""
        for name in names:
            self._review(name)

    @property
    def running(self) -> list[str]:
        """The queues that are redistributed, or will be when their delay has passed."""
        return [*self._redistributors, *self._timers]

    def _made(self, name: str) -> None:
        """Look at a new queue once whatever made it is done."""
        asyncio.get_running_loop().call_soon(self._review, name)

    def _review(self, name: str) -> None:
        engine = self._engine
        if self._stopped or engine.abandoned:
            return
        queue = engine.queues.get(name)
        demand = None
        if queue is not None and _may_move(queue):
            demand = self._demand(name)
        redistributor = self._redistributors.get(name)
        if redistributor is not None and demand is not None and redistributor.selector == demand.selector:
            return
        self._end(name)
        if queue is None or demand is None:
            return
        due = queue.unattended_since + queue.settings.redistribution_delay / 1000
        if due > asyncio.get_running_loop().time():
            self._review_at(name, due)
        else:
            self._begin(name, demand, has_messages=len(queue) > 0)

    def _review_at(self, name: str, due: float) -> None:
        """Review a queue again at that time; nothing else is planned for it."""
        self._timers[name] = asyncio.get_running_loop().call_at(due, self._review_due, name)

    def _review_due(self, name: str) -> None:
        del self._timers[name]
        self._review(name)

    def _begin(self, name: str, demand: Demand, *, has_messages: bool) -> None:
        loop = asyncio.get_running_loop()

        def deliver(delivery: Delivery) -> None:
            if len(delivery.consumer.unacknowledged) == 1:  # the first of this turn
                loop.call_soon(self._move, delivery.consumer)

        def gone() -> None:
            del self._redistributors[name]

        try:
            self._redistributors[name] = self._engine.subscribe(
                name, deliver, window=WINDOW, redistributor=True, gone=gone, selector=demand.selector
            )
        except (DemotedError, JournalError):
            return  # the broker ends, and says why
        if has_messages:
            _log.info("redistribution: the messages of queue %r move to other brokers", name[:128])

    def _move(self, consumer: QueueConsumer) -> None:
        """Move what a redistributor holds, each message to the broker whose turn it is."""
        engine, name = self._engine, consumer.queue.name
        if consumer.closed or engine.abandoned:
            return
        deliveries: dict[str, list[Delivery]] = defaultdict(list)
        sizes: Counter[str] = Counter()
        has_room = True
        try:
            for delivery in consumer.unacknowledged.values():
                node_id = self._route(name, delivery.message)
                if node_id is None:
                    break
                forwarding = engine.queue(engine.settings.forwarding_queue(node_id))
                has_room = not forwarding.is_full_with(sizes[node_id], len(deliveries.get(node_id, ())))
                if not has_room:
                    break
                deliveries[node_id].append(delivery)
                sizes[node_id] += delivery.message.size
            for node_id, moving in deliveries.items():
                engine.move(moving, node_id)
        except (DemotedError, JournalError):
            return
        if consumer.unacknowledged:
            self._end(name)
            if not has_room:
                self._review_at(name, asyncio.get_running_loop().time() + FULL_S)

    def _end(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        redistributor = self._redistributors.pop(name, None)
        if redistributor is not None and not self._engine.abandoned:
            self._engine.unsubscribe(redistributor)


def _may_move(queue: Queue) -> bool:
    """Return whether messages of a queue may move to other brokers as it is now.

    Temporary queues and subscriptions, whose names begin with a slash, belong to one broker.
    """
    is_shared = not queue.forwards and queue.name[0] != "/"
    return is_shared and queue.settings.redistribution_delay >= 0 and not queue.client_consumers()
