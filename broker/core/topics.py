"""Topics: who has subscribed to them.

A topic keeps nothing itself: what is sent to it is added to the queue of each subscription that
there is, all of it in one entry of the journal. All subscriptions at one other broker get one copy
together, in the store-and-forward queue of that broker; see ``interests``.

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
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Final

from broker.core.filtering import headers_of
from broker.core.interests import Interest, wanted
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
    """The queues of a topic's subscriptions with one selector; no other has its ``number``.

    ``durable`` and ``passing`` count the subscriptions of this broker.
    """

    __slots__ = ("durable", "number", "passing", "queues", "selector")

    def __init__(self, selector: Selector | None, number: int) -> None:
        self.selector = selector
        self.number = number
        self.queues: dict[Queue, None] = {}
        self.durable = 0
        self.passing = 0

    def count(self, queue: Queue, change: int) -> None:
        """Count a subscription of this broker that has come (1) or gone (-1)."""
        if queue.subscription is not None and queue.subscription.durable:
            self.durable += change
        else:
            self.passing += change


class _Topic:
    """The queues of all subscriptions to a topic, the oldest first, and by selector.

    A store-and-forward queue stands for all subscriptions at another broker.
    """

    def __init__(self) -> None:
        self.queues: dict[Queue, int] = {}
        """Those of this broker, with numbers that grow.

        A dict, so that none is searched for when one ends.
        """
        self.elsewhere: dict[Queue, Collection[Selector | None]] = {}
        """The store-and-forward queues, with the selectors of the subscriptions there."""
        self.selected: dict[Selector | None, _Selected] = {}

    def add(self, queue: Queue, number: int) -> None:
        """A subscription begins."""
        self.queues[queue] = number
        self._select(queue.wants, queue, number).count(queue, 1)

    def remove(self, queue: Queue) -> None:
        """A subscription ends."""
        del self.queues[queue]
        self.selected[queue.wants].count(queue, -1)
        self._deselect(queue.wants, queue)

    def forward(self, queue: Queue, selectors: Mapping[Selector | None, int]) -> None:
        """Let a store-and-forward queue get what these selectors match, and nothing else.

        The numbers are those of selectors that are new here.
        """
        for selector in self.elsewhere.pop(queue, ()):
            self._deselect(selector, queue)
        for selector, number in selectors.items():
            self._select(selector, queue, number)
        if selectors:
            self.elsewhere[queue] = tuple(selectors)

    def _select(self, selector: Selector | None, queue: Queue, number: int) -> _Selected:
        selected = self.selected.get(selector)
        if selected is None:
            selected = self.selected[selector] = _Selected(selector, number)
        selected.queues[queue] = None
        return selected

    def _deselect(self, selector: Selector | None, queue: Queue) -> None:
        selected = self.selected[selector]
        del selected.queues[queue]
        if not selected.queues:
            del self.selected[selector]


class Topics:
    """The queues of all subscriptions, by topic, and those of the durable ones by name.

    What tests cost is taken from ``budget``. ``observers`` are called with the name of a topic
    when a subscription of this broker to it has come or gone.
    """

    def __init__(self, budget: TurnBudget) -> None:
        self._budget = budget
        self.observers: list[Callable[[str], None]] = []
        self._count = 0
        self._topics: dict[str, _Topic] = {}
        self._numbers: dict[int, Queue] = {}
        """All subscriptions, by the number that each got when it came."""
        self._known: dict[Queue, dict[str, int]] = {}
        """The nodes that know of each subscription, and the record from which on they know it."""
        self._told: dict[str, int] = {}
        """Node -> the number up to which it knows the subscriptions."""
        self._named: dict[SubscriptionKey, Queue] = {}
        self._owned: Counter[tuple[str, ...]] = Counter()

    @property
    def count(self) -> int:
        """The number of the subscription that came last."""
        return self._count

    def known_by(self, node_id: str, upto: int, record: int) -> list[Queue]:
        """Note that another node knows the subscriptions up to a number, and return the new ones.

        They get what it stored from that record on.
        """
        first, self._told[node_id] = self._told.get(node_id, 0) + 1, max(upto, self._told.get(node_id, 0))
        told = (self._numbers.get(number) for number in range(first, upto + 1))
        new = [queue for queue in told if queue is not None and node_id not in self._known[queue]]
        for queue in new:
            self._known[queue][node_id] = record
        return new

    def adopt_known(self, queue: Queue, nodes: Mapping[str, int]) -> None:
        """Take from a journal which nodes know of a subscription."""
        for node_id, record in nodes.items():
            self._known[queue].setdefault(node_id, record)

    def add(self, queue: Queue) -> None:
        """It gets what is sent to its topic from now on."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        self._count += 1
        self._numbers[self._count] = queue
        self._known[queue] = {}
        self._topics.setdefault(TOPIC_PREFIX + subscription.topic, _Topic()).add(queue, self._count)
        if subscription.durable:
            self._name(queue, subscription.key)
        self._observe(subscription.topic)

    def remove(self, queue: Queue) -> None:
        """It gets nothing more."""
        subscription = queue.subscription
        assert subscription is not None, "a queue without a subscription"
        topic = self._topics[TOPIC_PREFIX + subscription.topic]
        del self._numbers[topic.queues[queue]], self._known[queue]
        topic.remove(queue)
        if not topic.selected:
            del self._topics[TOPIC_PREFIX + subscription.topic]
        if subscription.durable:
            self._forget(subscription.key)
        self._observe(subscription.topic)

    def forward(self, name: str, queue: Queue, selectors: Iterable[Selector | None]) -> None:
        """Let a store-and-forward queue get what is sent to a topic and these selectors match.

        That replaces what it got before; without selectors it gets nothing.
        """
        numbers = {}
        for selector in selectors:
            self._count += 1
            numbers[selector] = self._count
        topic = self._topics.setdefault(TOPIC_PREFIX + name, _Topic())
        topic.forward(queue, numbers)
        if not topic.selected:
            del self._topics[TOPIC_PREFIX + name]

    def interest(self, name: str) -> Interest:
        """Return what the subscriptions of this broker to a topic want."""
        topic = self._topics.get(TOPIC_PREFIX + name)
        selected = () if topic is None else topic.selected.values()
        return Interest(
            wanted(one.selector for one in selected if one.durable),
            wanted(one.selector for one in selected if one.passing),
        )

    @property
    def names(self) -> list[str]:
        """The topics that have subscriptions of this broker."""
        return [name.removeprefix(TOPIC_PREFIX) for name, topic in self._topics.items() if topic.queues]

    def _observe(self, topic: str) -> None:
        for observer in self.observers:
            observer(topic)

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
        """Return the queues of this broker's subscriptions to a destination, the oldest first."""
        topic = self._topics.get(target)
        return _NOBODY if topic is None else topic.queues

    def holders(self, target: str) -> Collection[Queue]:
        """Return the queues that may get what clients send to a destination.

        They are those of subscriptions, and store-and-forward queues.
        """
        topic = self._topics.get(target)
        if topic is None:
            return _NOBODY
        return (*topic.queues, *topic.elsewhere) if topic.elsewhere else topic.queues

    def shares(self, target: str, body_size: int) -> bool:
        """Return whether copies of a body of that size to that destination should share a file."""
        return body_size >= SHARED_FROM and body_size * len(self.holders(target)) > COPIES_MAX

    def copies_size(self, sends: Iterable[tuple[str, Message]]) -> int:
        """Return the bytes that these messages would take for all subscriptions together.

        What is sent to queues, or to a topic with one subscription, is no copy and does not count.
        """
        return sum(
            message.size * subscriptions
            for target, message in sends
            if (subscriptions := len(self.holders(target))) > 1
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

    def arriving(self, target: str, message: Message) -> Sequence[Queue]:
        """Return the queues of subscriptions that get a message from another broker.

        They are those of which its node knew when it stored the message.
        """
        identity = message.identity
        assert identity is not None, "a forwarded message without an identity"
        return [
            queue
            for queue in self.wanting(target, message)
            if identity.record > self._known.get(queue, {}).get(identity.origin, identity.record)
        ]

    def wanting(self, target: str, message: Message) -> Sequence[Queue]:
        """Return the queues that get this message, those of the oldest subscriptions first.

        Store-and-forward queues come last.
        """
        topic = self._topics.get(target)
        tested, message.tested = message.tested or Tested(), None
        if topic is None:
            return ()
        if not self.selects(target):
            return tuple(self.holders(target))
        for selected in _untested(topic, tested):
            self._test(message, tested, selected)
        matching = [
            selected
            for selected in topic.selected.values()
            if selected.selector is None or selected.number in tested.wanted
        ]
        if len(matching) == 1 and not topic.elsewhere:
            return tuple(matching[0].queues)
        queues = dict.fromkeys(queue for selected in matching for queue in selected.queues)
        here = sorted((queue for queue in queues if queue in topic.queues), key=topic.queues.__getitem__)
        return here + [queue for queue in topic.elsewhere if queue in queues]

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
