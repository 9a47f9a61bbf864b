"""Messages that a broker takes back because their acknowledgement is late.

SQS calls it a visibility time-out, JetStream AckWait, RabbitMQ ``consumer_timeout``. A broker that
promises it (``Promises.ack_wait_s``) counts from the moment at which it sent a message, and the
client reads the message later. A delivery *lapses* at the earliest moment at which that time can be
over: the promised time after the earliest moment at which the delivery can have been sent. It
cannot have been sent before

- the first send of the message, or the invocation of the session's subscribe, or the time since
  which the client asked for the delivery (``time_low``);
- the invocation of an operation that was answered on the same connection before the delivery was
  read, where answers and deliveries come in order;
- an earlier delivery was sent, where marks or counts say which is earlier;
- another delivery of the message lapsed or was settled, if that was read before and cannot have
  been sent so long after this one that this one had lapsed.

A ``timeout`` row says that a message was taken back at some moment before that row. It is about the
latest delivery in its session, or about the next one, which the client had not read yet. A delivery
that was so taken back was certainly held at no moment. Nor was a delivery that was read while an
ack or nack of an earlier one of its message was unanswered in the session, since that may have
settled it.

An acknowledgement is *late* if it was answered when the delivery that it acknowledges had lapsed.
Where stale acknowledgements may be answered ``ok``, such an ``ok`` settles nothing: SQS confirms to
delete a message by an old receipt handle, and deletes nothing.

Only messages that were delivered again, or that a ``timeout`` row names, are examined one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from checkers.ends import Ends
from checkers.links import SessionFacts
from checkers.rows import (
    ACK_FAIL,
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    NACK_FAIL,
    NACK_INVOKE,
    NACK_OK,
    NONE,
    SEND_INVOKE,
    TIMEOUT,
    Flags,
    Numbers,
    Rows,
    counted,
    first,
    lowest,
    marked,
    ordered,
)
from checkers.running import segments
from checkers.verdict import Promises

NEVER: Final = int(np.iinfo(np.int64).max)
"""The time (ns) at which a delivery lapses that no broker takes back.

A delivery that was taken back lapses at ``NONE``, before all times.
"""
_ASKED: Final = (ACK_INVOKE, NACK_INVOKE)
_ANSWERED: Final = (ACK_OK, ACK_FAIL, NACK_OK, NACK_FAIL)


@dataclass(frozen=True, slots=True)
class Lapses:
    """The deliveries that may lapse (``at``, sorted positions), and late acknowledgements.

    ``since``: the time (ns) since which each can have been sent, ``lapse``: the time (ns) from
    which on it may have been taken back. ``certain``: a row says that it was; ``unread``: it may
    have been before it was read. ``late``: the positions of late acknowledgements, sorted.
    """

    at: Numbers
    since: Numbers
    lapse: Numbers
    certain: Flags
    unread: Flags
    late: Numbers

    @classmethod
    def none(cls) -> Lapses:
        """Return a table without deliveries: none lapses."""
        nothing, no = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
        return cls(nothing, nothing, nothing, no, no, nothing)

    def are_late(self, at: Numbers) -> Flags:
        """Return which acknowledgements at some positions are late."""
        return np.isin(at, self.late)

    def lapse_of(self, at: Numbers) -> Numbers:
        """Return when (ns) the deliveries at some positions lapse; a position of -1 never does."""
        where, is_known = self._find(at)
        nothing = np.full(len(at), NEVER, dtype=np.int64)
        return np.where(is_known, self.lapse[where], nothing) if len(self.at) else nothing

    def since_of(self, at: Numbers) -> Numbers:
        """Return since when (ns) some deliveries can have been sent; ``NONE`` for unknown ones."""
        where, is_known = self._find(at)
        nothing = np.full(len(at), NONE, dtype=np.int64)
        return np.where(is_known, self.since[where], nothing) if len(self.at) else nothing

    def unread_of(self, at: Numbers) -> Flags:
        """Return which deliveries may have been taken back, by a row, before they were read."""
        where, is_known = self._find(at)
        return is_known & self.unread[where] if len(self.at) else is_known

    def certain_of(self, at: Numbers) -> Flags:
        """Return which deliveries were certainly taken back, by a row."""
        where, is_known = self._find(at)
        return is_known & self.certain[where] if len(self.at) else is_known

    def _find(self, at: Numbers) -> tuple[Numbers, Flags]:
        if not len(self.at):
            return at, np.zeros(len(at), dtype=bool)
        where = np.minimum(np.searchsorted(self.at, at), len(self.at) - 1)
        return where, self.at[where] == at


def waiting_ns(promises: Promises) -> int | None:
    """Return how long (ns) a broker waits for an acknowledgement; None: for ever."""
    return None if promises.ack_wait_s is None else int(promises.ack_wait_s * 1e9)


def lapses(
    rows: Rows,
    ends: Ends,
    promises: Promises,
    session_facts: SessionFacts | None = None,
    of: Flags | None = None,
) -> Lapses:
    """Return when the deliveries of messages ``of`` (None: all) lapse."""
    wait = waiting_ns(promises)
    timeouts = rows.of(TIMEOUT)
    if wait is None and not len(timeouts):
        return Lapses.none()
    delivers = rows.of(DELIVER)
    ids = rows.id[delivers]
    timed = marked(rows.id[timeouts], rows.messages)
    is_timed = (rows.message[delivers] != NONE) & (rows.session[delivers] != NONE)
    if of is not None:
        is_timed &= of[ids]
    if wait is None:
        is_timed &= timed[ids]
    at, ids = delivers[is_timed], ids[is_timed]
    since = _asked_since(rows, ends, promises, session_facts, at)
    lapse = np.full(len(at), NEVER) if wait is None else since + wait
    certain, unread = np.zeros((2, len(at)), dtype=bool)
    several = (counted(ids, rows.messages) > 1) | timed
    several_at = np.flatnonzero(several[ids])
    if len(several_at):
        look = _Look(rows, ends, promises, session_facts, wait, at[several_at], since[several_at])
        for deliveries in look.messages():
            for delivery in deliveries:
                n = several_at[delivery.number]
                since[n], lapse[n] = delivery.since, delivery.lapse
                certain[n], unread[n] = delivery.certain, delivery.unread
    result = Lapses(at, since, lapse, certain, unread, np.zeros(0, dtype=np.int64))
    return result if promises.refuses_stale_acks else replace(result, late=_late(rows, result))


def _late(rows: Rows, lapses_found: Lapses) -> Numbers:
    """Return the acks and nacks that were answered ``ok`` when their delivery had lapsed.

    Their delivery is the latest one in the session before the invocation of the ack.
    """
    has_lapse = marked(rows.id[lapses_found.at], rows.messages)
    at = rows.of(DELIVER, ACK_INVOKE, ACK_OK, NACK_OK)
    at = at[has_lapse[rows.id[at]]]
    at = at[ordered(rows.id[at], rows.session[at], rows.index[at])]
    kind, segment = rows.kind[at], segments(rows.id[at], rows.session[at])
    order_places = np.arange(len(at))

    def latest(of_kind: int) -> Numbers:
        """Return the last row of a kind up to each row; -1 if its segment has none."""
        last = np.maximum.accumulate(np.where(kind == of_kind, order_places, -1))
        return np.where(segment[last] == segment, last, -1)

    delivery_rows, ack_rows = latest(DELIVER), latest(ACK_INVOKE)
    oks = np.flatnonzero((kind == ACK_OK) | (kind == NACK_OK))
    delivery_rows = delivery_rows[np.where(ack_rows[oks] >= 0, ack_rows[oks], oks)]
    lapse = lapses_found.lapse_of(np.where(delivery_rows >= 0, at[delivery_rows], -1))
    found_late: Numbers = np.sort(at[oks[rows.time[at[oks]] >= lapse]])
    return found_late


def _asked_since(
    rows: Rows, ends: Ends, promises: Promises, session_facts: SessionFacts | None, at: Numbers
) -> Numbers:
    """Return since when (ns) some deliveries can have been sent, without comparing deliveries.

    ``NONE``: no row tells.
    """
    sends = rows.of(SEND_INVOKE)
    run, session = rows.run[at], rows.session[at]
    sent = first(rows.id[sends], rows.index[sends], rows.messages)[rows.id[at]]
    result = first(rows.id[sends], rows.time[sends], rows.messages)[rows.id[at]]
    result = np.where(sent < rows.index[at], result, NONE)
    begun = ends.sessions.find("begun", run, session)
    begun_ns = ends.sessions.find("begun_ns", run, session)
    result = np.maximum(result, np.where(begun < rows.index[at], begun_ns, NONE))
    result = np.maximum(result, rows.time_low[at])
    if session_facts is not None and promises.answers_in_order:
        question_rows = session_facts.links.before(run, session, rows.connection[at], rows.index[at])
        result = np.maximum(result, session_facts.links.moments(run, question_rows))
    since: Numbers = result
    return since


@dataclass(slots=True)
class _Delivery:
    """A delivery of a message that is examined by itself.

    ``ended``: its session has an end; ``alive``: the row up to which the session was certainly
    alive. ``told``: a row may say that the delivery was taken back. ``crossed``: when it was read,
    an ack or nack of an earlier delivery was unanswered. ``release`` and ``release_ns`` are the row
    and time of the first ack or nack that may settle it, ``settled_ns`` is the time of the first
    ``ok`` to an ack.
    """

    number: int
    index: int
    time: int
    session: int
    since: int
    mark: int
    count: int
    ended: bool
    alive: int
    lapse: int = NEVER
    told: bool = False
    certain: bool = False
    unread: bool = False
    crossed: bool = False
    release: int = NONE
    release_ns: int = NONE
    settled_ns: int = NONE


@dataclass(slots=True)
class _Step:
    """A row of a message.

    ``releases`` is the row from which it may settle a delivery, or ``NONE``.
    """

    kind: int
    index: int
    time: int
    session: int
    number: int
    position: int
    releases: int


class _Look:
    """The deliveries of some messages, each examined together with the others of its message."""

    def __init__(
        self,
        rows: Rows,
        ends: Ends,
        promises: Promises,
        session_facts: SessionFacts | None,
        wait: int | None,
        at: Numbers,
        since: Numbers,
    ) -> None:
        self._rows, self._promises, self._wait = rows, promises, wait
        run, session = rows.run[at], rows.session[at]
        self._ended = ends.sessions.find("ended", run, session) != NONE
        self._alive = (
            np.full(len(at), NONE)
            if session_facts is None
            else session_facts.proven.find("proven", run, session)
        )
        self._since, self._ends = since, ends
        self._numbers = {int(position): n for n, position in enumerate(at.tolist())}
        other_rows = rows.of(*_ASKED, *_ANSWERED, TIMEOUT)
        other_rows = other_rows[marked(rows.id[at], rows.messages)[rows.id[other_rows]]]
        self._at = np.concatenate([at, other_rows])
        self._at = self._at[ordered(rows.id[self._at], rows.index[self._at])]

    def messages(self) -> Sequence[list[_Delivery]]:
        """Return the deliveries of each message."""
        rows, at = self._rows, self._at
        run, transaction = rows.run[at], rows.transaction[at]
        commit_asked, back = (
            self._ends.transactions.find(name, run, transaction) for name in ("asked", "back")
        )
        ends = np.where(
            commit_asked == NONE, back, np.where(back == NONE, commit_asked, np.minimum(commit_asked, back))
        )
        releases = np.where(transaction == NONE, rows.index[at], ends)
        releases = np.where(rows.kind[at] == NACK_INVOKE, rows.index[at], releases)
        starts = np.flatnonzero(np.diff(segments(rows.id[at]), prepend=-1))
        steps = [
            _Step(kind, index, time, session, self._numbers.get(position, -1), position, released)
            for kind, index, time, session, position, released in zip(
                rows.kind[at].tolist(), rows.index[at].tolist(), rows.time[at].tolist(),
                rows.session[at].tolist(), at.tolist(), releases.tolist(), strict=True
            )
        ]  # fmt: skip
        stops = [*starts[1:].tolist(), len(steps)]
        return [self._message(steps[a:b]) for a, b in zip(starts.tolist(), stops, strict=True)]

    def _message(self, steps: Sequence[_Step]) -> list[_Delivery]:
        deliveries: list[_Delivery] = []
        for session in dict.fromkeys(step.session for step in steps if step.kind == DELIVER):
            deliveries += self._session([step for step in steps if step.session == session])
        deliveries.sort(key=lambda delivery: delivery.index)
        for n, delivery in enumerate(deliveries):
            for other in deliveries[:n]:
                delivery.since = max(delivery.since, self._after(delivery, other))
            if delivery.told or delivery.crossed:
                delivery.lapse = NONE
            elif self._wait is not None:
                delivery.lapse = delivery.since + self._wait
        return deliveries

    def _session(self, steps: Sequence[_Step]) -> list[_Delivery]:
        """Return the deliveries of one session; marked are those that rows say were taken back."""
        deliveries: list[_Delivery] = []
        is_asked = False
        open_ = 0
        early: list[bool] = []
        for step in steps:
            if step.kind == DELIVER:
                deliveries.append(self._delivery(step))
                is_asked = False
                deliveries[-1].crossed = open_ > 0
                if early:
                    deliveries[-1].told = deliveries[-1].unread = True
                    deliveries[-1].certain = early.pop(0)
            elif step.kind in _ASKED:
                is_asked = True
                open_ += len(deliveries) > 0
                for delivery in deliveries:
                    if step.releases != NONE and (
                        delivery.release == NONE or step.releases < delivery.release
                    ):
                        delivery.release, delivery.release_ns = step.releases, step.time
            elif step.kind in _ANSWERED:
                open_ = max(open_ - 1, 0)
                for delivery in deliveries:
                    if step.kind == ACK_OK and delivery.settled_ns == NONE:
                        delivery.settled_ns = step.time
            elif not deliveries or deliveries[-1].told:
                early.append(True)
            else:
                deliveries[-1].told, deliveries[-1].certain = True, not is_asked
                early += [False] * is_asked
        return deliveries

    def _delivery(self, step: _Step) -> _Delivery:
        n, row = step.number, np.array([step.position])
        return _Delivery(
            n, step.index, step.time, step.session, int(self._since[n]),
            int(self._rows.redelivered[row][0]), int(self._rows.delivery_count[row][0]),
            bool(self._ended[n]), int(self._alive[n]),
        )  # fmt: skip

    def _after(self, later: _Delivery, other: _Delivery) -> int:
        """Return since when (ns) a delivery can have been sent, by one that was read before."""
        older = is_older((other.mark, other.count), (later.mark, later.count), self._promises)
        least = other.since if older else NONE
        if self._wait is None or other.lapse == NONE or other.ended or other.since == NONE:
            return least
        if not older and later.since + self._wait <= other.time:
            return least  # the delivery may have been sent so long before that it had lapsed
        bound = other.since + self._wait
        if other.release != NONE and other.release < later.index:
            done = other.release_ns if other.settled_ns == NONE else other.settled_ns
            certainly = self._promises.refuses_stale_acks and other.settled_ns != NONE
            bound = done if certainly else min(bound, done)
        if bound <= later.time or other.alive > later.index:
            least = max(least, min(bound, later.time))
        return least


def is_older(first_marks: tuple[int, int], second_marks: tuple[int, int], promises: Promises) -> bool:
    """Return whether marks or counts say that one delivery was sent before another.

    Each delivery is given by its mark as a redelivery and its count, ``NONE`` if not known.
    """
    marks = first_marks[0] == 0 and second_marks[0] == 1 and promises.marks_redeliveries == "always"
    return marks or (NONE < first_marks[1] < second_marks[1])


def taken_back_unread(
    rows: Rows,
    order: Numbers,
    settles: Numbers,
    under_way_after: Numbers,
    timed: Lapses,
    promises: Promises,
    ends: Ends,
) -> Flags:
    """Return the deliveries that may have been taken back unread before their message was settled.

    ``order`` has rows sorted by message, session and index, ``settles`` the index since which each
    of them settles its message. A row says that a delivery was taken back; or the delivery was sent
    so long before that it had lapsed, and so before the one that was settled. A settlement behind
    ``under_way_after`` needs no such excuse, because the delivery may have been under way.
    """
    result = timed.unread_of(order)
    wait = waiting_ns(promises)
    if wait is None:
        return result
    ids, index, time = rows.id[order], rows.index[order], rows.time[order]
    delivering = rows.kind[order] == DELIVER
    marks, counts = rows.redelivered[order], rows.delivery_count[order]
    commit_ns = ends.transactions.find("commit_ns", rows.run[order], rows.transaction[order])
    settles_ns = np.where(rows.transaction[order] == NONE, time, commit_ns)
    since = timed.since_of(order)
    settled = lowest(ids[settles != NONE], settles[settles != NONE], rows.messages)[ids]
    late = delivering & ~result & (settled != NONE) & (settled < index)
    late &= since + wait <= time
    session, asking = rows.session[order], rows.kind[order] == ACK_INVOKE
    for n in np.flatnonzero(late).tolist():
        begin, end = np.searchsorted(ids, (ids[n], ids[n] + 1)).tolist()
        message_rows = np.arange(begin, end)  # the rows of its message

        def may_be_before(ack: int, n: int = n, message_rows: Numbers = message_rows) -> bool:
            same_session = message_rows[session[message_rows] == session[ack]]
            acks_before = same_session[asking[same_session] & (same_session < ack)]
            before = acks_before[-1] if len(acks_before) else ack
            deliveries_before = same_session[delivering[same_session] & (same_session < before)]
            if not len(deliveries_before) or since[n] + wait > settles_ns[ack]:
                return False
            e = deliveries_before[-1]
            return not is_older((marks[e], counts[e]), (marks[n], counts[n]), promises)

        open_ = (
            (settles[message_rows] != NONE)
            & (settles[message_rows] < index[n])
            & (settles[message_rows] <= under_way_after[n])
        )
        acks = message_rows[open_].tolist()
        result[n] = all(map(may_be_before, acks))
    return result
