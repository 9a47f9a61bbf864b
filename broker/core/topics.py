"""Topics: who has subscribed to them.

A topic keeps nothing itself: what is sent to it is added to the queue of each subscription that
there is, all of it in one entry of the journal.

Why copies are counted before they are made: a message to a topic costs as often as there are
subscriptions, so one frame of 60 KB could fill the memory and the disk. Copies of a body that
together exceed ``COPIES_MAX`` are one file, to which the record of each subscription refers, as to
the body of a large message; what cannot be shared (headers, short bodies) is bounded by
``acceptor.max-copies-size``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from broker.core.filtering import headers_of
from broker.core.message import Message
from broker.core.queue import Queue
from broker.core.selector import Selector
from broker.core.subscription import TOPIC_PREFIX, Subscription, SubscriptionKey

SHARED_FROM: Final = 4 * 1024
"""Bytes of the shortest body that is worth a file."""
COPIES_MAX: Final = 1024 * 1024
"""Bytes that the copies of one body may have together before they share a file."""
_NOBODY: Final[Collection[Queue]] = ()


class Topics:
    """The queues of all subscriptions, by topic, and those of the durable ones by name."""

    def __init__(self) -> None:
        self._bound: dict[str, dict[Queue, None]] = {}
        """Ordered sets: the oldest subscription first, and none is searched for when one ends."""
        self._named: dict[SubscriptionKey, Queue] = {}
        self._owned: Counter[tuple[str, ...]] = Counter()

    def add(self, queue: Queue) -> None:
        """It gets what is sent to its topic from now on."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        self._bound.setdefault(TOPIC_PREFIX + subscription.topic, {})[queue] = None
        if subscription.durable:
            self._name(queue, subscription.key)

    def remove(self, queue: Queue) -> None:
        """It gets nothing more."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        bound = self._bound[TOPIC_PREFIX + subscription.topic]
        del bound[queue]
        if not bound:
            del self._bound[TOPIC_PREFIX + subscription.topic]
        if subscription.durable:
            self._forget(subscription.key)

    def claim(self, queue: Queue, subscription: Subscription) -> None:
        """Give a durable subscription another key; its place among the others stays."""
        assert queue.subscription is not None, "a queue without a subscription"
        self._forget(queue.subscription.key)
        queue.subscription = subscription
        self._name(queue, subscription.key)

    def _name(self, queue: Queue, key: SubscriptionKey) -> None:
        self._named[key] = queue
        self._owned[key[:-1]] += 1

    def _forget(self, key: SubscriptionKey) -> None:
        del self._named[key]
        self._owned[key[:-1]] -= 1
        if not self._owned[key[:-1]]:
            del self._owned[key[:-1]]

    def named(self, key: SubscriptionKey) -> Queue | None:
        """The queue of a durable subscription."""
        return self._named.get(key)

    @property
    def durable(self) -> list[Subscription]:
        """All durable subscriptions."""
        return [queue.subscription for queue in self._named.values() if queue.subscription is not None]

    def owned(self, subscription: Subscription) -> int:
        """Return how many durable subscriptions the client of this one has."""
        return self._owned[subscription.key[:-1]]

    def bound(self, target: str) -> Collection[Queue]:
        """The queues that get what is sent to this destination, oldest subscription first."""
        return self._bound.get(target, _NOBODY)

    def shares(self, target: str, body_size: int) -> bool:
        """Return whether copies of a body of that size to that destination should share a file."""
        return body_size >= SHARED_FROM and body_size * len(self.bound(target)) > COPIES_MAX

    def copies_size(self, sends: Iterable[tuple[str, Message]]) -> int:
        """Return the bytes that these messages would take for all subscriptions together.

        What is sent to queues, or to a topic with one subscription, is no copy and does not count.
        """
        return sum(
            message.size * subscriptions
            for target, message in sends
            if (subscriptions := len(self.bound(target))) > 1
        )

    def wanting(self, target: str, message: Message) -> Sequence[Queue]:
        """Those of them that want this message."""
        bound = self.bound(target)
        if all(queue.wants is None for queue in bound):
            return tuple(bound)
        headers = headers_of(message)
        verdicts: dict[Selector | None, bool] = {None: True}
        for queue in bound:
            if queue.wants not in verdicts:
                verdicts[queue.wants] = queue.wants is None or queue.wants.matches(headers)
        return [queue for queue in bound if verdicts[queue.wants]]
