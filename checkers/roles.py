"""Who ruled when: split-brain and zombie.

Role rows are few (a monitor writes one a change) and are laid out as intervals here; what clients were answered in those intervals is
looked up in every part, only where two brokers shared a node ID.

A reign is certain from ``time_high`` of its ``live`` row to ``time_low`` of the broker's next row of whatever role
("unreachable" too: from there nothing is claimed), or to the end of the history.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.instance import Instance
from checkers.rows import NONE, Flags, Numbers, Places, Rows
from checkers.schema import MONITOR
from checkers.takeovers import Takeover, fencing, life_of

Row = Mapping[str, Any]

ANSWERS_KEPT: Final = 100_000
"""Of one window: the most that are named. More are counted only."""


@dataclass(frozen=True, slots=True)
class Reign:
    """Nanoseconds; ``index`` is the row's, ``since`` the earliest moment at which the reign can have begun, ``life`` its number (None: not told)."""

    broker: str
    node_id: str
    begin: int
    end: int
    index: int
    since: int
    life: int | None


class Overlap(NamedTuple):
    """Two certain reigns under one node ID at once, [begin, end) in nanoseconds."""

    earlier: Reign
    later: Reign
    begin: int
    end: int

    def instance(self, run: int) -> Instance:
        """The finding; its row is the later reign's."""
        pair = " ".join(sorted((self.earlier.broker, self.later.broker)))
        key = f"{self.later.node_id} {pair} {self.earlier.index}"
        return Instance("split-brain", None, None, None, self.later.index, key, run)


class Window(NamedTuple):
    """When a broker must not answer (or, in an overlap, must not answer beside the other): asked after ``begin``, answered before ``end``.

    ``only`` names the one operation that counts; None: all but deliveries and logins, which promise nothing. ``own`` and ``by`` are the rows that
    prove it of a fallen broker: the one that saw it live, and the one that saw who was in its place.
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
    """Only what has to be stored counts: sends, acks and commits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An operation that was answered ``ok``."""

    index: int
    queue: str | None
    group: str | None
    message: int | None
    broker: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Operations answered ``ok`` in a window: how many, and the first of them."""

    count: int
    rows: tuple[Answer, ...]


Answered = dict[tuple[int, int], Answers]
"""By (run, window id)."""


def reigns(roles: Sequence[Row], last_ns: int) -> list[Reign]:
    """From the ``role`` rows of one history, in order of their rows."""
    by_broker: dict[str, list[Row]] = defaultdict(list)
    for row in roles:
        if row["process"] == MONITOR and row["f"] == "role" and row["broker"] is not None:
            by_broker[row["broker"]].append(row)
    found = []
    for broker, rows in by_broker.items():
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if row["role"] == "live" and row["node_id"] is not None:
                end = last_ns if following is None else following["time_low"]
                found.append(
                    Reign(
                        broker, row["node_id"], row["time_high"], end, row["index"], row["time_low"], life_of(row),
                    )
                )  # fmt: skip
    return sorted(found, key=lambda reign: reign.index)


def overlaps(found: Sequence[Reign]) -> list[Overlap]:
    """Every pair of reigns of different brokers under one node ID that certainly overlap."""
    pairs = []
    for n, later in enumerate(found):
        for earlier in found[:n]:
            begin, end = max(earlier.begin, later.begin), min(earlier.end, later.end)
            if earlier.node_id == later.node_id and earlier.broker != later.broker and begin < end:
                pairs.append(Overlap(earlier, later, begin, end))
    return pairs


def doubts(roles: Sequence[Row]) -> dict[str, list[tuple[int, int]]]:
    """By broker, in which spans [low, high] it may have been live without being seen: it was not live before, and was asked again only then.

    A live one that becomes something else is seen to: its reign is known, and what it answers until it is seen to have ended counts.
    """
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    latest: dict[str, str] = {}
    for row in roles:
        if row["process"] == MONITOR and row["f"] == "role" and row["broker"] is not None:
            if latest.get(row["broker"], "live") != "live":
                found[row["broker"]].append((row["time_low"], row["time_high"]))
            latest[row["broker"]] = row["role"]
    return found


class Fall(NamedTuple):
    """A broker that was live (row ``own``), was certainly replaced (row ``by``) before ``begin``, and cannot have been live again until ``end`` (ns)."""

    broker: str
    begin: int
    end: int
    own: int
    by: int
    stored: bool


def fallen(
    found: Sequence[Reign],
    doubtful: Mapping[str, Sequence[tuple[int, int]]],
    takeovers: Sequence[Takeover] = (),
) -> list[Fall]:
    """When which broker was certainly replaced, and by what that is known.

    Another was live in its place: under the node ID that it had last. A broker that lost its data and began anew is another node, and owes the old one nothing.
    Nor does one that may have been live once more, for less time than lay between two looks at it.

    Or another had completed a takeover of that node under a higher number than its own life's: whatever node ID the taker is live with, and whichever row
    came first. Then it is the store that has fenced it, which an administrator may make it do in the middle of a life: nothing that has to be stored can
    be promised any more, and what needs no store is nobody's loss.
    """
    times = []
    for own in found:
        back = next((r for r in found if r.broker == own.broker and r.index > own.index), None)
        successors = [
            (reign.begin, reign.index)
            for reign in found
            if reign.broker != own.broker
            and reign.node_id == own.node_id
            and reign.index > own.index
            and (back is None or reign.index < back.index)
        ]
        fenced = [
            (max(takeover.certain, own.begin), takeover.index)
            for takeover in fencing(takeovers, own.broker, own.node_id, own.life)
        ]
        end = 2**62 if back is None else back.since
        for stored, some in ((False, successors), (True, fenced)):
            if not some or (stored and successors and min(successors)[0] <= min(some)[0]):
                continue
            begin, by = min(some)
            for low, high in doubtful.get(own.broker, ()):
                if high > begin and low < end:
                    times.append(Fall(own.broker, begin, low, own.index, by, stored))
                    begin = high
            times.append(Fall(own.broker, begin, end, own.index, by, stored))
    return [time for time in times if time.begin < time.end]


def answered(rows: Rows, places: Places, windows: Sequence[Window]) -> Answered:
    """(run, window id) -> what was asked and answered ``ok`` within the window by its broker, in these rows."""
    found: Answered = {}
    if not windows or not len(rows.index):
        return found
    f = rows.f
    answers = (rows.process >= 0) & (rows.type.codes == rows.type.code("ok")) & (rows.broker.codes >= 0)
    promises = (f.codes != f.code("deliver")) & (f.codes != f.code("connect"))
    asked: _Questions | None = None
    of_run = _by_run(rows.run)
    for window in windows:
        mine = of_run.get(window.run)
        if mine is None:
            continue
        here = answers[mine] & (rows.broker.codes[mine] == rows.broker.code(window.broker))
        here &= f.codes[mine] == f.code(window.only) if window.only else promises[mine]
        here &= (rows.time[mine] > window.begin) & (rows.time[mine] < window.end)
        at = np.flatnonzero(here) if isinstance(mine, slice) else mine[here]
        if window.stored:
            at = at[_stored(rows, at)]
        if not len(at):
            continue
        asked = asked or _Questions(rows)
        late = at[asked.times(at) > window.begin]
        if len(late):
            kept = tuple(_answer(rows, places, n) for n in late[:ANSWERS_KEPT].tolist())
            found[window.run, window.id] = Answers(len(late), kept)
    return found


def _stored(rows: Rows, at: Numbers) -> Flags:
    """Which of these operations a broker answers only when they are stored: what is in a transaction is stored with its commit."""
    f = rows.f.codes[at]
    alone = rows.transaction[at] == NONE
    found: Flags = (f == rows.f.code("commit")) | (
        alone & ((f == rows.f.code("send")) | (f == rows.f.code("ack")))
    )
    return found


def _by_run(run: Numbers) -> dict[int, Numbers | slice]:
    """Where the rows of each run lie: of many small runs, a window concerns the rows of its own only."""
    if run[0] == run[-1] and np.all(run == run[0]):
        return {int(run[0]): slice(None)}
    order = np.argsort(run, kind="stable")
    names, starts = np.unique(run[order], return_index=True)
    return dict(zip(names.tolist(), np.split(order, starts[1:]), strict=True))


class _Questions:
    """The invocations among the rows, to be found by who asked what about which message."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._at = np.flatnonzero((rows.type.codes == rows.type.code("invoke")) & (rows.process >= 0))

    def _keys(self, at: Numbers) -> tuple[npt.NDArray[Any], ...]:
        return self._rows.id[at], self._rows.f.codes[at], self._rows.process[at]

    def times(self, answers: Numbers) -> Numbers:
        """When each answered operation was invoked (ns); -1 where no invocation is among the rows."""
        both = np.concatenate([self._at, answers])
        order = np.lexsort((both, *self._keys(both)))
        asking = order < len(self._at)
        previous = np.maximum.accumulate(np.where(asking, np.arange(len(order)), -1))
        result = np.full(len(answers), -1, dtype=np.int64)
        here = np.flatnonzero(~asking)
        before = previous[here]
        same = before >= 0
        for key in self._keys(both[order]):
            same &= key[here] == key[np.maximum(before, 0)]
        times = self._rows.time[both[order]]
        result[order[here] - len(self._at)] = np.where(same, times[np.maximum(before, 0)], -1)
        return result


def _answer(rows: Rows, places: Places, n: int) -> Answer:
    _, queue, group = places.named[rows.place[n]]
    message = rows.message[n]
    broker: str = rows.broker.values[rows.broker.codes[n]]
    return Answer(int(rows.index[n]), queue, group, None if message == NONE else int(message), broker)


def merged(parts: Sequence[Answered]) -> Answered:
    """What several parts know of the same windows."""
    whole: dict[tuple[int, int], list[Answers]] = defaultdict(list)
    for part in parts:
        for key, some in part.items():
            whole[key].append(some)
    return {
        key: Answers(
            sum(one.count for one in some),
            tuple(
                heapq.nsmallest(
                    ANSWERS_KEPT, (row for one in some for row in one.rows), key=lambda row: row.index
                )
            ),
        )
        for key, some in whole.items()
    }


def windows_of(
    run: int,
    roles: Sequence[Row],
    found: Sequence[Reign],
    lapped: Sequence[Overlap],
    takeovers: Sequence[Takeover] = (),
) -> list[Window]:
    """What must be looked up of one run: windows of the fallen first, then two for each overlap."""
    fell = [
        Window(run, number, fall.broker, fall.begin, fall.end, own=fall.own, by=fall.by, stored=fall.stored)
        for number, fall in enumerate(fallen(found, doubts(roles), takeovers))
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
