"""What happens when a journal entry is durable: the callbacks that the engine gives to the gate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from broker.core.consumer import Delivery
from broker.core.message import Message
from broker.core.queue import Queue
from broker.turn_budget import ARRIVAL, TurnBudget

Callback = Callable[[], None]


def arrived(queue: Queue, message: Message, done: Callback | None) -> None:
    """A sent message may be dispatched; its producer is answered."""
    queue.arrive(message)
    if done is not None:
        done()


def arrived_together(
    budget: TurnBudget, arrivals: Collection[tuple[Queue, Message]], done: Callback | None
) -> None:
    """The same for what one entry has brought."""
    budget.spend(ARRIVAL * len(arrivals))
    for queue, message in arrivals:
        queue.arrive(message)
    if done is not None:
        done()


def refused(
    budget: TurnBudget,
    arrivals: Collection[tuple[Queue, Message]],
    refusals: Iterable[Delivery],
    done: Callback | None,
) -> None:
    """Refusals are durable: dead letters arrive, the client is answered, the others go back."""
    arrived_together(budget, arrivals, done)
    give_back(refusals, refused=True)


def give_back(deliveries: Iterable[Delivery], *, refused: bool) -> None:
    """Give deliveries back to their queues; after refusals with the queue's redelivery delay."""
    by_queue: dict[Queue, list[Delivery]] = {}
    for delivery in deliveries:
        by_queue.setdefault(delivery.consumer.queue, []).append(delivery)
    for queue, some in by_queue.items():
        queue.returned(some, queue.settings.redelivery_delay / 1000 if refused else 0.0, refused=refused)
        for delivery in some:
            queue.offer(delivery.consumer)
