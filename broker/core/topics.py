"""Topics: who has subscribed to them.

A topic keeps nothing itself: what is sent to it is added to the queue of each subscription that
there is, all of it in one entry of the journal.

A message is tested once for each distinct selector of its topic. Thousands of large ones take far
longer than a turn of the loop may last, so whoever sends may have them tested in slices before
(``testing``). What was found is kept with the message; ``wanting`` tests what has come since.

Why copies are counted before they are made: a message to a topic costs as often as there are
subscriptions, so one frame of 60 KB could fill the memory and the disk. Copies of a body that
together exceed ``COPIES_MAX`` are one file, to which the record of each subscription refers, as to
the body of a large message; what cannot be shared (headers, short bodies) is bounded by
``acceptor.max-copies-size``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Final

from broker.core.filtering import headers_of
from broker.core.message import Message
from broker.core.queue import Queue
from broker.core.selector import Selector
from broker.core.subscription import TOPIC_PREFIX, Subscription, SubscriptionKey
from broker.core.tested import Tested
from broker.turn_budget import TEST, TurnBudget

SHARED_FROM: Final = 4 * 1024
"""Bytes of the shortest body that is worth a file."""
COPIES_MAX: Final = 1024 * 1024
"""Bytes that the copies of one body may have together before they share a file."""
_NOBODY: Final[Collection[Queue]] = ()


class _Selected:
    """The queues of a topic's subscriptions with one selector; no other has its ``number``."""

    __slots__ = ("number", "queues", "selector")

    def __init__(self, selector: Selector | None, number: int) -> None:
        self.selector = selector
        self.number = number
        self.queues: dict[Queue, None] = {}


class _Topic:
    """The queues of all subscriptions to a topic, the oldest first, and by selector."""

    def __init__(self) -> None:
        self.queues: dict[Queue, int] = {}
        """With numbers that grow. A dict, so that none is searched for when one ends."""
        self.selected: dict[Selector | None, _Selected] = {}

    def add(self, queue: Queue, number: int) -> None:
        """A subscription begins."""
        self.queues[queue] = number
        selected = self.selected.get(queue.wants)
        if selected is None:
            selected = self.selected[queue.wants] = _Selected(queue.wants, number)
        selected.queues[queue] = None

    def remove(self, queue: Queue) -> None:
        """A subscription ends."""
        del self.queues[queue]
        selected = self.selected[queue.wants]
        del selected.queues[queue]
        if not selected.queues:
            del self.selected[queue.wants]


class Topics:
    """The queues of all subscriptions, by topic, and those of the durable ones by name.

    What tests cost is taken from ``budget``.
    """

    def __init__(self, budget: TurnBudget) -> None:
        self._budget = budget
        self._count = 0
        self._topics: dict[str, _Topic] = {}
        self._named: dict[SubscriptionKey, Queue] = {}
        self._owned: Counter[tuple[str, ...]] = Counter()

    def add(self, queue: Queue) -> None:
        """It gets what is sent to its topic from now on."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        self._count += 1
        self._topics.setdefault(TOPIC_PREFIX + subscription.topic, _Topic()).add(queue, self._count)
        if subscription.durable:
            self._name(queue, subscription.key)

    def remove(self, queue: Queue) -> None:
        """It gets nothing more."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        topic = self._topics[TOPIC_PREFIX + subscription.topic]
        topic.remove(queue)
        if not topic.queues:
            del self._topics[TOPIC_PREFIX + subscription.topic]
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
        topic = self._topics.get(target)
        return _NOBODY if topic is None else topic.queues

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

    def selects(self, target: str) -> bool:
        """Return whether any subscription to a destination has a selector."""
        topic = self._topics.get(target)
        return topic is not None and not (len(topic.selected) == 1 and None in topic.selected)

    def testing(self, target: str, message: Message) -> Generator[None]:
        """Test a message before it is stored; each step is one selector.

        Selectors that come meanwhile are tested, too. After the last step ``wanting`` has nothing
        left to test.
        """
        tested = message.tested = message.tested or Tested()
        while (topic := self._topics.get(target)) is not None and (untested := _untested(topic, tested)):
            for selected in untested:
                if selected.queues:
                    self._test(message, tested, selected)
                    yield
        tested.headers = None

    def wanting(self, target: str, message: Message) -> Sequence[Queue]:
        """Return the queues that get this message, those of the oldest subscriptions first."""
        topic = self._topics.get(target)
        tested, message.tested = message.tested or Tested(), None
        if topic is None:
            return ()
        if not self.selects(target):
            return tuple(topic.queues)
        for selected in _untested(topic, tested):
            self._test(message, tested, selected)
        matching = [
            selected
            for selected in topic.selected.values()
            if selected.selector is None or selected.number in tested.wanted
        ]
        if len(matching) == 1:
            return tuple(matching[0].queues)
        queues = (queue for selected in matching for queue in selected.queues)
        return sorted(queues, key=topic.queues.__getitem__)

    def _test(self, message: Message, tested: Tested, selected: _Selected) -> None:
        selector = selected.selector
        assert selector is not None, "a test without a selector"
        if tested.headers is None:
            tested.headers = headers_of(message)
        if selector.matches(tested.headers):
            tested.wanted[selected.number] = None
        tested.upto = selected.number
        self._budget.spend(TEST + selector.terms)


def _untested(topic: _Topic, tested: Tested) -> list[_Selected]:
    """Return the selectors that a message was not tested with, the oldest first."""
    return [
        selected
        for selected in topic.selected.values()
        if selected.number > tested.upto and selected.selector is not None
    ]
