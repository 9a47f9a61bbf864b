"""A queue: durable messages in lanes, and their dispatch to consumers.

Why no scan: with 100,000 messages waiting and owners without credit, a dispatch must still cost
O(log lanes). Lanes that nobody owns wait in one heap, lanes of an owner in the owner's; entries are
keyed by the oldest message and go stale silently when a lane changes (they are dropped when met).
Consumers with credit stand in a rotation, so that unowned work goes round robin; each takes the
oldest message it may have.

A store-and-forward queue has no groups: it has one consumer, and a message of a group that waited
until the one before it is confirmed would be overtaken by all others.

Nothing here touches the journal: the engine says what is durable, the queue says who gets it.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import Final, Protocol

from broker.core.addresses import AddressSettings, is_store_and_forward
from broker.core.backlog import CHUNK, Backlog, Loose
from broker.core.consumer import Delivery, QueueConsumer
from broker.core.filtering import Filtering
from broker.core.groups import RANK, Lane
from broker.core.message import Message
from broker.core.pages import Page
from broker.core.properties import DEFAULT_PRIORITY, changes_expiry
from broker.core.selector import Selector
from broker.core.subscription import Subscription
from broker.storage.records import Record
from broker.turn_budget import ARRIVAL, DELIVERY, REMOVAL, Line, TurnBudget

GROUPS_MAX: Final = 65_536
"""Groups whose owner is remembered though nothing of them waits or is held.

Beyond it such a group may get another owner (Artemis bounds the same memory by ``group-buckets``).
"""


LOOK_AGAIN_S: Final = 1.0
"""The longest sleep until something is due: a wall clock may be set."""

EXPIRED_KEPT: Final = 1024
"""What is remembered of messages that will expire and are gone, beside as many as are there."""

SLACK: Final = 8
"""Pages' worth of messages beyond ``max-size-bytes`` at which producers wait for the disk."""


class Pager(Protocol):
    """Who writes pages and reads them: see ``core.paging``."""

    def pages(self, queue: Queue) -> bool:
        """Does that queue page, or do its producers wait?"""
        ...

    def full(self) -> bool:
        """Has all memory together reached its bound?"""
        ...

    def window(self) -> float:
        """Return how many bytes a queue may line up."""
        ...

    def arrived(self, queue: Queue, backlog: Backlog) -> None:
        """There is more in the backlog of a queue that pages."""
        ...

    def wanted(self, queue: Queue, backlog: Backlog, page: Page) -> None:
        """That page is the next thing its consumers need."""
        ...


class Expiry(Protocol):
    """Who knows the time, and moves what has expired: the engine."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def awaits(self, queue: Queue) -> None:
        """Something in that queue will expire."""
        ...

    def expired(self, queue: Queue, messages: list[Message]) -> None:
        """These have; they are out of the lanes, and ``gone`` ends them."""
        ...


class Queue:
    """One queue.

    ``id`` is its record in the journal, ``size`` the bytes of its messages in memory including
    those not yet durable.

    ``handed_over`` is called with each delivery to a consumer in auto mode, which settles it.
    ``may_dispatch`` is asked before each round of dispatch; whoever says no wakes the queue later.
    """

    __slots__ = (
        "_alarm", "_budget", "_client_consumers", "_departed", "_due", "_early", "_expired", "_expiry",
        "_last_place", "_limit", "_plain", "_purges", "_redistributors", "_scheduled", "_selectors",
        "_unowned", "_with_work", "also", "backlog", "changes_expiry", "consumers", "delivers", "dropped",
        "expiring", "filtering", "forwards", "handed_over", "id", "lanes", "made", "may_dispatch", "messages",
        "name", "page_bytes", "pager", "paging", "prepared", "rotation", "settings", "size", "slack",
        "subscription", "takes_sends", "unattended_since", "wants",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        queue_id: int,
        settings: AddressSettings,
        handed_over: Callable[[Delivery], None],
        expiry: Expiry,
        may_dispatch: Callable[[], bool],
        pager: Pager,
        budget: TurnBudget,
        subscription: Subscription | None = None,
    ) -> None:
        self.name = name
        self.id = queue_id
        self.also: list[int] = []
        """More records of that name: a store that came from several brokers has one of each."""
        self.settings = settings
        self.handed_over = handed_over
        self.forwards = is_store_and_forward(name)
        """True for the store-and-forward queue of another broker."""
        self.changes_expiry = changes_expiry(settings)
        self.expiring: list[tuple[int, int]] = []
        """When what was lined up will expire, and its id; a heap. It may be gone by now."""
        self._early: dict[int, Message] = {}
        """What must not be delivered yet: in ``messages``, and in no lane."""
        self._due: list[tuple[int, int]] = []
        """When they may be, and their ids; a heap."""
        self._alarm: asyncio.TimerHandle | None = None
        self._expiry = expiry
        self._expired: list[Message] = []
        """Found in this dispatch."""
        self.may_dispatch = may_dispatch
        self.pager = pager
        self._budget = budget
        self.subscription = subscription
        """Whose messages wait here; None for a queue that is nobody's."""
        self.wants = None if subscription is None else subscription.compiled()
        """What of its topic comes here; None: everything."""
        self.dropped = False
        """It is no more, but for what is in it."""
        self.made: tuple[str, int] | None = None
        """The place of the change that made it, if the change record has it.

        It stays although nobody uses it. Brokers whose places differ mean different entities.
        """
        self.takes_sends = self.delivers = True
        """False while an administrator has paused it: see ``core.pauses``."""
        self.paging = False
        """Where not, producers wait; pages from before may be there all the same."""
        self.page_bytes = settings.page_bytes
        self.slack = 0
        """Bytes that it may have beyond its bound while pages are being written."""
        self._limit: float = settings.max_size_bytes if settings.max_size_bytes >= 0 else math.inf
        self.size = 0
        self.messages: dict[int, Message] = {}
        self.prepared: dict[int, Delivery] = {}
        """Those of the backlog that were prepared before the start, by their messages' ids."""
        self.consumers: dict[QueueConsumer, None] = {}
        self._client_consumers = 0
        """How many of them are not internal: counted, since thousands may leave together."""
        self._redistributors = 0
        self._selectors: Counter[Selector] | None = None
        """How many clients' consumers have each selector; None until one has."""
        self.unattended_since = asyncio.get_running_loop().time()
        """Since when no client consumes it (loop time), while none does."""
        self.rotation: deque[QueueConsumer] = deque()
        self._departed = 0
        """The number of consumers in the rotation that have left."""
        self.lanes: dict[str, Lane] = {}
        self.backlog: Backlog | None = None
        """What waits behind ``messages``; None while nothing does."""
        self.filtering: Filtering | None = None
        """Has what waits, instead of the lanes, while some consumer has a selector."""
        self._plain = Lane(None)
        self._last_place = 0
        self._purges = 0
        self._unowned: list[tuple[int, Lane]] = []
        self._with_work: dict[QueueConsumer, None] = {}
        self._scheduled = False
        if pager.pages(self):
            self.paging = True
            self.slack = SLACK * self.page_bytes

    # ------------------------------------------------------------------------------------- messages

    def arrive(self, message: Message) -> None:
        """A message has become durable: it may be dispatched, in the order of these calls."""
        backlog = self.backlog
        if backlog is None and self.paging and (self.size >= self._limit or self.pager.full()):
            backlog = self.backlog = Backlog()
        if backlog is None:
            self._line_up(message)
        else:
            backlog.append(message)
            if self.paging:
                self.pager.arrived(self, backlog)
        self.wake()

    def adopt(self, line: Sequence[Loose | Page], *, size: int, least_deliveries: int) -> None:
        """Records of a journal that became ours, ``size`` bytes; a new queue's wait as they are."""
        if self.backlog is None and not self.messages:
            self.backlog = Backlog(line, size=size, least_deliveries=least_deliveries)
        else:
            backlog = self.backlog = self.backlog or Backlog()
            for item in line:
                backlog.adopt(item, least_deliveries=least_deliveries)
        if self.paging and self.size >= self._limit:
            self.pager.arrived(self, self.backlog)
        self.wake()

    def items(self) -> Iterator[Loose | Page]:
        """Everything stored, oldest first where none was taken over later.

        ``backlog.message`` makes a message of a record, which takes far longer than to find it.
        """
        return chain(self.messages.values(), () if self.backlog is None else self.backlog.items())

    def all(self) -> Iterator[Message | Page]:
        """Every message, in the order of ``items``; unread pages as they are."""
        for item in self.items():
            if isinstance(item, Record):
                assert self.backlog is not None, "only the backlog has records"
                yield self.backlog.message(item)
            else:
                yield item

    def __len__(self) -> int:
        return len(self.messages) + (len(self.backlog) if self.backlog is not None else 0)

    def __bool__(self) -> bool:
        return True

    def _look_further(self) -> bool:
        """Line up the next of the backlog, as far as there is room and none must be read first."""
        backlog = self.backlog
        if backlog is None:
            return False
        found = False
        for _ in range(min(CHUNK, len(backlog))):
            if self.paging and self._has_enough(self.size - backlog.size):
                return found  # until some of what is lined up is consumed
            page = backlog.next_page()
            if page is not None:
                self.pager.wanted(self, backlog, page)
                return found
            self._line_up(backlog.take())
            found = True
        if not backlog:
            self.backlog = None
        return found

    def _has_enough(self, lined_up: int) -> bool:
        """Return whether so many bytes lined up are enough for now.

        Of messages that perhaps no selector wants not much more than the queue's share is.
        """
        if self.filtering is not None and self.filtering.waiting:
            return lined_up >= min(self._limit, self.pager.window())
        return bool(self.messages) and lined_up >= self._limit

    def _line_up(self, message: Message) -> None:
        self.messages[message.id] = message
        properties = message.properties
        if properties is not None:
            if properties.due > self._expiry.now() and not (self.dropped or message.held):
                self._delay(message, properties.due)
                return
            self._await_expiry(message, properties.expires)
        message.place = self._last_place = self._last_place + 1
        group = message.group
        if group is None or self.forwards:
            if group is None and properties is not None:
                message.place += (DEFAULT_PRIORITY - properties.priority) * RANK
            if message.held:
                self._hold(message, self._plain)
            elif self.filtering is None and not 0 < message.place < RANK:
                self._plain.put_back(message)
            elif self.filtering is None:
                self._plain.fresh.append(message)
            else:
                self.filtering.add(message)
        else:
            lane = self.lanes.get(group)
            if lane is None:
                lane = self.lanes[group] = Lane(group)
            if message.held:
                self._hold(message, lane)
                return
            if self.filtering is not None:
                self.filtering.add(message)
                return
            lane.fresh.append(message)
            if len(lane.fresh) == 1 and not lane.returned:
                self._list(lane)

    def hold(self, delivery: Delivery) -> None:
        """Keep a message of the backlog from all consumers: it was prepared before the start."""
        delivery.message.held = True
        self.prepared[delivery.message.id] = delivery

    def _hold(self, message: Message, lane: Lane) -> None:
        """Line up a message that is held: its lane is known now, and waits with it."""
        delivery = self.prepared.pop(message.id)
        lane.held += lane.group is not None
        lane.delayed += delivery.lane.delayed
        delivery.lane = lane

    def settled(self, delivery: Delivery) -> None:
        """A delivery has ended for good: its message is acknowledged, dead or moved."""
        if self.prepared.pop(delivery.message.id, None) is None:
            del self.messages[delivery.message.id]
        elif self.backlog is not None:
            self.backlog.remove(delivery.message)
            if not self.backlog:
                self.backlog = None
        if self.backlog is not None:
            self.wake()  # there is room for more of it
        lane = delivery.lane
        if lane.group is not None:
            lane.held -= 1
            if (
                len(self.lanes) > GROUPS_MAX
                and not (lane or lane.held or lane.delayed)
                and lane.owner is not None
            ):
                del lane.owner.owned[lane]
                lane.owner = None
            self._freed(lane)

    def gone(self, messages: Iterable[Message]) -> None:
        """These have ended without a delivery."""
        for message in messages:
            del self.messages[message.id]
            if message.group is not None and (lane := self.lanes.get(message.group)) is not None:
                if lane.owner is None:
                    self._freed(lane)
                else:
                    self._list(lane)
        if self.backlog is not None:
            self.wake()  # there is room for more of it

    def refusing(self, delivery: Delivery) -> None:
        """A refusal is on its way to the disk: its group waits, or a younger one would overtake."""
        delivery.lane.delayed += 1

    def returned(self, deliveries: Iterable[Delivery], delay: float = 0.0, *, refused: bool = False) -> None:
        """Messages come back undone, each to its place.

        ``delay`` seconds later their group (or they alone) go on.

        ``refused``: each was given to ``refusing``.
        """
        for delivery in deliveries:
            message, lane = delivery.message, delivery.lane
            if refused:
                lane.delayed -= 1
            if self.prepared.pop(message.id, None) is not None:
                message.held = False  # it is in the backlog, at its place
                continue
            if delay:
                self._later(message, lane, delay)
            else:
                self._put_back(message, lane)
            if lane.group is not None:
                lane.held -= 1
                self._list(lane)
        self.wake()

    def removing(self, most: int) -> Iterator[tuple[list[Message], list[Page]]]:
        """Take out what waits now and is with no consumer or transaction, for purging.

        So many messages in memory, or pages, at a time.

        What waits behind the lanes is out of reach from the first step on: it must not be lined up
        while others are taken. Pages with messages of prepared transactions must have been read.
        """
        self._purges += 1
        try:
            yield from self._removing(most)
        finally:
            self._purges -= 1

    def _removing(self, most: int) -> Iterator[tuple[list[Message], list[Page]]]:
        last = self._last_place
        backlog, self.backlog = self.backlog, None
        for message in () if backlog is None or not self.prepared else backlog.take_held():
            self._line_up(message)
        messages: list[Message] = []
        pages: list[Page] = []
        for message in self._taken(last):
            del self.messages[message.id]
            messages.append(message)
            if len(messages) == most:
                yield messages, []
                messages = []
        for item in backlog.items() if backlog is not None else ():
            if isinstance(item, Page):
                assert not item.prepared, "a page with messages of a prepared transaction is purged"
                pages.append(item)
            else:
                assert backlog is not None
                messages.append(backlog.message(item))
            if len(messages) + len(pages) >= most:
                yield messages, pages
                messages, pages = [], []
        if messages or pages:
            yield messages, pages

    def _taken(self, last: int) -> Iterator[Message]:
        """Take what waits and was lined up by then out of lanes and views, and what is early."""
        early = self._early
        for message_id in list(early):
            if message_id in early:
                yield early.pop(message_id)
        for lane in (self._plain, *list(self.lanes.values())):
            while (head := lane.head()) and head & (RANK - 1) <= last:
                yield lane.pop()
            if self.filtering is None:
                self._forget(lane)
        if self.filtering is not None:
            yield from self.filtering.take(last)
            for lane in list(self.lanes.values()):
                self._forget(lane)

    def _forget(self, lane: Lane) -> None:
        if lane.group is not None and lane.idle() and self.lanes.get(lane.group) is lane:
            del self.lanes[lane.group]

    def set_back(self, kept_bytes: int, most: int) -> int:
        """Put what was lined up last back into the backlog: all but ``kept_bytes``.

        At most ``most`` bytes. What consumers hold stays, and what is older: it could be overtaken.
        What selectors look at stays a little more than that, or was lined up again at once.
        Return the bytes that are lined up or held afterwards.
        """
        lined_up = self.size - (0 if self.backlog is None else self.backlog.size)
        if self._purges:
            return lined_up
        least = max(kept_bytes, lined_up - most)
        taken: dict[Message, None] = {}
        for message in reversed(self.messages.values()):
            if message.held or lined_up - (message.size if self.filtering is not None else 0) <= least:
                break
            taken[message] = None
            lined_up -= message.size
        if not taken:
            return lined_up
        lanes: Counter[Lane] = Counter()
        for message in taken:
            del self.messages[message.id]
            lane = self._plain if message.group is None or self.forwards else self.lanes.get(message.group)
            if lane is not None:  # else all of the group was early
                lanes[lane] += message.id not in self._early
            self._early.pop(message.id, None)
        if self.filtering is not None:
            self.filtering.take_these(taken)
        for lane, count in lanes.items():
            if self.filtering is None:
                lane.take_last(taken, count)
            self._forget(lane)
        if self.backlog is None:
            self.backlog = Backlog()
        self.backlog.put_first(list(taken))
        self.wake()
        return lined_up

    def drop(self) -> None:
        """It is no more: nothing of it is anybody's, and nothing expires."""
        self.dropped = self.delivers = True
        self.expiring.clear()

    @property
    def idle(self) -> bool:
        """No consumer and no message, not even one on its way to the disk or in a transaction.

        A redistributor is there for the messages only.
        """
        return not (len(self.consumers) > self._redistributors or self.size or len(self))

    @property
    def topic(self) -> str | None:
        """Of whose messages it has a subscriber's copies."""
        return None if self.subscription is None else self.subscription.topic

    @property
    def paused(self) -> tuple[str, ...]:
        """The sides for which an administrator has paused it."""
        sides = ("producers", self.takes_sends), ("consumers", self.delivers)
        return tuple(side for side, goes_on in sides if not goes_on)

    @property
    def full(self) -> bool:
        """Must producers wait?"""
        return self.is_full_with(0)

    def is_full_with(self, size: int, count: int = 0) -> bool:  # noqa: ARG002 - see ``limits``
        """Return whether producers would have to wait if there were so much more."""
        return self.size + size >= self._limit + self.slack or not self.takes_sends

    def paged(self) -> int:
        """How many messages are on pages that were not read yet."""
        items = self.backlog.items() if self.backlog is not None else ()
        return sum(item.left for item in items if isinstance(item, Page))

    def client_consumers(self) -> int:
        """How many consumers clients have brought."""
        return self._client_consumers

    def client_selectors(self) -> Sequence[Selector]:
        """Return the distinct selectors of clients' consumers, if each of them has one."""
        selectors = self._selectors
        return [*selectors] if selectors and selectors.total() == self._client_consumers else ()

    def unacknowledged(self) -> int:
        """How many messages consumers hold, without those of other brokers."""
        return sum(
            len(consumer.unacknowledged)
            if consumer.remote is None
            else sum(delivery.settler is None for delivery in consumer.unacknowledged.values())
            for consumer in self.consumers
        )

    def _later(self, message: Message, lane: Lane, delay: float) -> None:
        lane.delayed += 1
        asyncio.get_running_loop().call_later(delay, self._delay_over, message, lane)

    def _delay_over(self, message: Message, lane: Lane) -> None:
        if self._budget.left <= 0:  # a transaction may have refused thousands at one time
            self._budget.wait(partial(self._delay_over, message, lane), Line.DELIVERIES)
            return
        self._budget.spend(ARRIVAL)
        lane.delayed -= 1
        self._put_back(message, lane)
        if lane.group is not None:
            self._list(lane)
        self.wake()

    def _delay(self, message: Message, due: int) -> None:
        self._early[message.id] = message
        heappush(self._due, (due, message.id))
        if self._due[0][1] == message.id:
            self._arm()

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = (self._due[0][0] - self._expiry.now()) / 1000
        self._alarm = asyncio.get_running_loop().call_later(
            min(max(delay_s, 0.001), LOOK_AGAIN_S), self._look_for_due
        )

    def _look_for_due(self) -> None:
        if self._alarm is not None:  # set while this waited for its turn, and the clock was set back
            self._alarm.cancel()
        self._alarm = None
        now, floor = self._expiry.now(), self._budget.floor()
        while self._due and self._due[0][0] <= now and self._budget.left > floor:
            self._budget.spend(ARRIVAL)
            message = self._early.pop(heappop(self._due)[1], None)
            if message is not None:  # else it was purged
                self._line_up(message)
        if not self._early:
            self._due.clear()  # the rest was purged
        if self._due and self._due[0][0] <= now:
            self._budget.wait(self._look_for_due, Line.DELIVERIES)
        elif self._due:
            self._arm()
        self.wake()

    def _await_expiry(self, message: Message, expires: int) -> None:
        if not expires or not self._may_expire:
            return
        if len(self.expiring) > 2 * len(self.messages) + EXPIRED_KEPT:
            self.expiring = [entry for entry in self.expiring if entry[1] in self.messages]
            heapify(self.expiring)
        heappush(self.expiring, (expires, message.id))
        self._expiry.awaits(self)

    @property
    def _may_expire(self) -> bool:
        """Not on its way to another broker, which may have it already: it expires there."""
        return self.settings.expiry_address != self.name and not self.dropped and not self.forwards

    def _has_expired(self, message: Message) -> bool:
        properties = message.properties
        return properties is not None and 0 < properties.expires <= self._expiry.now() and self._may_expire

    @property
    def overdue(self) -> bool:
        """May something have expired that nobody has found?"""
        return bool(self.expiring) and self.expiring[0][0] <= self._expiry.now()

    def take_expired(self, most: int) -> list[Message]:
        """Look at so many that may have expired; take those that nobody holds out of the lanes."""
        due: dict[Lane, dict[Message, None]] = {}
        expiring, now = self.expiring, self._expiry.now()
        looked = 0
        while expiring and expiring[0][0] <= now and looked < most:
            looked += 1
            message = self.messages.get(heappop(expiring)[1])  # most often it has been consumed
            lane = None
            if message is not None:
                lane = self._plain if message.group is None else self.lanes.get(message.group)
            if message is not None and lane is not None:
                due.setdefault(lane, {})[message] = None
        self._budget.spend(REMOVAL * looked)
        found = []
        for lane, messages in due.items():
            found += (lane if self.filtering is None else self.filtering).take_these(messages)
        return sorted(found, key=attrgetter("place"))

    def _put_back(self, message: Message, lane: Lane) -> None:
        message.held = False
        if self._has_expired(message):  # and the scan may have met it while it was held
            self._await_expiry(message, self._expiry.now())
        if self.filtering is None:
            lane.put_back(message)
        else:
            self.filtering.put_back(message, lane)

    # ------------------------------------------------------------------------------------ consumers

    def join(self, consumer: QueueConsumer) -> None:
        """A consumer begins to consume."""
        assert consumer not in self.consumers, "a consumer joins twice"
        self.consumers[consumer] = None
        self._client_consumers += not consumer.internal
        self._redistributors += consumer.redistributor
        if consumer.selector is not None and not consumer.internal:
            self._selectors = self._selectors or Counter()
            self._selectors[consumer.selector] += 1
        if self.filtering is not None:
            self.filtering.join(consumer)
        elif consumer.selector is not None:
            self._filter()
        self.offer(consumer)

    def leave(self, consumer: QueueConsumer) -> None:
        """A consumer is gone: what it holds goes back, the groups it owned are free."""
        assert consumer in self.consumers, "a consumer leaves that is not there"
        consumer.closed = True
        del self.consumers[consumer]
        self._client_consumers -= not consumer.internal
        self._redistributors -= consumer.redistributor
        if consumer.selector is not None and not consumer.internal:
            assert self._selectors is not None, "a consumer leaves that is not there"
            self._selectors[consumer.selector] -= 1
            self._selectors = +self._selectors or None
        if not (consumer.internal or self._client_consumers):
            self.unattended_since = asyncio.get_running_loop().time()
        self._with_work.pop(consumer, None)
        if consumer.rotating and self.filtering is None:
            self._departed += 1
            if 2 * self._departed > len(self.rotation):
                self._drop_departed()
        held = list(consumer.unacknowledged.values())
        consumer.unacknowledged.clear()
        owned = list(consumer.owned)
        consumer.owned.clear()
        consumer.lanes.clear()
        for lane in owned:
            lane.owner = None
        self.returned(held)
        for lane in owned:
            self._freed(lane)
        if self.filtering is not None:
            self.filtering.leave(consumer)
            if not self.filtering.needed:
                self._unfilter(self.filtering)

    def _drop_departed(self) -> None:
        """Take consumers that have left out of the rotation.

        Only dispatch looks at the rotation, and nothing is dispatched from an empty queue: there
        each consumer that came and went would stay, with its connection.
        """
        remaining = [consumer for consumer in self.rotation if not consumer.closed]
        self.rotation.clear()
        self.rotation.extend(remaining)
        self._departed = 0

    def _filter(self) -> None:
        """The first consumer with a selector has come."""
        self._forget_dispatch()
        self.filtering = Filtering(self._plain, self.lanes, self._give, self._budget)
        for consumer in self.consumers:
            self.filtering.join(consumer)
            self.offer(consumer)

    def _unfilter(self, filtering: Filtering) -> None:
        """The last consumer with a selector has left."""
        self._forget_dispatch()
        self.filtering = None
        filtering.end()
        for lane in self.lanes.values():
            self._list(lane)
        for consumer in self.consumers:
            self.offer(consumer)

    def _forget_dispatch(self) -> None:
        self.rotation.clear()
        self._departed = 0
        self._unowned.clear()
        self._with_work.clear()
        for consumer in self.consumers:
            consumer.rotating = False
            consumer.lanes.clear()

    def offer(self, consumer: QueueConsumer) -> None:
        """A consumer may take messages again: it has credit, or its connection does."""
        if not consumer.is_available():
            return
        if self.filtering is not None:
            self.filtering.offer(consumer)
        elif not consumer.rotating:
            consumer.rotating = True
            self.rotation.append(consumer)
        if consumer.lanes:
            self._with_work[consumer] = None
        self.wake()
        if consumer.remote is not None:
            consumer.remote.offer()

    # ------------------------------------------------------------------------------------- dispatch

    def wake(self) -> None:
        """Dispatch soon, once for all that happens in this turn of the loop."""
        if not self._scheduled and self.consumers:
            self._scheduled = True
            if self._budget.left > 0:
                asyncio.get_running_loop().call_soon(self.dispatch)
            else:
                self._budget.wait(self.dispatch, Line.DELIVERIES)

    def dispatch(self) -> None:
        """Give every message that can be given, as far as the share of this turn goes."""
        watch = self._budget.watch
        if watch is None:
            self._dispatch()
            return
        began = watch.now()
        self._dispatch()
        watch.note(began, lambda: f"the dispatch of queue {self.name[:128]!r}")

    def _dispatch(self) -> None:
        self._scheduled = False
        if not (self.delivers and self.may_dispatch()):
            return
        if self._budget.left <= 0:
            self._dispatch_next_turn()
            return
        self._dispatch_known()
        if self._expired:
            messages, self._expired = self._expired, []
            self._expiry.expired(self, messages)
            self.wake()
        if (
            self.backlog is not None
            and any(consumer.is_available() for consumer in self.consumers)
            and self._look_further()
        ):
            self._dispatch_known()
            self.wake()

    def _dispatch_next_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._budget.wait(self.dispatch, Line.DELIVERIES)

    def _dispatch_known(self) -> None:
        budget = self._budget
        floor = budget.floor(2)  # one queue has the consumers of many connections
        if self.filtering is not None:
            if self.filtering.dispatch(floor):
                self._dispatch_next_turn()
            return
        rotation = self.rotation
        expired = self._expired
        while (
            rotation
            and len(expired) < CHUNK
            and budget.left > floor
            and (lane := self._oldest_unowned()) is not None
        ):
            consumer = rotation.popleft()
            if not consumer.is_available():
                consumer.rotating = False
                continue
            if consumer.lanes:
                own = self._oldest_owned(consumer)
                if own is not None and own.head() < lane.head():
                    lane = own
            self._give(lane, consumer)
            if consumer.is_available():
                rotation.append(consumer)
            else:
                consumer.rotating = False
        with_work = self._with_work
        while with_work and budget.left > floor:
            consumer = next(iter(with_work))
            del with_work[consumer]
            while (
                consumer.is_available()
                and len(expired) < CHUNK
                and (lane := self._oldest_owned(consumer)) is not None
            ):
                free = self._oldest_unowned()  # one whose group it has just closed
                self._give(lane if free is None or lane.head() < free.head() else free, consumer)
                if budget.left <= floor:
                    with_work[consumer] = None
                    break
        if budget.left <= floor:
            self._dispatch_next_turn()

    def _give(self, lane: Lane, consumer: QueueConsumer) -> None:
        message = lane.pop()
        message.held = True
        if message.properties is not None and self._has_expired(message):
            self._expired.append(message)
            if lane.group is not None:
                self._list(lane)
            return
        self._budget.spend(DELIVERY)
        message.deliveries += not consumer.internal
        consumer.tags = tag = consumer.tags + 1
        delivery = Delivery(message, consumer, lane, tag)
        if lane.group is not None:
            lane.held += 1
            if message.closes:
                if lane.owner is not None:
                    del lane.owner.owned[lane]
                    lane.owner = None
            else:
                lane.owner = consumer
                consumer.owned[lane] = None
            self._list(lane)
        if not consumer.auto:
            consumer.unacknowledged[tag] = delivery
        consumer.deliver(delivery)
        if consumer.auto:
            self.handed_over(delivery)

    def _list(self, lane: Lane) -> None:
        """Makes a group's lane findable by its oldest message, if anybody may take from it."""
        head = lane.head()
        if not head or lane.delayed:
            if lane.aside and self.filtering is not None:
                self.filtering.changed(lane)
            return
        owner = lane.owner
        if owner is not None:
            heappush(owner.lanes, (head, lane))
            if owner.is_available():
                self._with_work[owner] = None
        elif not lane.held:
            heappush(self._unowned, (head, lane))

    def _freed(self, lane: Lane) -> None:
        """Nobody may hold or own the lane any more: offer it to all, or forget it."""
        if lane.owner is None and not lane.held and lane.group is not None:
            if lane:
                self._list(lane)
                self.wake()
            else:
                self._forget(lane)

    def _oldest_unowned(self) -> Lane | None:
        heap = self._unowned
        plain = self._plain
        if self._redistributors:  # then nobody else consumes
            return plain or None
        while heap:
            head, lane = heap[0]
            if lane.owner is None and not lane.held and not lane.delayed and lane.head() == head:
                oldest = plain.head()
                return plain if oldest and oldest < head else lane
            heappop(heap)
        return plain if plain.fresh or plain.returned or plain.low else None

    def _oldest_owned(self, consumer: QueueConsumer) -> Lane | None:
        heap = consumer.lanes
        while heap:
            head, lane = heap[0]
            if lane.owner is consumer and not lane.delayed and lane.head() == head:
                return lane
            heappop(heap)
        return None
