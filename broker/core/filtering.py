"""Dispatch where consumers have selectors: one view of what waits for each distinct selector.

Why apart from the lanes: they assume that any consumer may take a lane's head, which is why a
queue without selectors never looks at a message twice. While some consumer has a selector, what
waits is here, by place; each view goes through it with cursors of its own and keeps what matches
in lanes like those of the queue, so that each message is tested once for each distinct selector
(again when it has come back), and never for a consumer that has no room. What another view took
meanwhile is dropped when it is met.

    waiting   place -> message, of all views
    lines     what came as the youngest of its priority, in order, of all views: a view that kept
              its own would cost 8 bytes for each message, and a client may have 1,000 selectors
    a view    cursors into the lines, and what came back behind them -> (selector) -> lanes of what
              matches, oldest first

The rules of groups stay those of ``groups``: one owner, whatever its selector is. What the owner
does not want waits until the group is free, and younger messages of the group that it wants go on
(so in Artemis). What waits behind the lanes, on pages above all, is not seen before it is lined up:
a paging queue whose memory is full of what nobody wants delivers nothing (so in Artemis).

Tests and deliveries are bounded by the budget of the turn (``budget``).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import compress
from typing import TYPE_CHECKING, Final

from broker.core.groups import RANK, Lane
from broker.turn_budget import TEST
from stomp_protocol.versions import V1_2

if TYPE_CHECKING:
    from broker.core.consumer import QueueConsumer
    from broker.core.message import Message
    from broker.core.selector import Selector
    from broker.turn_budget import TurnBudget

_SLACK: Final = 1024
"""What a line or a view may remember of messages that are gone, beside as many as wait."""


def headers_of(message: Message) -> dict[str, str]:
    """What a selector sees: of a repeated header the first counts."""
    lines = message.headers.decode().removesuffix("\n").split("\n")
    parts = [line.partition(":") for line in reversed(lines)]
    if b"\\" in message.headers:
        return {V1_2.unescape(name): V1_2.unescape(value) for name, _, value in parts}
    return {name: value for name, _, value in parts}


class _Line:
    """Messages of one priority, oldest first: each was the youngest of all when it came."""

    __slots__ = ("last", "messages", "places", "version")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.places: list[int] = []
        """Their places then: a message that went to a page and came back has another one."""
        self.last: float = -math.inf
        """The place of the last that came, which may be gone."""
        self.version = 0
        """Grows when messages are dropped: cursors must find their index anew."""

    def take(self, message: Message) -> bool:
        """Append a message, unless it is older than one that came before."""
        if message.place <= self.last:
            return False
        self.last = message.place
        self.messages.append(message)
        self.places.append(message.place)
        return True

    def has(self, message: Message) -> bool:
        """Return whether a message is still in the line, at its present place."""
        index = bisect_left(self.places, message.place)
        return index < len(self.places) and self.messages[index] is message

    def keep(self, waiting: Mapping[int, Message]) -> None:
        """Drop what does not wait any more."""
        is_waiting = [
            waiting.get(place) is message for place, message in zip(self.places, self.messages, strict=True)
        ]
        self.messages = list(compress(self.messages, is_waiting))
        self.places = list(compress(self.places, is_waiting))
        self.version += 1


class _Cursor:
    """The position of a view in a line: what is behind it was read."""

    __slots__ = ("_index", "_line", "_version", "_waiting", "seen")

    def __init__(self, line: _Line, waiting: Mapping[int, Message]) -> None:
        self._line = line
        self._waiting = waiting
        self.seen: float = -math.inf
        """The place of the last message that was read or passed by."""
        self._index = 0
        self._version = line.version

    def next(self) -> Message | None:
        """Return the message that is to be read next; those that do not wait are passed by."""
        line = self._line
        if self._version != line.version:
            self._version = line.version
            self._index = bisect_right(line.places, self.seen)
        places, index = line.places, self._index
        while index < len(places):
            message = line.messages[index]
            if self._waiting.get(places[index]) is message:
                self._index = index
                return message
            self.seen = places[index]
            index += 1
        self._index = index
        return None

    def pass_by(self, message: Message) -> None:
        """Go on behind the message that ``next`` has returned."""
        self._index += 1
        self.seen = message.place


class _Matches:
    """The messages of a lane that a view's selector wants; a heap by place."""

    __slots__ = ("heap", "lane", "listed")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.heap: list[tuple[int, Message]] = []
        self.listed: tuple[int, QueueConsumer | None] | None = None
        """Its latest entry in a heap of lanes: place, and whose heap."""

    def __lt__(self, other: _Matches) -> bool:
        """Heaps order them by their oldest message; two entries with the same one are equal."""
        return False


class _View:
    """One selector's view; None is that of the consumers that have none."""

    def __init__(self, filtering: Filtering, selector: Selector | None) -> None:
        self._filtering = filtering
        self._selector = selector
        self._cost = TEST + (0 if selector is None else selector.terms)
        self._cursors = {rank: _Cursor(line, filtering.waiting) for rank, line in filtering.lines.items()}
        self._back = set(filtering.beside)
        self.back = sorted(filtering.beside.items())
        """Untested, and not in front of the cursors; a heap."""
        self._lanes: dict[Lane, _Matches] = {}
        self._matched: set[int] = set()
        """The places in them."""
        self._unowned: list[tuple[int, _Matches]] = []
        self.owned: dict[QueueConsumer, list[tuple[int, _Matches]]] = {}
        self.hungry: dict[QueueConsumer, None] = {}
        """Who has room, and for whom there was nothing."""

    def returned(self, message: Message) -> None:
        """Test a message that is not in front of the cursors."""
        if message.place not in self._back:
            self._back.add(message.place)
            heappush(self.back, (message.place, message))

    def next(self, consumer: QueueConsumer) -> _Matches | None:
        """The lane with the oldest message that the consumer may have.

        None where there is none, or the budget of the turn is used up while ``more``.
        """
        filtering = self._filtering
        while True:
            found = self._oldest(consumer)
            cursor, message = self._untested()
            if self.back and (message is None or self.back[0][0] < message.place):
                cursor, message = None, self.back[0][1]
            if message is None or (found is not None and found.heap[0][0] < message.place):
                return found
            if filtering.budget.left <= filtering.floor:
                return None
            if cursor is None:
                self._back.discard(message.place)
                heappop(self.back)
            else:
                cursor.pass_by(message)
            self._test(message)

    def _untested(self) -> tuple[_Cursor | None, Message | None]:
        """Return the oldest message in front of a cursor, and that cursor."""
        oldest: Message | None = None
        cursor_of_oldest: _Cursor | None = None
        for cursor in self._cursors.values():
            message = cursor.next()
            if message is not None and (oldest is None or message.place < oldest.place):
                cursor_of_oldest, oldest = cursor, message
        return cursor_of_oldest, oldest

    def will_read(self, message: Message, rank: int) -> bool:
        """Return whether a message of a line is in front of its cursor."""
        return message.place > self._cursors[rank].seen

    def begin(self, rank: int, line: _Line) -> None:
        """Read a new line, too."""
        self._cursors[rank] = _Cursor(line, self._filtering.waiting)

    @property
    def more(self) -> bool:
        """Is anything untested?"""
        return bool(self.back) or self._untested()[1] is not None

    def taken(self, matches: _Matches) -> Message:
        """The oldest of these goes to a consumer."""
        place, message = heappop(matches.heap)
        self._matched.discard(place)
        return message

    def changed(self, lane: Lane) -> None:
        """Who may take from that group is another, or its oldest message is."""
        matches = self._lanes.get(lane)
        if matches is not None and (head := self._head(matches)) is not None:
            self._list(matches, head)

    def _test(self, message: Message) -> None:
        filtering = self._filtering
        place = message.place
        if place not in filtering.waiting or place in self._matched:
            return
        if len(self._matched) > 2 * len(filtering.waiting) + _SLACK:
            self.compact()
        filtering.budget.spend(self._cost)
        if self._selector is not None and not self._selector.matches(filtering.headers(message)):
            return
        lane = filtering.lane(message)
        matches = self._lanes.get(lane)
        if matches is None:
            matches = self._lanes[lane] = _Matches(lane)
        self._matched.add(place)
        heappush(matches.heap, (place, message))
        if self._head(matches) == place:
            self._list(matches, place)

    def _list(self, matches: _Matches, head: int) -> None:
        lane = matches.lane
        if lane.group is None or lane.delayed:
            return
        owner = lane.owner
        if owner is None:
            if lane.held:
                return
            heap = self._unowned
            self._filtering.feed(self)
        elif owner in self.owned:
            heap = self.owned[owner]
            self._filtering.offer(owner)
        else:
            return
        if matches.listed != (head, owner):
            matches.listed = head, owner
            heappush(heap, (head, matches))

    def _head(self, matches: _Matches) -> int | None:
        heap = matches.heap
        while heap:
            place = heap[0][0]
            if place in self._filtering.waiting:
                return place
            heappop(heap)
            self._matched.discard(place)
        self._lanes.pop(matches.lane, None)
        return None

    def _oldest(self, consumer: QueueConsumer) -> _Matches | None:
        found = self._lanes.get(self._filtering.plain)
        oldest = None if found is None else self._head(found)
        if oldest is None:
            found = None
        for heap, owner in ((self._unowned, None), (self.owned[consumer], consumer)):
            while heap:
                place, matches = heap[0]
                lane = matches.lane
                free = lane.owner is owner and not lane.delayed and (owner is not None or not lane.held)
                if free and self._lanes.get(lane) is matches and self._head(matches) == place:
                    if oldest is None or place < oldest:
                        oldest, found = place, matches
                    break
                heappop(heap)
                if matches.listed == (place, owner):
                    matches.listed = None
        return found

    def compact(self) -> None:
        """Forget messages that do not wait any more."""
        waiting = self._filtering.waiting
        self.back = [entry for entry in self.back if entry[0] in waiting]
        heapify(self.back)
        self._back &= waiting.keys()
        for lane, matches in list(self._lanes.items()):
            matches.heap = [entry for entry in matches.heap if entry[0] in waiting]
            heapify(matches.heap)
            if not matches.heap:
                del self._lanes[lane]
        self._matched &= waiting.keys()


class Filtering:
    """What waits in a queue while some of its consumers have selectors.

    It takes what waits out of the queue's lanes when it begins, and ``end`` puts it back. Owners of
    groups, and what is held and delayed, stay in the lanes. ``give`` hands the oldest message of a
    lane to a consumer.
    """

    def __init__(
        self,
        plain: Lane,
        lanes: Mapping[str, Lane],
        give: Callable[[Lane, QueueConsumer], None],
        budget: TurnBudget,
    ) -> None:
        self.plain = plain
        self._groups = lanes
        self._hand_over = give
        self.waiting: dict[int, Message] = {}
        self.lines: dict[int, _Line] = {}
        """By priority, which is in the upper part of a place."""
        self.beside: dict[int, Message] = {}
        """Those that wait and are in no line, by place."""
        self.budget = budget
        self.floor = 0
        """What this dispatch must leave of it."""
        self._rotation: deque[QueueConsumer] = deque()
        self._views: dict[Selector | None, _View] = {}
        self._view_of: dict[QueueConsumer, _View] = {}
        self._read: tuple[Message | None, dict[str, str]] = None, {}
        for lane in (plain, *lanes.values()):
            while lane.fresh or lane.returned or lane.low:
                message = lane.pop()
                self.waiting[message.place] = message
                lane.aside += 1
        for _, message in sorted(self.waiting.items()):
            self._line_up(message)

    def end(self) -> None:
        """Nobody has a selector any more: back into the lanes.

        As returned ones: younger ones that went to consumers may still come back behind them.
        """
        for _, message in sorted(self.waiting.items()):
            lane = self.lane(message)
            lane.aside -= 1
            lane.put_back(message)
        self.waiting.clear()

    def join(self, consumer: QueueConsumer) -> None:
        """It consumes."""
        view = self._views.get(consumer.selector)
        if view is None:
            view = self._views[consumer.selector] = _View(self, consumer.selector)
        self._view_of[consumer] = view
        view.owned[consumer] = []

    def leave(self, consumer: QueueConsumer) -> None:
        """It does not any more."""
        view = self._view_of.pop(consumer)
        del view.owned[consumer]
        view.hungry.pop(consumer, None)
        if not view.owned:
            del self._views[consumer.selector]

    @property
    def needed(self) -> bool:
        """Has any consumer a selector?"""
        return any(selector is not None for selector in self._views)

    def add(self, message: Message) -> None:
        """A message is lined up; it is the youngest, unless it is of another priority."""
        self._wait(message, self.lane(message))
        is_in_line = self._line_up(message)
        for view in self._views.values():
            if not is_in_line:
                view.returned(message)
            self.feed(view)

    def put_back(self, message: Message, lane: Lane) -> None:
        """A message returns to its place."""
        self._wait(message, lane)
        rank = message.place // RANK
        line = self.lines.get(rank)
        is_in_line = line is not None and line.has(message)
        if not is_in_line:
            self.beside[message.place] = message
        for view in self._views.values():
            if not (is_in_line and view.will_read(message, rank)):
                view.returned(message)
            self.feed(view)

    def changed(self, lane: Lane) -> None:
        """Who may take from that group is another, or its oldest message is."""
        for view in self._views.values():
            view.changed(lane)

    def offer(self, consumer: QueueConsumer) -> None:
        """It may have room."""
        if not consumer.rotating and consumer.is_available():
            consumer.rotating = True
            self._view_of[consumer].hungry.pop(consumer, None)
            self._rotation.append(consumer)

    def feed(self, view: _View) -> None:
        """There may be something for those who found nothing."""
        if view.hungry:
            for consumer in list(view.hungry):
                self.offer(consumer)

    def dispatch(self, floor: int) -> bool:
        """Give what can be given; True where more has to be done in another turn.

        The budget of the turn must not fall below ``floor``.
        """
        self.floor = floor
        rotation = self._rotation
        waits: list[QueueConsumer] = []
        while rotation and self.budget.left > floor:
            consumer = rotation.popleft()
            if not consumer.is_available():
                consumer.rotating = False
                continue
            view = self._view_of[consumer]
            matches = view.next(consumer)
            if matches is not None:
                self._give(view, matches, consumer)
                rotation.append(consumer)
            elif view.more:
                waits.append(consumer)
            else:
                consumer.rotating = False
                view.hungry[consumer] = None
        rotation.extend(waits)
        return bool(rotation)

    def take(self, last: int) -> Iterator[Message]:
        """Take out what waits and was lined up before (and with) the message of that number."""
        for place, message in list(self.waiting.items()):
            if place & (RANK - 1) <= last and place in self.waiting:
                yield self._no_longer(message, self.lane(message))

    def take_these(self, messages: Mapping[Message, None]) -> list[Message]:
        """Take out those of these that wait."""
        return [
            self._no_longer(message, self.lane(message))
            for message in messages
            if self.waiting.get(message.place) is message
        ]

    def forget(self) -> None:
        """Let views keep nothing of what does not wait any more, so that its memory is free."""
        for line in self.lines.values():
            line.keep(self.waiting)
        for view in self._views.values():
            view.compact()

    def lane(self, message: Message) -> Lane:
        """The lane of its group."""
        return self.plain if message.group is None else self._groups[message.group]

    def headers(self, message: Message) -> dict[str, str]:
        """What a selector sees; views ask one after the other for the same message."""
        known, headers = self._read
        if known is not message:
            headers = headers_of(message)
            self._read = message, headers
        return headers

    def _give(self, view: _View, matches: _Matches, consumer: QueueConsumer) -> None:
        lane = matches.lane
        lane.fresh.append(self._no_longer(view.taken(matches), lane))
        self._hand_over(lane, consumer)

    def _line_up(self, message: Message) -> bool:
        """Let all views read a message in its turn; False where it is not the youngest."""
        rank = message.place // RANK
        line = self.lines.get(rank)
        if line is None:
            line = self.lines[rank] = _Line()
            for view in self._views.values():
                view.begin(rank, line)
        if not line.take(message):
            self.beside[message.place] = message
            return False
        if len(line.messages) > 2 * len(self.waiting) + _SLACK:
            line.keep(self.waiting)
        return True

    def _wait(self, message: Message, lane: Lane) -> None:
        self.waiting[message.place] = message
        lane.aside += 1

    def _no_longer(self, message: Message, lane: Lane) -> Message:
        del self.waiting[message.place]
        self.beside.pop(message.place, None)
        lane.aside -= 1
        return message
