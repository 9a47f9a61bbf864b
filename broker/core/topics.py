"""Topics: who has subscribed to them.

A topic keeps nothing itself: what is sent to it is added to the queue of each subscription that
there is, all of it in one entry of the journal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from broker.core.filtering import headers_of
from broker.core.message import Message
from broker.core.queue import Queue
from broker.core.selector import Selector
from broker.core.subscription import TOPIC_PREFIX

_NOBODY: Final[Collection[Queue]] = ()


class Topics:
    """The queues of all subscriptions, by topic, and those of the durable ones by name."""

    def __init__(self) -> None:
        self._bound: dict[str, dict[Queue, None]] = {}
        """Ordered sets: the oldest subscription first, and none is searched for when one ends."""
        self._named: dict[tuple[str, str], Queue] = {}

    def add(self, queue: Queue) -> None:
        """It gets what is sent to its topic from now on."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        self._bound.setdefault(TOPIC_PREFIX + subscription.topic, {})[queue] = None
        if subscription.durable:
            self._named[subscription.key] = queue

    def remove(self, queue: Queue) -> None:
        """It gets nothing more."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        bound = self._bound[TOPIC_PREFIX + subscription.topic]
        del bound[queue]
        if not bound:
            del self._bound[TOPIC_PREFIX + subscription.topic]
        if subscription.durable:
            del self._named[subscription.key]

    def named(self, client: str, name: str) -> Queue | None:
        """The queue of a durable subscription; ``client`` is "" for a shared one."""
        return self._named.get((client, name))

    def bound(self, target: str) -> Collection[Queue]:
        """The queues that get what is sent to this destination, oldest subscription first."""
        return self._bound.get(target, _NOBODY)

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
