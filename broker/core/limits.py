"""Limits on the number of messages in a queue and in the broker, and on a queue's producers.

``max-messages`` and ``max-producers`` of the address settings, ``broker.max-messages``. An
administrator may give a queue others meanwhile (``limit_updates``).

A message counts from its entry in the journal until it has ended, wherever it is meanwhile: on its
way to the disk, in memory, on a page, with a consumer or in a transaction. A send without room does
what the ``limit-behavior`` of its queue says:

    FLOW_CONTROL         waits, as for room in memory
    REJECT_NEWEST        is refused, and certainly not stored
    REMOVE_OLDEST        is stored, and the oldest message that waits is removed in the same entry
    REMOVE_LOW_PRIORITY  the same with the oldest of the lowest priority, which may be the new one

Only what waits is removed: a client that holds a message may acknowledge it. While nothing waits,
the send does. Removed messages are no dead letters: these would have no bound.

What the broker itself puts into a queue always enters, because nobody could send it again: dead
letters, expired messages, and those that move to another broker. They count, and they remove others
where the queue removes. A message that another broker has accepted stays there while a queue waits
or refuses. The queue of messages for another broker removes and refuses nothing: once it is full,
messages stay here.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from broker.core.backlog import CHUNK, Loose
from broker.core.groups import Lane
from broker.core.properties import DEFAULT_PRIORITY
from broker.core.queue import Queue
from broker.core.subscription import TOPIC_PREFIX

if TYPE_CHECKING:
    from broker.core.addresses import AddressBook, AddressSettings
    from broker.core.consumer import Delivery
    from broker.core.message import Message
    from broker.core.pages import Page
    from broker.core.pauses import Pauses
    from broker.core.topics import Topics
    from broker.core.transactions import Transaction

_SLACK: Final = 1024
"""The messages that are gone and still remembered by priority, beside as many as are there."""

Sends = Sequence[tuple[str, "Message"]]


class Demand:
    """The room that a send needs, or a transaction, whose acknowledgements make some.

    It is counted once, because a commit that waits asks for room again and again.
    """

    __slots__ = ("freed", "lacking", "marked", "targets")

    def __init__(self, sends: Sends, acknowledged: Iterable[Delivery] = ()) -> None:
        self.targets = Counter(target for target, _ in sends)
        self.marked = [send for send in sends if send[1].properties is not None and send[1].properties.once]
        """Those with an id, which may repeat what was taken before."""
        self.freed = Counter(
            queue
            for delivery in acknowledged
            if delivery.settler is None and isinstance(queue := delivery.consumer.queue, LimitedQueue)
        )
        """How many messages that are stored here the transaction acknowledges."""
        self.lacking: tuple[LimitedQueue | str, int, int] | None = None
        """What had no room at the last look, and how much it lacked room for: see ``_lacks``."""

    @classmethod
    def from_transaction(cls, transaction: Transaction) -> Demand:
        """Return the room that a transaction needs."""
        return cls(transaction.sends, transaction.acknowledged)


class StoredCount:
    """The number of messages in all queues, and the most there may be (``broker.max-messages``)."""

    __slots__ = ("count", "most")

    def __init__(self, most: int) -> None:
        self.count = 0
        self.most = _bound(most)


class LimitedQueue(Queue):
    """A queue that counts its messages, because their number has a limit.

    ``room_changed`` is called when a send that waits may find a message to remove.
    """

    __slots__ = ("_by_priority", "_room_changed", "_total", "behavior", "count", "most")

    def __init__(self, *arguments: Any, total: StoredCount, room_changed: Callable[[], None]) -> None:
        super().__init__(*arguments)
        self.count = 0
        self._total = total
        self._room_changed = room_changed
        self.limit(self.settings)

    def limit(self, settings: AddressSettings) -> None:
        """Let other limits hold from now on; what is stored stays, even if it is too much."""
        self.settings = settings
        self.behavior = "FLOW_CONTROL" if self.forwards else settings.limit_behavior
        self.most = _bound(settings.max_messages)
        self._by_priority: dict[int, deque[Message]] | None = None
        """What was lined up, by priority; some of it is gone or held. None: nobody asks for it."""
        if self.behavior == "REMOVE_LOW_PRIORITY":
            self._by_priority = defaultdict(deque)
            for message in self.messages.values():
                self._by_priority[_priority(message)].append(message)

    # ------------------------------------------------------------------------------------- counting

    def stored(self) -> None:
        """Count a message whose entry is appended now."""
        self.count += 1
        self._total.count += 1

    def _ended(self, number: int) -> None:
        self.count -= number
        self._total.count -= number

    def adopt(self, line: Sequence[Loose | Page], *, size: int, least_deliveries: int) -> None:
        """Count what a journal held."""
        before = len(self)
        super().adopt(line, size=size, least_deliveries=least_deliveries)
        self._ended(before - len(self))

    def settled(self, delivery: Delivery) -> None:
        """Count a delivery that has ended for good."""
        super().settled(delivery)
        self._ended(1)

    def gone(self, messages: Iterable[Message]) -> None:
        """Count messages that have ended without a delivery."""
        before = len(self.messages)
        super().gone(messages)
        self._ended(before - len(self.messages))

    def removing(self, most: int) -> Iterator[tuple[list[Message], list[Page]]]:
        """Count what is purged."""
        for messages, pages in super().removing(most):
            self._ended(len(messages) + sum(page.left for page in pages))
            yield messages, pages

    # ----------------------------------------------------------------------------------------- room

    @property
    def refuses(self) -> bool:
        """True if sends are refused while there is no room."""
        return self.behavior == "REJECT_NEWEST"

    @property
    def removes(self) -> bool:
        """True if messages that wait give way to new ones."""
        return self.behavior.startswith("REMOVE")

    def excess(self, more: int, in_all: int | None = None) -> int:
        """Return how many messages would be too many, if there were so many ``more``.

        ``in_all`` is how many more there would be in all queues, if not as many. A transaction that
        adds none there needs no room in the broker, even if that has too many: it may be the only
        way to fewer.
        """
        total = self._total
        added = more if in_all is None else in_all
        beyond_total = total.count + added - total.most if added > 0 else 0
        return max(0, self.count + more - self.most, beyond_total)

    def must_wait(self, more: int, in_all: int | None = None) -> bool:
        """Return whether sends of so many messages have to wait; refused ones do not."""
        excess = self.excess(more, in_all)
        if not excess or self.refuses:
            return False
        return not (self.removes and self._has_waiting(min(excess, more)))

    def refuses_to_take(self, more: int, in_all: int | None = None) -> bool:
        """Return whether sends of so many messages are refused."""
        return self.refuses and self.excess(more, in_all) > 0

    def is_full_with(self, size: int, count: int = 0) -> bool:
        """Return whether producers would have to wait if it had so much more."""
        return super().is_full_with(size) or self.must_wait(count + 1)

    def _has_waiting(self, number: int) -> bool:
        """Return whether so many messages wait, and could be removed.

        If a page must be read first, it is asked for.
        """
        while True:
            waiting = 0
            for message in self.messages.values():
                waiting += not message.held
                if waiting >= number:
                    return True
            if not self._look_further():
                return False

    # ------------------------------------------------------------------------------------- removing

    def make_room(self, message: Message) -> Sequence[Message] | None:
        """Take out what gives way to a message that is stored now; None: that message itself.

        More than one gives way if there were too many before, as after a start with a lower limit.
        """
        excess = self.excess(1)
        if not (excess and self.removes):
            return ()
        self._has_waiting(1)
        removed = [*self._first_waiting(min(excess, CHUNK))]
        if self._by_priority is not None and removed and _priority(message) < _priority(removed[0]):
            return None
        self._take_out(removed)
        self.gone(removed)
        return removed

    def _first_waiting(self, most: int) -> Iterator[Message]:
        """Yield the messages that are to be removed first, at most so many."""
        if self._by_priority is None:
            return islice((message for message in self.messages.values() if not message.held), most)
        return islice(self._least_urgent(self._by_priority), most)

    def _least_urgent(self, by_priority: Mapping[int, deque[Message]]) -> Iterator[Message]:
        """Yield what waits, the lowest priority first, and of each priority the oldest first."""
        for _, line in sorted(by_priority.items()):
            while line and self.messages.get(line[0].id) is not line[0]:
                line.popleft()
            seen = set[int]()  # what is delayed is lined up twice
            for message in line:
                if not message.held and self.messages.get(message.id) is message and message.id not in seen:
                    seen.add(message.id)
                    yield message

    def _take_out(self, messages: Iterable[Message]) -> None:
        """Take messages that wait out of the lanes, and those out of ``_early`` that are early."""
        by_lane: dict[Lane, dict[Message, None]] = {}
        for message in messages:
            if self._early.pop(message.id, None) is None:
                lane = self._plain if message.group is None else self.lanes[message.group]
                by_lane.setdefault(lane, {})[message] = None
        for lane, some in by_lane.items():
            (lane if self.filtering is None else self.filtering).take_these(some)

    def _line_up(self, message: Message) -> None:
        """Line up a message; remember it by priority where that decides what is removed."""
        super()._line_up(message)
        if self._by_priority is not None:
            line = self._by_priority[_priority(message)]
            line.append(message)
            if len(line) > 2 * len(self.messages) + _SLACK:
                self._by_priority[_priority(message)] = deque(
                    one for one in line if self.messages.get(one.id) is one
                )

    def wake(self) -> None:
        """Dispatch soon; a send that waits may find a message to remove."""
        super().wake()
        if self.removes:
            self._room_changed()


class Limits:
    """The limits of an engine, as those who send meet them.

    ``max_messages`` is that of the broker, the others are in the address settings.
    ``repeats`` returns whether a send repeats one that was taken before, so that it needs no room.
    """

    def __init__(
        self,
        addresses: AddressBook,
        max_messages: int,
        queues: Mapping[str, Queue],
        topics: Topics,
        repeats: Callable[[str, Message], bool],
    ) -> None:
        self.total = StoredCount(max_messages)
        self._addresses = addresses
        self._queues = queues
        self._topics = topics
        self._repeats = repeats
        self._producers: defaultdict[str, set[str]] = defaultdict(set)
        """The sessions that have sent to each destination with a limit."""
        self._destinations: defaultdict[str, set[str]] = defaultdict(set)
        """The same destinations by session."""

    def waits_for_new(self, queue: str, *, forwarded: bool) -> bool:
        """Return whether the first message to a queue has to wait, because the broker is full.

        One that was ``forwarded`` here waits where others are refused.
        """
        return self._is_full_for(1) and (forwarded or not self._refuses_new(queue))

    def refusal(self, sends: Sends, transaction: Transaction | None = None) -> str:
        """Return why these sends are refused, "" if they are not.

        What their transaction acknowledges leaves room for them.
        """
        return self._refusal(Demand(sends, () if transaction is None else transaction.acknowledged))

    def _refusal(self, demand: Demand) -> str:
        growth, in_all = self._growth(demand)
        for queue, more in growth.items():
            if queue.refuses_to_take(more, in_all):
                if queue.excess(more, 0):
                    return _full(queue.name, queue.count, "address-settings: max-messages", queue.most)
                return _full(queue.name, self.total.count, "broker.max-messages", self.total.most)
            if more > queue.most:
                return _never_fits(more, f"queue {queue.name[:64]!r}", queue.most)
        if in_all > self.total.most:
            return _never_fits(in_all, "the broker", self.total.most)
        is_full = self._is_full_for(in_all)
        for target, more in demand.targets.items() if growth or in_all else ():
            if not ((more > 1 or is_full) and self._is_new(target)):
                continue
            settings = self._addresses.settings(target)
            if more > _bound(settings.max_messages):
                return _never_fits(more, f"queue {target[:64]!r}", settings.max_messages)
            if is_full and settings.limit_behavior == "REJECT_NEWEST":
                return _full(target, self.total.count, "broker.max-messages", self.total.most)
        return ""

    def must_wait(self, demand: Demand) -> str:
        """Return a destination without room for what a transaction sends, "" if there is none.

        One that is to be refused does not wait.
        """
        if demand.lacking is not None and self._lacks(*demand.lacking):
            return _name(demand.lacking[0])
        demand.lacking = None
        if self._refusal(demand):
            return ""
        growth, in_all = self._growth(demand)
        places: list[tuple[LimitedQueue | str, int]] = [*growth.items()]
        if self._is_full_for(in_all):
            places += [(target, 1) for target in demand.targets if self._is_new(target)]
        for place, more in places:
            if self._lacks(place, more, in_all):
                if not any(target.startswith(TOPIC_PREFIX) for target in demand.targets):
                    demand.lacking = place, more, in_all  # which other subscriptions do not change
                return _name(place)
        return ""

    def _lacks(self, place: LimitedQueue | str, more: int, in_all: int) -> bool:
        """Return whether a queue, or one that is to be made, has no room."""
        if isinstance(place, str):
            return self._is_new(place) and self._is_full_for(in_all)
        return not place.dropped and place.must_wait(more, in_all)

    def reason(self, target: str, demand: Demand | None = None) -> str:
        """Return which limit a send to a destination waits for, or a commit with this ``demand``.

        "" if it waits for none.
        """
        holder = self._queues.get(target)
        holders = self._topics.holders(target) if holder is None else (holder,)
        growth = Counter(queue for queue in holders if isinstance(queue, LimitedQueue))
        in_all = 1
        if demand is not None:
            growth, in_all = self._growth(demand)
        total = self.total
        all_queues = "all queues together have", total.count, total.most, "broker.max-messages"
        for queue, more in growth.items():
            if queue.must_wait(more, in_all):
                if not queue.excess(more, 0):
                    return _lacking(*all_queues, in_all, removes=queue.removes)
                place, limit = f"{queue.name[:48]!r} has", "address-settings: max-messages"
                return _lacking(place, queue.count, queue.most, limit, more, removes=queue.removes)
        if self._is_new(target) and self._is_full_for(in_all):
            return _lacking(*all_queues, in_all, removes=False)
        return ""

    def enter(self, target: str, session: str) -> str:
        """Make a session a producer of a destination, or return why it may not be one."""
        most = self._addresses.settings(target.removeprefix(TOPIC_PREFIX)).max_producers
        if most < 0:
            return ""
        producers = self._producers[target]
        if session not in producers and len(producers) >= most:
            return (
                f"{target[:64]!r} has {len(producers)} producers, and may have {most} (address-settings: "
                "max-producers): close another connection that sends there"
            )
        producers.add(session)
        self._destinations[session].add(target)
        return ""

    def leave(self, session: str) -> None:
        """A session sends nothing more."""
        for target in self._destinations.pop(session, ()):
            producers = self._producers[target]
            producers.discard(session)
            if not producers:
                del self._producers[target]

    def _is_new(self, target: str) -> bool:
        return target[0] != "/" and target not in self._queues

    def _refuses_new(self, queue: str) -> bool:
        return self._addresses.settings(queue).limit_behavior == "REJECT_NEWEST"

    def _is_full_for(self, more: int) -> bool:
        return more > 0 and self.total.count + more > self.total.most

    def _growth(self, demand: Demand) -> tuple[Counter[LimitedQueue], int]:
        """Return how many messages more each queue that grows would have, and all together."""
        growth: Counter[LimitedQueue] = Counter()
        if any(self._repeats(target, message) for target, message in demand.marked):
            return growth, 0  # nothing of it is stored
        new = 0
        for target, count in demand.targets.items():
            queue = self._queues.get(target)
            if queue is None and target[0] != "/":
                new += count
            for holder in self._topics.holders(target) if queue is None else (queue,):
                if isinstance(holder, LimitedQueue):
                    growth[holder] += count
        growth.subtract(demand.freed)
        return +growth, new + growth.total()


class TransactionRoom:
    """The room for all that a transaction sends, for which its commit waits."""

    __slots__ = ("_demand", "_limits", "_pauses")

    def __init__(self, limits: Limits | None, pauses: Pauses, transaction: Transaction) -> None:
        self._limits = limits
        self._pauses = pauses
        self._demand = Demand.from_transaction(transaction)

    def lacking(self) -> str:
        """Return a destination that is paused for producers or has no room, "" if there is none."""
        paused = self._pauses.find_paused(self._demand.targets)
        if paused:
            return paused[0]
        return "" if self._limits is None else self._limits.must_wait(self._demand)

    def reason(self) -> str:
        """Return which limit leaves no room, "" if none does."""
        target = self.lacking()
        return "" if self._limits is None else self._limits.reason(target, self._demand)


def _name(place: LimitedQueue | str) -> str:
    return place if isinstance(place, str) else place.name


def _full(queue: str, count: int, limit: str, most: int) -> str:
    return (
        f"{queue[:64]!r} is full: {count} messages are stored, and {most} may be ({limit}): send again later"
    )


def _lacking(place: str, count: int, most: int, limit: str, more: int, *, removes: bool) -> str:
    text = f"{place} {count} messages, and may have {most} ({limit})"
    if more > 1:
        text += f"; {more} more are sent"
    return text + "; too few wait that could be removed: clients hold the others" if removes else text


def _never_fits(more: int, place: str, most: int) -> str:
    return (
        f"the transaction sends {more} messages more to {place} than it acknowledges there, and {most} may "
        "be stored (max-messages): send less in one transaction"
    )


def _priority(message: Message) -> int:
    return DEFAULT_PRIORITY if message.properties is None else message.properties.priority


def _bound(most: int) -> int:
    return sys.maxsize if most < 0 else most
