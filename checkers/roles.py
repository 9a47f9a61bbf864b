"""The reigns of brokers, and the rules about them: split-brain and zombie.

Role rows are few (a monitor writes one for each change) and become intervals here. The answers to
clients in those intervals are looked up in every part, only where two brokers shared a node ID.

A reign is certain from ``time_high`` of its ``live`` row to ``time_low`` of the broker's next row
of any role, or to the end of the history. A next row "unreachable" ends it, too, as nothing is
claimed from there on.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
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
"""The number of answers of one window that are kept; more are only counted."""


@dataclass(frozen=True, slots=True)
class CertainReign:
    """A span in which one broker was live under one node ID, as the monitor saw it.

    Times are in nanoseconds; ``index`` is that of its row, ``since`` the earliest time at which the
    reign can have begun, ``life`` its number (None if the broker does not tell it).
    """

    broker: str
    node_id: str
    begin: int
    end: int
    index: int
    since: int
    life: int | None


class Overlap(NamedTuple):
    """A span [begin, end) in nanoseconds in which two brokers certainly reign under one node ID."""

    earlier: CertainReign
    later: CertainReign
    begin: int
    end: int

    def instance(self, run: int) -> Instance:
        """Return the instance, which the row of the later reign shows."""
        pair = " ".join(sorted((self.earlier.broker, self.later.broker)))
        key = f"{self.later.node_id} {pair} {self.earlier.index}"
        return Instance("split-brain", None, None, None, self.later.index, key, run)


class Window(NamedTuple):
    """A span in which a broker must not answer, or, in an overlap, not as well as the other broker.

    Only operations count that were invoked after ``begin`` and answered before ``end`` (ns).
    ``only`` names the one operation that counts; None: all but logins, which promise nothing. Of a
    delivery the send of its message must be invoked after ``begin``.

    ``own`` and ``by`` are the rows that prove that a broker had fallen: the row that saw it live,
    and the row that saw the broker in its place.
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
    """True if only operations count that have to be stored.

    These are sends, acks, commits, and deliveries of messages that were sent after ``begin``.
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
    """The number of operations answered ``ok`` in a window, and the first of them."""

    count: int
    rows: tuple[OkAnswer, ...]


Answered = dict[tuple[int, int], AnswersInWindow]
"""The answers in windows, by (run, window id)."""


def reigns(roles: Sequence[Row], last_ns: int) -> list[CertainReign]:
    """Return the certain reigns that the ``role`` rows of one history tell, in order of rows."""
    by_broker: dict[str, list[Row]] = defaultdict(list)
    for row in roles:
        by_broker[row["broker"]].append(row)
    certain = []
    for broker, rows in by_broker.items():
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if row["role"] == "live" and row["node_id"] is not None:
                end = last_ns if following is None else following["time_low"]
                certain.append(
                    CertainReign(
                        broker, row["node_id"], row["time_high"], end, row["index"], row["time_low"],
                        life_of(row),
                    )
                )  # fmt: skip
    return sorted(certain, key=lambda reign: reign.index)


def overlaps(certain_reigns: Sequence[CertainReign]) -> list[Overlap]:
    """Return the overlaps of certain reigns of different brokers under one node ID."""
    by_node: dict[str, list[CertainReign]] = defaultdict(list)
    for reign in certain_reigns:
        by_node[reign.node_id].append(reign)
    pairs = [
        Overlap(
            same_node[n],
            same_node[m],
            max(same_node[n].begin, same_node[m].begin),
            min(same_node[n].end, same_node[m].end),
        )
        for same_node in by_node.values()
        for n, m in overlapping([(reign.begin, reign.end) for reign in same_node])
        if same_node[n].broker != same_node[m].broker
    ]
    return sorted(pairs, key=lambda pair: (pair.later.index, pair.earlier.index))


def doubts(roles: Sequence[Row]) -> dict[str, list[tuple[int, int]]]:
    """Return, by broker, the spans [low, high] (ns) in which it may have been live unseen.

    Such a span is the interval of a change of role from any role but live: the broker may have been
    live between two looks of the monitor. When a live broker changes its role, its reign is known,
    and its answers until the reign was seen to end count.
    """
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    latest: dict[str, str] = {}
    for row in roles:
        if latest.get(row["broker"], "live") != "live":
            spans[row["broker"]].append((row["time_low"], row["time_high"]))
        latest[row["broker"]] = row["role"]
    return spans


def unnamed_lives(roles: Sequence[Row]) -> dict[str, list[tuple[int, int]]]:
    """Return, by broker, when it was seen live without a node ID: (row, earliest time in ns).

    Such a broker may be live under any node ID, also under a new one.
    """
    lives: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in roles:
        if row["role"] == "live" and row["node_id"] is None:
            lives[row["broker"]].append((row["index"], row["time_low"]))
    return lives


class Fall(NamedTuple):
    """A span in which a broker was certainly not the live one of its node ID.

    The broker was live (row ``own``), was certainly replaced (row ``by``) before ``begin``, and
    cannot have been live again until ``end`` (ns). Or it had never been live (row ``own`` tells its
    node ID), while another broker certainly was (row ``by``) from ``begin`` to ``end``.
    """

    broker: str
    begin: int
    end: int
    own: int
    by: int
    stored: bool


def fallen(
    certain_reigns: Sequence[CertainReign],
    doubtful: Mapping[str, Sequence[tuple[int, int]]],
    takeovers: Sequence[CertainTakeover] = (),
    unnamed: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({}),
) -> list[Fall]:
    """Return the spans in which brokers were certainly replaced, with the rows that prove it.

    A broker is replaced if another was live in its place, under the node ID that it had last. A
    broker that lost its data and began under a new node ID is another node, and is not accused; one
    that is live without a node ID (``unnamed``) may have done so. Nor is one accused that may have
    been live once more between two looks at it; but it cannot have been live while another
    certainly was live under that node ID. A broker does not replace it that was seen live later,
    but may have become live earlier and been silent since.

    Or a broker is fenced if another had completed a takeover of its node under a higher number than
    that of its own life. It does not matter under which node ID the taker is live, nor which row
    came first. Then the store has fenced it, which an administrator may cause in the middle of a
    life. Such a broker must not acknowledge what has to be stored (``stored``); other operations do
    no harm.
    """
    by_node: dict[str, list[CertainReign]] = defaultdict(list)
    back: dict[int, CertainReign] = {}
    previous: dict[str, CertainReign] = {}
    for reign in certain_reigns:
        by_node[reign.node_id].append(reign)
        if reign.broker in previous:
            back[previous[reign.broker].index] = reign
        previous[reign.broker] = reign
    indexes = {node_id: [reign.index for reign in candidates] for node_id, candidates in by_node.items()}
    fences = Fences(takeovers)
    doubted = {broker: _Spans(spans) for broker, spans in doubtful.items()}
    other_reigns = _ReignsByNode(certain_reigns)
    times = []
    for lost in certain_reigns:
        next_reign = back.get(lost.index)
        next_lives = [] if next_reign is None else [(next_reign.index, next_reign.since)]
        next_lives += [life for life in unnamed.get(lost.broker, ()) if life[0] > lost.index]
        next_life, end = min(next_lives, default=(None, 2**62))
        after = bisect_right(indexes[lost.node_id], lost.index)
        before = None if next_life is None else bisect_left(indexes[lost.node_id], next_life)
        # Between two reigns of one broker, each other broker has few reigns.
        successors = [
            (reign.begin, reign.index)
            for reign in by_node[lost.node_id][after:before]
            if reign.since >= lost.begin
        ]
        fence = fences.earliest(lost.broker, lost.node_id, lost.life)
        fenced = [] if fence is None else [(max(fence.certain, lost.begin), fence.index)]
        for stored, candidates in ((False, successors), (True, fenced)):
            if not candidates or (stored and successors and min(successors)[0] <= min(candidates)[0]):
                continue
            begin, by = min(candidates)
            some_doubts = doubted[lost.broker].within(begin, end) if lost.broker in doubted else ()
            meanwhile = sorted((low, high) for low, high in some_doubts if high > begin and low < end)
            certain = begin
            for low, high in meanwhile:
                times.append(Fall(lost.broker, certain, low, lost.index, by, stored))
                certain = max(certain, high)
            times.append(Fall(lost.broker, certain, end, lost.index, by, stored))
            if meanwhile:
                times += [
                    Fall(lost.broker, max(begin, other.begin), min(end, other.end), lost.index, by, stored)
                    for other in other_reigns.within(lost.node_id, lost.broker, begin, end)
                ]
    return [time for time in times if time.begin < time.end]


def never_live(roles: Sequence[Row], certain_reigns: Sequence[CertainReign]) -> list[Fall]:
    """Return the spans in which brokers had never been live and another of their node ID was."""
    earliest: dict[str, int] = {}
    for reign in certain_reigns:
        earliest.setdefault(reign.broker, reign.since)
    spans: dict[str, list[list[Any]]] = defaultdict(list)  # [node ID, begin, end, row]
    live: set[str] = set()
    for row in roles:
        broker, node_id = row["broker"], row["node_id"]
        if broker in live:
            continue
        broker_spans = spans[broker]
        if row["role"] == "live" and node_id is not None:
            live.add(broker)
        elif row["role"] == "live":  # under a node ID that nobody tells
            if broker_spans:
                broker_spans[-1][2] = min(broker_spans[-1][2], row["time_low"])
            broker_spans.append([None, 0, 0, row["index"]])
        elif node_id is not None:
            if broker_spans and broker_spans[-1][0] != node_id:
                broker_spans[-1][2] = min(broker_spans[-1][2], row["time_low"])
            if not broker_spans or broker_spans[-1][0] != node_id:
                broker_spans.append([node_id, row["time_high"], earliest.get(broker, 2**62), row["index"]])
    other_reigns = _ReignsByNode(certain_reigns)
    times = [
        Fall(broker, max(begin, other.begin), min(end, other.end), index, other.index, stored=False)
        for broker, broker_times in spans.items()
        for node_id, begin, end, index in broker_times
        for other in other_reigns.within(node_id, broker, begin, end)
    ]
    return [time for time in times if time.begin < time.end]


class _ReignsByNode:
    """The reigns under each node ID, to be found by time."""

    def __init__(self, certain_reigns: Sequence[CertainReign]) -> None:
        by_node: dict[str, dict[str, list[CertainReign]]] = defaultdict(lambda: defaultdict(list))
        for reign in certain_reigns:
            by_node[reign.node_id][reign.broker].append(reign)
        self._reigns = by_node
        self._spans = {
            (node_id, broker): _Spans([(reign.begin, reign.end) for reign in same_broker])
            for node_id, brokers in by_node.items()
            for broker, same_broker in brokers.items()
        }

    def within(self, node_id: str, broker: str, begin: int, end: int) -> Iterator[CertainReign]:
        """Yield the reigns of other brokers under a node ID that may overlap a span.

        Some reigns before or after the span may be among them.
        """
        for other, same_broker in self._reigns.get(node_id, {}).items():
            if other != broker:
                yield from same_broker[self._spans[node_id, other].about(begin, end)]


class _Spans:
    """Spans in the order in which they were seen, to be found by time without reading all."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans
        self._ended = list(itertools.accumulate((high for _, high in spans), max))
        self._begins = list(itertools.accumulate((low for low, _ in reversed(spans)), min))[::-1]

    def about(self, begin: int, end: int) -> slice:
        """Return the positions of all spans that may overlap a span, perhaps with some others."""
        return slice(bisect_right(self._ended, begin), bisect_left(self._begins, end))

    def within(self, begin: int, end: int) -> Sequence[tuple[int, int]]:
        """Return all spans that may overlap a span, perhaps with some others."""
        return self._spans[self.about(begin, end)]


@dataclass(frozen=True, slots=True)
class BrokerWindows:
    """The windows of one broker with one value of ``only``, and their times as columns."""

    run: int
    broker: str
    only: str | None
    windows: Sequence[Window]
    begin: Numbers
    end: Numbers


def by_broker(windows: Iterable[Window]) -> list[BrokerWindows]:
    """Return windows grouped by run, broker and ``only``, as parts are asked for them."""
    groups: dict[tuple[int, str, str | None], list[Window]] = defaultdict(list)
    for window in windows:
        groups[window.run, window.broker, window.only].append(window)
    return [
        BrokerWindows(
            *key,
            members,
            np.array([window.begin for window in members]),
            np.array([window.end for window in members]),
        )
        for key, members in groups.items()
    ]


def answered(rows: Rows, places: PlaceTable, windows: Sequence[BrokerWindows]) -> Answered:
    """Return the operations that brokers answered ``ok`` within windows, by (run, window id).

    Invocation and answer must be within the window; of a delivery the send of its message takes the
    place of the invocation. The answers of each broker are sorted by time once, so that each window
    is a slice of them, however many windows there are.
    """
    result: Answered = {}
    if not windows:
        return result
    answers = rows.broker.are(*{group.broker for group in windows}) & rows.type.are("ok")
    at = np.flatnonzero(answers)
    at = at[rows.process[at] >= 0]
    slices: list[tuple[Window, Numbers]] = []
    for only in dict.fromkeys(group.only for group in windows):
        counts = ~rows.f.are("connect") if only is None else rows.f.are(only)
        slices += _slices(rows, at[counts[at]], [group for group in windows if group.only == only])
    if not slices:
        return result
    asked_ns = np.full(len(rows.index), -1, dtype=np.int64)
    at = np.unique(np.concatenate([window_rows for _, window_rows in slices]))
    question = asked_at(rows, at)
    delivered = rows.f.are("deliver")[at]
    if delivered.any():
        question[delivered] = _sent_at(rows, places, at[delivered])
    is_known = (question >= 0) & (question < at)
    asked_ns[at[is_known]] = rows.time[question[is_known]]
    for window, window_rows in slices:
        late = window_rows[asked_ns[window_rows] > window.begin]
        if window.stored:
            late = late[_stored(rows, late)]
        if len(late):
            examples = tuple(_answer(rows, places, n) for n in late[:ANSWERS_KEPT].tolist())
            result[window.run, window.id] = AnswersInWindow(len(late), examples)
    return result


def _sent_at(rows: Rows, places: PlaceTable, delivered: Numbers) -> Numbers:
    """Return the position of the first send of the message of some deliveries, or ``NONE``.

    The send is to the queue, or to the topic of the subscription. Why: a broker cannot have had a
    message before its end that was sent after its end.
    """
    codes: dict[Place, int] = {}
    homes = [
        codes.setdefault((run, topic_of(queue), group), n)
        for n, (run, queue, group) in enumerate(places.named)
    ]
    sends = np.flatnonzero(rows.f.are("send") & rows.type.are("invoke"))
    positions = np.concatenate([sends, delivered])
    home, message = np.array(homes, dtype=np.int64)[rows.place[positions]], rows.message[positions]
    order = ordered(home, message)
    message_group = np.empty(len(positions), dtype=np.int64)
    message_group[order] = segments(home[order], message[order])
    return first(message_group[: len(sends)], sends, len(positions))[message_group[len(sends) :]]


def _slices(rows: Rows, at: Numbers, windows: Sequence[BrokerWindows]) -> Iterator[tuple[Window, Numbers]]:
    """Yield each window that has rows, with the positions of its rows in order.

    The rows of a window are those at ``at`` that are of its run and broker and within its times.
    """
    time = rows.time[at]
    if np.any(time[1:] < time[:-1]):
        at = at[np.argsort(time, kind="stable")]
    at = at[ordered(rows.run[at], rows.broker.codes[at])]
    brokers = len(rows.broker.values)
    key = rows.run[at] * brokers + rows.broker.codes[at]
    for group in windows:
        code = rows.broker.code(group.broker)
        if code == brokers:
            continue
        run_broker = group.run * brokers + code
        group_rows = at[np.searchsorted(key, run_broker, "left") : np.searchsorted(key, run_broker, "right")]
        times = rows.time[group_rows]
        firsts = np.searchsorted(times, group.begin, "right")
        lasts = np.searchsorted(times, group.end, "left")
        for n in np.flatnonzero(firsts < lasts).tolist():
            yield group.windows[n], np.sort(group_rows[firsts[n] : lasts[n]])


def _stored(rows: Rows, at: Numbers) -> Flags:
    """Return which operations prove that the broker stored something.

    A broker answers these only when they are stored, or delivers them from its store. Operations in
    a transaction are stored with its commit.
    """
    f = rows.f.codes[at]
    is_single = rows.transaction[at] == NONE
    is_proof: Flags = (f == rows.f.code("commit")) | (
        is_single & np.isin(f, [rows.f.code(name) for name in ("send", "ack", "deliver")])
    )
    return is_proof


def _answer(rows: Rows, places: PlaceTable, n: int) -> OkAnswer:
    _, queue, group = places.named[rows.place[n]]
    message = rows.message[n]
    broker: str = rows.broker.values[rows.broker.codes[n]]
    return OkAnswer(int(rows.index[n]), queue, group, None if message == NONE else int(message), broker)


def merged(parts: Sequence[Answered]) -> Answered:
    """Return the answers that several parts have in the same windows."""
    result = {}
    for key, window_answers in gathered(parts).items():
        rows = (row for part_answers in window_answers for row in part_answers.rows)
        earliest = heapq.nsmallest(ANSWERS_KEPT, rows, key=attrgetter("index"))
        result[key] = AnswersInWindow(
            sum(part_answers.count for part_answers in window_answers), tuple(earliest)
        )
    return result


def windows_of(
    run: int,
    roles: Sequence[Row],
    certain_reigns: Sequence[CertainReign],
    lapped: Sequence[Overlap],
    takeovers: Sequence[CertainTakeover] = (),
) -> list[Window]:
    """Return the windows of one run: those of fallen brokers first, then two for each overlap."""
    falls = fallen(certain_reigns, doubts(roles), takeovers, unnamed_lives(roles))
    falls += never_live(roles, certain_reigns)
    fell = [
        Window(run, number, fall.broker, fall.begin, fall.end, own=fall.own, by=fall.by, stored=fall.stored)
        for number, fall in enumerate(falls)
    ]
    overlap_windows = [
        Window(run, len(fell) + 2 * number + side, broker, overlap.begin, overlap.end, "send")
        for number, overlap in enumerate(lapped)
        for side, broker in enumerate((overlap.earlier.broker, overlap.later.broker))
    ]
    return fell + overlap_windows


def zombies(windows: Sequence[Window], answers: Answered) -> list[Instance]:
    """Return one instance for each operation that a fallen broker answered."""
    instances = {
        Instance("zombie", row.queue, row.group, row.message, row.index, row.broker, window.run)
        for window in windows
        if window.only is None and (window.run, window.id) in answers
        for row in answers[window.run, window.id].rows
    }
    return sorted(instances, key=lambda instance: (instance.run, instance.index))
