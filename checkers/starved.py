"""The rule ``starved``: sessions that got nothing while messages waited for them.

A session is idle from one of its rows to the next if it holds nothing then, so that every message
that it got has been answered. A message waits from the ``ok`` of its send to its first delivery (or
to the end, in a main store). It does not count if that delivery says that it is a redelivery, as
another session may have held the message.

A message is in the session's reach if three things hold. Brokers of the node ID of the session's
broker took it and delivered (or kept) it, so that it did not have to be forwarded. It matches the
session's selector. And no other session that was there meanwhile had got a message of its group,
and so may own the group. A session is starved if it was idle for longer than the bound while one
message in its reach waited all the time.

Why in two steps: the first and last row of sessions in few slots of time tell which were idle so
long (as in ``checkers.availability``), and in most runs none was. Only then are the messages looked
for that waited so long, and those that sessions held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from checkers.asked import Selector, asked_by
from checkers.attempts import attempts_of
from checkers.deaths import Deaths
from checkers.ends import Ends
from checkers.instance import Instance
from checkers.rows import (
    ACK_OK,
    BROWSE,
    DELIVER,
    FOREVER,
    NACK_OK,
    NONE,
    SEND_INVOKE,
    SEND_OK,
    Flags,
    Numbers,
    PlaceTable,
    Rows,
    cells_of,
    first,
    joined,
    last,
)
from checkers.running import segments, starts
from checkers.selection import Selection
from checkers.subscriptions import Subscriptions

NAME = "starved"
_BITS = 33
_NO_MESSAGE: Selector = {"": []}
"""A selector that matches nothing."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The first and last row of each session in each slot of time, not sorted."""

    run: Numbers
    session: Numbers
    first: Numbers
    first_ns: Numbers
    last: Numbers
    last_ns: Numbers


@dataclass(frozen=True, order=True, slots=True)
class Idle:
    """A time in which a session had no row, from ``begin`` to ``end`` (ns).

    It lies between the row ``after`` and the row ``before`` of the session; ``broker`` is the
    session's.
    """

    run: int
    session: int
    queue: str | None
    broker: str
    after: int
    begin: int
    before: int
    end: int


@dataclass(frozen=True, order=True, slots=True)
class Hunger:
    """A time, from ``begin`` to ``end`` (ns), in which a session was starved of a message.

    The message waited from row ``ok`` on; row ``index`` of the session ended the time. ``broker``
    is the session's.
    """

    run: int
    index: int
    session: int
    queue: str | None
    group: str | None
    message: int
    ok: int
    begin: int
    end: int
    after: int
    broker: str

    @property
    def brokers(self) -> frozenset[str]:
        """The session's broker; the message went only by brokers of its node."""
        return frozenset({self.broker})

    def instance(self) -> Instance:
        """Return the instance, which the session's next row shows."""
        return Instance(
            NAME, self.queue, self.group, self.message, self.index, f"session {self.session}", self.run
        )


class Served(NamedTuple):
    """The facts that some rows tell about an idle time.

    ``held`` is how many more deliveries than answers came before it, ``waiting`` the first message
    that waited throughout it.
    """

    held: int
    waiting: tuple[int, int, str | None, int] | None
    """The row and time (ns) of the message's ``ok``, its group and its id."""


def activity(rows: Rows, bound_ns: int) -> Activity:
    """Return the activity of the sessions in some rows, in slots as long as the bound."""
    joins = rows.f.are("subscribe") & rows.type.are("ok")
    at = np.flatnonzero(rows.f.are("deliver", "ack", "nack", "unsubscribe", "disconnect") | joins)
    session = rows.session[at]
    at, session = at[session != NONE], session[session != NONE]
    if not len(at):
        return Activity(*[np.zeros(0, dtype=np.int64)] * len(Activity.__slots__))
    slot = rows.time[at] // bound_ns
    start = int(slot.min())
    size, width = int(slot.max()) - start + 1, int(session.max()) + 1
    cell = (rows.run[at] * width + session) * size + (slot - start)
    used, cell = cells_of(cell, int(cell.max()) + 1)
    low, high = first(cell, at, len(used)), last(cell, at, len(used))
    low, high = low[low != NONE], high[high != NONE]
    return Activity(
        rows.run[low], rows.session[low], rows.index[low], rows.time[low], rows.index[high], rows.time[high]
    )  # fmt: skip


def idle(
    activities: Iterable[Activity], control: Rows, places: PlaceTable, ends: Ends, bound_ns: int
) -> list[Idle]:
    """Return every time in which a session had no row for longer than the bound.

    Only times count between the ``ok`` of its subscribe and its end.
    """
    activity = joined(activities)
    order = np.lexsort((activity.first, activity.session, activity.run))
    run, session, low, low_ns, high, high_ns = (getattr(activity, name)[order] for name in Activity.__slots__)
    at = np.flatnonzero(control.f.are("subscribe") & control.type.are("ok"))
    whose = control.session[at]
    first_of: dict[tuple[int, int], int] = {}
    for n, key in zip(at.tolist(), zip(control.run[at].tolist(), whose.tolist(), strict=True), strict=True):
        first_of.setdefault(key, n)
    # A slot's rows may lie in several parts: one that begins later may have ended before.
    packed = (segments(run, session) << _BITS) | high
    latest = np.maximum.accumulate(
        np.where(packed == np.maximum.accumulate(packed), np.arange(len(packed)), 0)
    )
    high, high_ns = high[latest], high_ns[latest]
    same = (run[1:] == run[:-1]) & (session[1:] == session[:-1])
    pauses = np.flatnonzero(same & (low_ns[1:] - high_ns[:-1] > bound_ns))
    ended = ends.sessions.find("ended", run[pauses], session[pauses])
    idle_times = []
    for n, end in zip(pauses.tolist(), ended.tolist(), strict=True):
        row = first_of.get((int(run[n]), int(session[n])))
        if row is None or control.index[row] > high[n] or (end != NONE and end <= high[n]):
            continue
        code = control.broker.codes[row]
        queue = places.named[control.place[row]][1]
        if code >= 0 and queue is not None:
            idle_times.append(
                Idle(
                    int(run[n]), int(session[n]), queue, control.broker.values[code], int(high[n]),
                    int(high_ns[n]), int(low[n + 1]), int(low_ns[n + 1]),
                )
            )  # fmt: skip
    return sorted(idle_times)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The messages that waited for longer than the bound at brokers of one node.

    ``taker`` is the broker that took a message (a position in ``brokers``), ``ok`` and ``ok_ns``
    the row and time of that, ``until`` the row until which it waited. ``matches_selector``
    says, by selector, which messages match.
    """

    brokers: Sequence[str]
    place: Numbers
    message: Numbers
    taker: Numbers
    ok: Numbers
    ok_ns: Numbers
    until: Numbers
    matches_selector: Mapping[str, Flags]


class Serving:
    """The facts that one part has about each idle time; ``add`` every slice of the part first."""

    def __init__(
        self, places: PlaceTable, idle_times: Sequence[Idle], ends: Ends, deaths: Deaths, bound_ns: int,
        subscriptions: Subscriptions,
    ) -> None:  # fmt: skip
        self._places, self._wanted, self._ends, self._deaths = places, idle_times, ends, deaths
        selectors = [
            _only(subscriptions.selectors_of(item.run, item.session, item.queue)) for item in idle_times
        ]
        self._choices = [None if item is None else repr(sorted(item.items())) for item in selectors]
        self._selectors = {repr(sorted(item.items())): item for item in selectors if item is not None}
        self._bound_ns = bound_ns
        self._run, self._session, self._after, self._before, self._begin, self._end = (
            np.array([getattr(item, name) for item in idle_times], dtype=np.int64)
            for name in ("run", "session", "after", "before", "begin", "end")
        )
        self._held = np.zeros(len(idle_times), dtype=np.int64)
        self._got: dict[int, dict[int, int]] = {}
        self._waiting: list[_Waiting] = []

    def add(self, rows: Rows) -> None:
        """Add the facts of one slice of whole messages."""
        whose = self._run, self._session, self._after
        self._held += _up_to(rows, rows.of(DELIVER), *whose)
        answers = rows.of(ACK_OK, NACK_OK)
        self._held -= _up_to(rows, answers[rows.transaction[answers] == NONE], *whose)
        _note_getters(rows, self._places, self._got)
        self._waiting.append(_waiting(rows, self._ends, self._deaths, self._bound_ns, self._selectors))

    def served(self) -> list[Served]:
        """Return the facts about each idle time, in the order of the given ones."""
        best: list[tuple[int, int, str | None, int] | None] = [None] * len(self._wanted)
        for messages in self._waiting:
            for place, taker in sorted(
                set(zip(messages.place.tolist(), messages.taker.tolist(), strict=True))
            ):
                same_taker = np.flatnonzero((messages.place == place) & (messages.taker == taker))
                self._look(messages, same_taker, place, messages.brokers[taker], best)
        return [
            Served(int(count), best_message) for count, best_message in zip(self._held, best, strict=True)
        ]

    def _look(
        self, messages: _Waiting, rows: Numbers, place: int, broker: str,
        best: list[tuple[int, int, str | None, int] | None],
    ) -> None:  # fmt: skip
        """Find, for each idle time, the first of some messages that waited throughout it.

        The messages are of one place and one taker; the result goes to ``best``.
        """
        run, queue, _ = self._places.named[place]
        near = [
            n
            for n, idle_time in enumerate(self._wanted)
            if idle_time.run == run
            and idle_time.queue == queue
            and self._deaths.of_one_node(run, broker, idle_time.broker)
        ]
        for choice in dict.fromkeys(self._choices[n] for n in near):
            matching = rows if choice is None else rows[messages.matches_selector[choice][rows]]
            if len(matching):
                idle_numbers = np.array([n for n in near if self._choices[n] == choice])
                self._look_for(messages, matching, place, idle_numbers, best)

    def _look_for(
        self, messages: _Waiting, rows: Numbers, place: int, idle_numbers: Numbers,
        best: list[tuple[int, int, str | None, int] | None],
    ) -> None:  # fmt: skip
        """Do the same for idle times whose selector matches all of these messages."""
        run, _, group = self._places.named[place]
        rows = rows[np.argsort(messages.ok[rows], kind="stable")]
        longest = np.maximum.accumulate(messages.until[rows])
        at = np.searchsorted(longest, self._before[idle_numbers], "left")
        m = rows[np.minimum(at, len(rows) - 1)]
        is_waiting = (at < len(rows)) & (
            self._end[idle_numbers] - np.maximum(messages.ok_ns[m], self._begin[idle_numbers])
            > self._bound_ns
        )
        if group is not None:
            is_waiting &= _free(
                self._got.get(place, {}), run, self._ends, self._session[idle_numbers],
                self._after[idle_numbers], self._before[idle_numbers]
            )  # fmt: skip
        for n, row in zip(idle_numbers[is_waiting].tolist(), m[is_waiting].tolist(), strict=True):
            candidate = (int(messages.ok[row]), int(messages.ok_ns[row]), group, int(messages.message[row]))
            known_best = best[n]
            if known_best is None or candidate[0] < known_best[0]:
                best[n] = candidate


def _only(selectors: Sequence[Selector | None]) -> Selector | None:
    """Return the selector of a session; of several, one that no message certainly matches."""
    return _NO_MESSAGE if len(selectors) > 1 else next(iter(selectors), None)


def _up_to(rows: Rows, at: Numbers, runs: Numbers, sessions: Numbers, after: Numbers) -> Numbers:
    """Return how many of the rows at ``at`` each session has up to its row ``after``, inclusive."""
    _, session_of = np.unique(
        np.stack([np.concatenate([rows.run[at], runs]), np.concatenate([rows.session[at], sessions])]),
        axis=1, return_inverse=True
    )  # fmt: skip
    session_of = session_of.ravel().astype(np.int64)
    place = np.sort((session_of[: len(at)] << _BITS) | rows.index[at])
    asked_sessions = session_of[len(at) :]
    return np.searchsorted(place, (asked_sessions << _BITS) | after, "right") - np.searchsorted(
        place, asked_sessions << _BITS
    )


def _note_getters(rows: Rows, places: PlaceTable, got: dict[int, dict[int, int]]) -> None:
    """Add the sessions that got messages of each group to ``got``, each with its first delivery."""
    at = rows.of(DELIVER)
    at = at[(rows.session[at] != NONE) & places.grouped()[rows.place[at]]]
    session = rows.session[at]
    order = np.lexsort((rows.index[at], session, rows.place[at]))
    at, session = at[order], session[order]
    segment = segments(rows.place[at], session)
    for n in starts(segment).tolist():
        first_deliveries = got.setdefault(int(rows.place[at[n]]), {})
        index = int(rows.index[at[n]])
        first_deliveries[int(session[n])] = min(index, first_deliveries.get(int(session[n]), index))


def _free(
    got: Mapping[int, int], run: int, ends: Ends, sessions: Numbers, after: Numbers, before: Numbers
) -> Flags:
    """Return, for each idle time, whether no other session there had got messages of the group."""
    whose = np.array(list(got), dtype=np.int64)
    since = np.array(list(got.values()), dtype=np.int64)
    over = ends.sessions.find("over", np.full(len(whose), run, dtype=np.int64), whose)
    over = np.maximum(np.where(over == NONE, FOREVER, over), since)
    others_then = np.searchsorted(np.sort(since), before, "left") - np.searchsorted(
        np.sort(over), after, "right"
    )
    own_first = np.array([got.get(session, FOREVER) for session in sessions.tolist()], dtype=np.int64)
    result: Flags = others_then == (own_first < before)
    return result


def _waiting(
    rows: Rows, ends: Ends, deaths: Deaths, bound_ns: int, selectors: Mapping[str, Selector]
) -> _Waiting:
    size = rows.messages
    sends, oks, delivers, stores = rows.of(SEND_INVOKE), rows.of(SEND_OK), rows.of(DELIVER), rows.of(BROWSE)
    stores = stores[rows.value.codes[stores] == rows.value.code("main")]
    codes = rows.broker.codes.astype(np.int64)
    is_plain = np.ones(size, dtype=bool)
    is_plain[rows.id[sends[rows.transaction[sends] != NONE]]] = False
    # How transactions end does not matter here: messages that were sent in one are left out.
    options = asked_by(rows, attempts_of(rows, ends, atomic=True))
    is_plain &= ~options.delayed & (options.expires == NONE)  # such a message need not be delivered
    ok, ok_ns = (first(rows.id[oks], column[oks], size) for column in (rows.index, rows.time))
    taker = first(rows.id[oks], codes[oks], size)
    delivered, given_ns = (
        first(rows.id[delivers], column[delivers], size) for column in (rows.index, rows.time)
    )
    giver = np.where(
        delivered == NONE, first(rows.id[stores], codes[stores], size),
        first(rows.id[delivers], codes[delivers], size)
    )  # fmt: skip
    until = np.where(delivered == NONE, FOREVER, delivered)
    is_repeated = (rows.redelivered[delivers] == 1) | (rows.delivery_count[delivers] > 1)
    is_plain &= (
        first(rows.id[delivers], is_repeated.astype(np.int64), size) != 1
    )  # else it may have been held
    where = is_plain & (taker >= 0) & (giver >= 0)
    at = np.flatnonzero(where & ((delivered == NONE) | (given_ns - ok_ns > bound_ns)))
    pairs = np.column_stack([rows.run[rows.first_row[at]], taker[at], giver[at]])
    kinds, pair_of = np.unique(pairs, axis=0, return_inverse=True)
    near = np.array(
        [
            deaths.of_one_node(run, rows.broker.values[taker_code], rows.broker.values[other])
            for run, taker_code, other in kinds.tolist()
        ],
        dtype=bool,
    )
    at = at[near[pair_of.ravel()]]
    place = rows.place[rows.first_row[at]].astype(np.int64)
    selection = Selection(rows)
    is_wanted = {name: selection.wants(selector)[at] for name, selector in selectors.items()}
    return _Waiting(
        rows.broker.values, place, rows.message[rows.first_row[at]], taker[at], ok[at], ok_ns[at], until[at],
        is_wanted,
    )  # fmt: skip


def hungers(idle_times: Sequence[Idle], parts: Sequence[Sequence[Served]]) -> list[Hunger]:
    """Return the sessions that were starved, from the facts of all parts about idle times.

    Such a session held nothing, and a message waited for it.
    """
    result = []
    for n, idle_time in enumerate(idle_times):
        facts = [part[n] for part in parts]
        waiting = min((s.waiting for s in facts if s.waiting is not None), default=None)
        if waiting is not None and sum(s.held for s in facts) == 0:
            ok, ok_ns, group, message = waiting
            result.append(
                Hunger(
                    idle_time.run, idle_time.before, idle_time.session, idle_time.queue, group, message, ok,
                    max(idle_time.begin, ok_ns), idle_time.end, idle_time.after, idle_time.broker,
                )
            )  # fmt: skip
    return sorted(result, key=lambda hunger: (hunger.run, hunger.index))
