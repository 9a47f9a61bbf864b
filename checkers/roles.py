"""Who ruled when: split-brain and zombie.

Role rows are few (a monitor writes one a change) and are laid out as intervals here; what clients
were answered in those intervals is looked up in every part, only where two brokers shared a node
ID.

A reign is certain from ``time_high`` of its ``live`` row to ``time_low`` of the broker's next row
of whatever role ("unreachable" too: from there nothing is claimed), or to the end of the history.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.instance import Instance
from checkers.links import asked_at
from checkers.rows import NONE, Flags, Numbers, Place, PlaceTable, Rows, first, gathered, ordered
from checkers.running import segments
from checkers.spans import overlapping
from checkers.subscriptions import topic_of
from checkers.takeovers import CertainTakeover, Fences, life_of

Row = Mapping[str, Any]

ANSWERS_KEPT: Final = 100_000
"""Of one window: the most that are named. More are counted only."""


@dataclass(frozen=True, slots=True)
class CertainReign:
    """One broker's time of being live under one node ID, as the monitor saw it.

    Times are nanoseconds; ``index`` is the row's, ``since`` the earliest moment at which the reign
    can have begun, ``life`` its number (None: not told).
    """

    broker: str
    node_id: str
    begin: int
    end: int
    index: int
    since: int
    life: int | None


class Overlap(NamedTuple):
    """Two certain reigns under one node ID at once, [begin, end) in nanoseconds."""

    earlier: CertainReign
    later: CertainReign
    begin: int
    end: int

    def instance(self, run: int) -> Instance:
        """The finding; its row is the later reign's."""
        pair = " ".join(sorted((self.earlier.broker, self.later.broker)))
        key = f"{self.later.node_id} {pair} {self.earlier.index}"
        return Instance("split-brain", None, None, None, self.later.index, key, run)


class Window(NamedTuple):
    """When a broker must not answer (or, in an overlap, must not answer beside the other).

    Asked after ``begin``, answered before ``end``.

    ``only`` names the one operation that counts; None: all but deliveries and logins, which promise
    nothing. ``own`` and ``by`` are the rows that prove it of a fallen broker: the one that saw it
    live, and the one that saw who was in its place.
    """

    run: int
    id: int
    broker: str
    begin: int
    end: int
    only: str | None = None
    own: int = -1
    by: int = -1
    stored: bool = False
    """Only what has to be stored counts.

    Sends, acks, commits, and deliveries (of what was sent after the broker's end).
    """


@dataclass(frozen=True, slots=True)
class OkAnswer:
    """An operation that was answered ``ok``."""

    index: int
    queue: str | None
    group: str | None
    message: int | None
    broker: str


@dataclass(frozen=True, slots=True)
class AnswersInWindow:
    """Operations answered ``ok`` in a window: how many, and the first of them."""

    count: int
    rows: tuple[OkAnswer, ...]


Answered = dict[tuple[int, int], AnswersInWindow]
"""By (run, window id)."""


def reigns(roles: Sequence[Row], last_ns: int) -> list[CertainReign]:
    """From the ``role`` rows of one history, in order of their rows."""
    by_broker: dict[str, list[Row]] = defaultdict(list)
    for row in roles:
        by_broker[row["broker"]].append(row)
    found = []
    for broker, rows in by_broker.items():
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if row["role"] == "live" and row["node_id"] is not None:
                end = last_ns if following is None else following["time_low"]
                found.append(
                    CertainReign(
                        broker, row["node_id"], row["time_high"], end, row["index"], row["time_low"],
                        life_of(row),
                    )
                )  # fmt: skip
    return sorted(found, key=lambda reign: reign.index)


def overlaps(found: Sequence[CertainReign]) -> list[Overlap]:
    """Every pair of reigns of different brokers under one node ID that certainly overlap."""
    by_node: dict[str, list[CertainReign]] = defaultdict(list)
    for reign in found:
        by_node[reign.node_id].append(reign)
    pairs = [
        Overlap(some[n], some[m], max(some[n].begin, some[m].begin), min(some[n].end, some[m].end))
        for some in by_node.values()
        for n, m in overlapping([(reign.begin, reign.end) for reign in some])
        if some[n].broker != some[m].broker
    ]
    return sorted(pairs, key=lambda pair: (pair.later.index, pair.earlier.index))


def doubts(roles: Sequence[Row]) -> dict[str, list[tuple[int, int]]]:
    """By broker, in which spans [low, high] it may have been live without being seen.

    It was not live before, and was asked again only then.

    A live one that becomes something else is seen to: its reign is known, and what it answers until
    it is seen to have ended counts.
    """
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    latest: dict[str, str] = {}
    for row in roles:
        if latest.get(row["broker"], "live") != "live":
            found[row["broker"]].append((row["time_low"], row["time_high"]))
        latest[row["broker"]] = row["role"]
    return found


class Fall(NamedTuple):
    """A span in which a broker was certainly not the live one.

    It was live (row ``own``), was certainly replaced (row ``by``) before ``begin``, and cannot have
    been live again until ``end`` (ns).

    Or one that was never live (row ``own`` says whose backup it was) beside one that certainly was
    (row ``by``) from ``begin`` to ``end``.
    """

    broker: str
    begin: int
    end: int
    own: int
    by: int
    stored: bool


def fallen(
    found: Sequence[CertainReign],
    doubtful: Mapping[str, Sequence[tuple[int, int]]],
    takeovers: Sequence[CertainTakeover] = (),
) -> list[Fall]:
    """When which broker was certainly replaced, and by what that is known.

    Another was live in its place: under the node ID that it had last. A broker that lost its data
    and began anew is another node, and owes the old one nothing. Nor does one that may have been
    live once more, for less time than lay between two looks at it; but it cannot have been while
    another certainly was live under that node ID. Nor is one replaced by a broker that was seen to
    be live later than it, but may have begun to be so earlier: it had fallen silent.

    Or another had completed a takeover of that node under a higher number than its own life's:
    whatever node ID the taker is live with, and whichever row came first. Then it is the store that
    has fenced it, which an administrator may make it do in the middle of a life: nothing that has
    to be stored can be promised any more, and what needs no store is nobody's loss.
    """
    by_node: dict[str, list[CertainReign]] = defaultdict(list)
    back: dict[int, CertainReign] = {}
    previous: dict[str, CertainReign] = {}
    for reign in found:
        by_node[reign.node_id].append(reign)
        if reign.broker in previous:
            back[previous[reign.broker].index] = reign
        previous[reign.broker] = reign
    indexes = {node_id: [reign.index for reign in some] for node_id, some in by_node.items()}
    fences = Fences(takeovers)
    doubted = {broker: _Spans(spans) for broker, spans in doubtful.items()}
    beside = _Beside(found)
    times = []
    for own in found:
        again = back.get(own.index)
        after = bisect_right(indexes[own.node_id], own.index)
        before = None if again is None else bisect_left(indexes[own.node_id], again.index)
        # Between two reigns of one broker are few of each other.
        successors = [
            (reign.begin, reign.index)
            for reign in by_node[own.node_id][after:before]
            if reign.since >= own.begin
        ]
        fence = fences.earliest(own.broker, own.node_id, own.life)
        fenced = [] if fence is None else [(max(fence.certain, own.begin), fence.index)]
        end = 2**62 if again is None else again.since
        for stored, some in ((False, successors), (True, fenced)):
            if not some or (stored and successors and min(successors)[0] <= min(some)[0]):
                continue
            begin, by = min(some)
            some_doubts = doubted[own.broker].within(begin, end) if own.broker in doubted else ()
            meanwhile = sorted((low, high) for low, high in some_doubts if high > begin and low < end)
            certain = begin
            for low, high in meanwhile:
                times.append(Fall(own.broker, certain, low, own.index, by, stored))
                certain = max(certain, high)
            times.append(Fall(own.broker, certain, end, own.index, by, stored))
            if meanwhile:
                times += [
                    Fall(own.broker, max(begin, other.begin), min(end, other.end), own.index, by, stored)
                    for other in beside.within(own.node_id, own.broker, begin, end)
                ]
    return [time for time in times if time.begin < time.end]


def never_live(roles: Sequence[Row], found: Sequence[CertainReign]) -> list[Fall]:
    """When brokers had certainly not been live yet beside a live one of their node ID."""
    earliest: dict[str, int] = {}
    for reign in found:
        earliest.setdefault(reign.broker, reign.since)
    spans: dict[str, list[list[Any]]] = defaultdict(list)  # [node ID, begin, end, row]
    live: set[str] = set()
    for row in roles:
        broker, node_id = row["broker"], row["node_id"]
        if broker in live:
            continue
        if row["role"] == "live" and node_id is not None:
            live.add(broker)
        elif node_id is not None:
            mine = spans[broker]
            if mine and mine[-1][0] != node_id:
                mine[-1][2] = min(mine[-1][2], row["time_low"])
            if not mine or mine[-1][0] != node_id:
                mine.append([node_id, row["time_high"], earliest.get(broker, 2**62), row["index"]])
    beside = _Beside(found)
    times = [
        Fall(broker, max(begin, other.begin), min(end, other.end), index, other.index, stored=False)
        for broker, some in spans.items()
        for node_id, begin, end, index in some
        for other in beside.within(node_id, broker, begin, end)
    ]
    return [time for time in times if time.begin < time.end]


class _Beside:
    """The reigns under each node ID, to be found by time: who was live beside a broker."""

    def __init__(self, found: Sequence[CertainReign]) -> None:
        by_node: dict[str, dict[str, list[CertainReign]]] = defaultdict(lambda: defaultdict(list))
        for reign in found:
            by_node[reign.node_id][reign.broker].append(reign)
        self._reigns = by_node
        self._spans = {
            (node_id, broker): _Spans([(reign.begin, reign.end) for reign in some])
            for node_id, brokers in by_node.items()
            for broker, some in brokers.items()
        }

    def within(self, node_id: str, broker: str, begin: int, end: int) -> Iterator[CertainReign]:
        """Reigns of others under that node ID that may overlap this span, and some around them."""
        for other, some in self._reigns.get(node_id, {}).items():
            if other != broker:
                yield from some[self._spans[node_id, other].about(begin, end)]


class _Spans:
    """Spans in the order seen, found by time without looking at all."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans
        self._ended = list(itertools.accumulate((high for _, high in spans), max))
        self._begins = list(itertools.accumulate((low for low, _ in reversed(spans)), min))[::-1]

    def about(self, begin: int, end: int) -> slice:
        """Where all spans lie that may overlap this one, and some others around them."""
        return slice(bisect_right(self._ended, begin), bisect_left(self._begins, end))

    def within(self, begin: int, end: int) -> Sequence[tuple[int, int]]:
        """Those that lie there."""
        return self._spans[self.about(begin, end)]


@dataclass(frozen=True, slots=True)
class BrokerWindows:
    """The windows of one broker in which one operation counts, and their times as columns."""

    run: int
    broker: str
    only: str | None
    windows: Sequence[Window]
    begin: Numbers
    end: Numbers


def by_broker(windows: Iterable[Window]) -> list[BrokerWindows]:
    """Windows as every part is asked for them."""
    some: dict[tuple[int, str, str | None], list[Window]] = defaultdict(list)
    for window in windows:
        some[window.run, window.broker, window.only].append(window)
    return [
        BrokerWindows(
            *key, mine, np.array([window.begin for window in mine]), np.array([window.end for window in mine])
        )
        for key, mine in some.items()
    ]


def answered(rows: Rows, places: PlaceTable, windows: Sequence[BrokerWindows]) -> Answered:
    """What brokers answered within windows: (run, window id) -> operations.

    What was asked and answered ``ok`` within the window by its broker, in these rows.

    The answers of each broker are laid in order of time once, so that a window is a slice of them,
    however many windows there are.
    """
    found: Answered = {}
    if not windows or not len(rows.index):
        return found
    answers = rows.broker.are(*{one.broker for one in windows}) & rows.type.are("ok")
    at = np.flatnonzero(answers)
    at = at[rows.process[at] >= 0]
    slices: list[tuple[Window, Numbers]] = []
    for only in dict.fromkeys(one.only for one in windows):
        counts = ~rows.f.are("connect") if only is None else rows.f.are(only)
        slices += _slices(rows, at[counts[at]], [one for one in windows if one.only == only])
    if not slices:
        return found
    asked = np.full(len(rows.index), -1, dtype=np.int64)
    at = np.unique(np.concatenate([here for _, here in slices]))
    question = asked_at(rows, at)
    delivered = rows.f.are("deliver")[at]
    if delivered.any():
        question[delivered] = _sent_at(rows, places, at[delivered])
    known = (question >= 0) & (question < at)
    asked[at[known]] = rows.time[question[known]]
    for window, here in slices:
        late = here[asked[here] > window.begin]
        if window.stored:
            late = late[_stored(rows, late)]
        if len(late):
            kept = tuple(_answer(rows, places, n) for n in late[:ANSWERS_KEPT].tolist())
            found[window.run, window.id] = AnswersInWindow(len(late), kept)
    return found


def _sent_at(rows: Rows, places: PlaceTable, delivered: Numbers) -> Numbers:
    """Return the position of the first send of what was delivered in some rows, or ``NONE``.

    To its queue, or to the topic of its subscription. Why: what was sent after a broker's end it
    cannot have had before.
    """
    codes: dict[Place, int] = {}
    homes = [
        codes.setdefault((run, topic_of(queue), group), n)
        for n, (run, queue, group) in enumerate(places.named)
    ]
    sends = np.flatnonzero(rows.f.are("send") & rows.type.are("invoke"))
    both = np.concatenate([sends, delivered])
    home, message = np.array(homes, dtype=np.int64)[rows.place[both]], rows.message[both]
    order = ordered(home, message)
    one = np.empty(len(both), dtype=np.int64)
    one[order] = segments(home[order], message[order])
    return first(one[: len(sends)], sends, len(both))[one[len(sends) :]]


def _slices(rows: Rows, at: Numbers, windows: Sequence[BrokerWindows]) -> Iterator[tuple[Window, Numbers]]:
    """Of each window the positions of its rows.

    Among those given, the rows of its run and broker within it, in order; no window without any.
    """
    time = rows.time[at]
    if np.any(time[1:] < time[:-1]):
        at = at[np.argsort(time, kind="stable")]
    at = at[ordered(rows.run[at], rows.broker.codes[at])]
    brokers = len(rows.broker.values)
    key = rows.run[at] * brokers + rows.broker.codes[at]
    for some in windows:
        code = rows.broker.code(some.broker)
        if code == brokers:
            continue
        mine = some.run * brokers + code
        here = at[np.searchsorted(key, mine, "left") : np.searchsorted(key, mine, "right")]
        times = rows.time[here]
        firsts = np.searchsorted(times, some.begin, "right")
        lasts = np.searchsorted(times, some.end, "left")
        for n in np.flatnonzero(firsts < lasts).tolist():
            yield some.windows[n], np.sort(here[firsts[n] : lasts[n]])


def _stored(rows: Rows, at: Numbers) -> Flags:
    """Which of these operations prove a store.

    Those a broker answers only when they are stored, or delivers from its store.

    What is in a transaction is stored with its commit.
    """
    f = rows.f.codes[at]
    alone = rows.transaction[at] == NONE
    found: Flags = (f == rows.f.code("commit")) | (
        alone & np.isin(f, [rows.f.code(name) for name in ("send", "ack", "deliver")])
    )
    return found


def _answer(rows: Rows, places: PlaceTable, n: int) -> OkAnswer:
    _, queue, group = places.named[rows.place[n]]
    message = rows.message[n]
    broker: str = rows.broker.values[rows.broker.codes[n]]
    return OkAnswer(int(rows.index[n]), queue, group, None if message == NONE else int(message), broker)


def merged(parts: Sequence[Answered]) -> Answered:
    """What several parts know of the same windows."""
    whole = {}
    for key, some in gathered(parts).items():
        rows = (row for one in some for row in one.rows)
        earliest = heapq.nsmallest(ANSWERS_KEPT, rows, key=attrgetter("index"))
        whole[key] = AnswersInWindow(sum(one.count for one in some), tuple(earliest))
    return whole


def windows_of(
    run: int,
    roles: Sequence[Row],
    found: Sequence[CertainReign],
    lapped: Sequence[Overlap],
    takeovers: Sequence[CertainTakeover] = (),
) -> list[Window]:
    """What must be looked up of one run: windows of the fallen first, then two for each overlap."""
    falls = [*fallen(found, doubts(roles), takeovers), *never_live(roles, found)]
    fell = [
        Window(run, number, fall.broker, fall.begin, fall.end, own=fall.own, by=fall.by, stored=fall.stored)
        for number, fall in enumerate(falls)
    ]
    beside = [
        Window(run, len(fell) + 2 * number + side, broker, overlap.begin, overlap.end, "send")
        for number, overlap in enumerate(lapped)
        for side, broker in enumerate((overlap.earlier.broker, overlap.later.broker))
    ]
    return fell + beside


def zombies(windows: Sequence[Window], answers: Answered) -> list[Instance]:
    """One instance an operation that a fallen broker answered."""
    found = {
        Instance("zombie", row.queue, row.group, row.message, row.index, row.broker, window.run)
        for window in windows
        if window.only is None and (window.run, window.id) in answers
        for row in answers[window.run, window.id].rows
    }
    return sorted(found, key=lambda instance: (instance.run, instance.index))
