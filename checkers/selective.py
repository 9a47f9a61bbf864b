"""Consumers with a selector, and the messages whose order they undo.

A consumer with a selector takes the messages that match it and leaves behind others that wait in
front of them. So the order between m1 and m2 is off if, while both may have waited, a consumer may
have existed whose selector matches m2 and not m1. A consumer that existed before or afterwards, or
that matches both, changes nothing.

Both may have waited from when the later of them may have been in the queue until m2, which came
first, was read. If m2 came into the queue later, m2 and the *class* of m1 tell whether m2 may have
passed m1. The class is a number with a bit for each different selector of the queue, which says
whether it matches m1. There are few classes, and the messages of each are compared with those that
cannot have passed them (``comparisons``). If m1 came later, only consumers in question that existed
since then count: a message that was read before the first of these came cannot have passed m1.

A consumer may have existed from the invocation of its subscribe on, unless that failed, until its
unsubscribe was answered or the process that served it was seen gone. A lost connection does not
certainly end it. A topic's subscription has only messages that match, but it may have been made
again with another selector.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.asked import Selector
from checkers.consumers import Consumer
from checkers.rows import FOREVER, NONE, Flags, Numbers, Place, PlaceTable, Rows
from checkers.schema import SELECTORS_MOST
from checkers.selection import Selection

Queue = tuple[int, str | None]
"""A queue of a run: (run, queue); a consumer may be of any queue if no row tells it (None)."""


@dataclass(frozen=True, slots=True)
class Choosers:
    """The consumers with a selector of one queue; ``selectors`` are their different selectors."""

    selectors: Sequence[Selector]
    number: Numbers
    begun: Numbers
    over: Numbers

    @classmethod
    def of(cls, consumers: Sequence[Consumer]) -> Choosers:
        """Return the consumers with the number of the selector of each."""
        different: list[Selector] = []
        numbers = []
        for selector in (consumer.selector for consumer in consumers if consumer.selector is not None):
            if selector not in different:
                different.append(selector)
            numbers.append(different.index(selector))
        return cls(
            different, np.array(numbers, dtype=np.int64),
            np.array([consumer.begun for consumer in consumers], dtype=np.int64),
            np.array([consumer.over for consumer in consumers], dtype=np.int64),
        )  # fmt: skip

    @property
    def too_many(self) -> bool:
        """True if the queue has too many selectors to judge its order."""
        return len(self.selectors) > SELECTORS_MOST

    def passers(self, class_passed: int, class_matched: int) -> Spans:
        """Return when a consumer may have existed that matches ``class_matched`` only."""
        bits = np.array(
            [class_matched & ~class_passed & (1 << n) != 0 for n in range(len(self.selectors))], dtype=bool
        )
        return Spans.of(*(column[bits[self.number]] for column in (self.begun, self.over)))

    @property
    def all(self) -> Spans:
        """The spans in which any of these consumers may have existed."""
        return Spans.of(self.begun, self.over)


@dataclass(frozen=True, slots=True)
class Spans:
    """A list of spans of rows, sorted by begin.

    ``over`` is the highest end of each span and all spans before it.
    """

    begun: Numbers
    over: Numbers

    @classmethod
    def of(cls, begun: Numbers, over: Numbers) -> Spans:
        """Return the spans in order."""
        order = np.argsort(begun, kind="stable")
        return cls(begun[order], np.maximum.accumulate(over[order]))

    def meet(self, since: Numbers, until: Numbers) -> Flags:
        """Return whether a span begins before ``until`` and ends after ``since``."""
        over = np.append(np.int64(NONE), self.over)
        result: Flags = over[np.searchsorted(self.begun, until, "left")] > since
        return result

    def first_after(self, since: Numbers) -> Numbers:
        """Return the highest ``until`` for which ``meet`` finds no span for each ``since``."""
        return np.append(self.begun, FOREVER)[np.searchsorted(self.over, since, "right")]


@dataclass(frozen=True, slots=True)
class SelectiveQueues:
    """The consumers with a selector of all queues that have some."""

    consumers: Mapping[Queue, Sequence[Consumer]] = field(default_factory=dict)

    def of(self, run: int, queue: str | None) -> Choosers | None:
        """Return the consumers with a selector of a queue; None if it has none."""
        if not self.consumers:
            return None
        queue_consumers = [
            consumer for name in {queue, None} for consumer in self.consumers.get((run, name), ())
        ]
        return Choosers.of(queue_consumers) if queue_consumers else None

    def by_queue(self, places: Sequence[Place]) -> dict[Queue, tuple[Choosers, list[int]]]:
        """Return the queues of some places that have such consumers, each with its places."""
        if not self.consumers:
            return {}
        numbers: dict[Queue, list[int]] = defaultdict(list)
        for number, (run, queue, _) in enumerate(places):
            numbers[run, queue].append(number)
        by_key = ((key, self.of(*key), place_numbers) for key, place_numbers in numbers.items())
        return {
            key: (choosers, place_numbers) for key, choosers, place_numbers in by_key if choosers is not None
        }

    def judged(self, places: Sequence[Place]) -> Flags:
        """Return whether the order of each place can be judged."""
        result = np.ones(len(places), dtype=bool)
        for choosers, place_numbers in self.by_queue(places).values():
            result[place_numbers] = not choosers.too_many
        return result


def group_by_queue(consumers: Iterable[Consumer]) -> SelectiveQueues:
    """Return the consumers of each queue that have a selector."""
    queues: dict[Queue, list[Consumer]] = defaultdict(list)
    for consumer in consumers:
        if consumer.selector is not None:
            queues[consumer.run, consumer.queue].append(consumer)
    return SelectiveQueues(queues)


def classes(rows: Rows, places: PlaceTable, queues: SelectiveQueues) -> Numbers:
    """Return the class of each message: the selectors of its queue that match it, as bits."""
    choosing_queues = queues.by_queue(places.named)
    if not choosing_queues:
        return np.broadcast_to(np.int64(0), rows.messages)
    result = np.zeros(rows.messages, dtype=np.int64)
    selection = Selection(rows)
    place = rows.place[rows.first_row]
    for choosers, place_numbers in choosing_queues.values():
        at = np.flatnonzero(np.isin(place, place_numbers))
        for number, selector in enumerate(choosers.selectors[:SELECTORS_MOST]):
            result[at] |= selection.wants(selector)[at].astype(np.int64) << number
    return result


@dataclass(frozen=True, slots=True)
class Waits:
    """The rows between which each message may have waited: from ``begun`` until ``read``.

    ``closed``: a message that closes the group may have been sent to a consumer before, and was
    read later.
    """

    place: npt.NDArray[np.int32]
    matched: Numbers
    begun: Numbers
    read: Numbers
    closed: Flags


@dataclass(frozen=True, slots=True)
class Comparison:
    """A set of messages in which no ``late`` one may come after an ``early`` one sent after it.

    ``at`` are their positions; None: all messages are compared with all. ``until``: for each late
    one, only early ones count that were read by then.
    """

    at: Numbers | None
    late: Flags
    early: Flags
    until: Numbers | None = None


_NONE: Final = np.zeros(0, dtype=bool)
ALL_WITH_ALL: Final[Sequence[Comparison]] = (Comparison(None, _NONE, _NONE),)


def comparisons(waits: Waits, places: Sequence[Place], queues: SelectiveQueues) -> Sequence[Comparison]:
    """Return the sets of messages that must keep an order among each other.

    Without selectors and closed groups, all messages are compared with all.
    """
    choosing_queues = queues.by_queue(places)
    if not choosing_queues and not waits.closed.any():
        return ALL_WITH_ALL
    number = np.full(len(places), -1, dtype=np.int64)
    for n, (_, place_numbers) in enumerate(choosing_queues.values()):
        number[place_numbers] = n
    queue_number = number[waits.place]
    plain = np.flatnonzero(queue_number < 0)
    result = [Comparison(plain, np.ones(len(plain), dtype=bool), ~waits.closed[plain])]
    for n, (choosers, _) in enumerate(choosing_queues.values()):
        at = np.flatnonzero(queue_number == n)
        matched, begun, read = waits.matched[at], waits.begun[at], waits.read[at]
        present = np.unique(matched).tolist()
        for class_late in present:
            late, early = matched == class_late, ~waits.closed[at]
            for other in present:
                passers, is_other = choosers.passers(class_late, other), matched == other
                if len(passers.begun):
                    result.append(Comparison(at, late, is_other & early, passers.first_after(begun)))
                    early[is_other] &= ~passers.meet(begun[is_other], read[is_other])
            result.append(Comparison(at, late, early))
    return result
