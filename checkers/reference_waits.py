"""The second implementation of time-outs: how long a session certainly holds a message.

Some brokers take a message back when its acknowledgement is late. They count from the moment at
which they sent it, which no row tells. So the session certainly held the message for the time that
the broker waits, counted from the first moment at which the broker can have sent it. A ``timeout``
row of a client may say, too, that the broker took a message back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History

Row = Mapping[str, Any]

NEVER = 2**62
"""A time (ns) after every moment of a history."""


def answers(rows: Sequence[Row], d: Row) -> list[Row]:
    """Return the invocations of acks and nacks of a message in the session of a delivery of it."""
    invocations = (r for r in rows if r["f"] in ("ack", "nack") and r["type"] == "invoke")
    return [r for r in invocations if r.get("session") == d["session"]]


def releases(history: History, rows: Sequence[Row], d: Row) -> list[int]:
    """Return the rows with which a session asked to settle a delivery that it got.

    Of an ack in a transaction that is the invocation of the transaction's end.
    """
    result: list[int] = []
    for r in answers(rows, d):
        if r["index"] > d["index"]:
            released = _release(history, r)
            result += [] if released is None else [released]
    return result


def _release(history: History, invocation: Row) -> int | None:
    """Return the row from which an ack or nack may settle its message; None if there is none.

    Of an ack in a transaction that is the first invocation of an end of the transaction, otherwise
    the invocation itself.
    """
    if invocation["f"] == "nack" or invocation.get("transaction") is None:
        return int(invocation["index"])
    ends = (history.ended(invocation["transaction"], f, "invoke") for f in ("commit", "abort"))
    return min((index for index in ends if index is not None), default=None)


@dataclass(slots=True)
class TimeOuts:
    """The deliveries of a message to one session, by row, that the broker took back.

    ``certainly``: those that were certainly taken back. ``perhaps``: all that may have been, as a
    ``timeout`` row may mean either of two. ``unread``: those that may have been taken back before
    the client read them. ``crossed``: when the delivery was read, an ack or nack of an earlier one
    was unanswered, which may have settled this one.
    """

    perhaps: set[int]
    certainly: set[int]
    unread: set[int]
    crossed: set[int]


def time_outs(rows: Sequence[Row], session: int) -> TimeOuts:
    """Return the deliveries of a message to a session that its ``timeout`` rows tell of.

    Such a row is about the latest delivery, as the client hears of a time-out later than it
    happens. If that delivery has ended already, the row is about the next one, which the client has
    not read yet.
    """
    result = TimeOuts(set(), set(), set(), set())
    under_way = 0
    latest: int | None = None
    is_asked = False
    early: list[bool] = []
    for r in rows:
        if r.get("session") != session:
            continue
        if r["f"] == "deliver" and r["type"] == "ok":
            latest, is_asked = r["index"], False
            if under_way:
                result.crossed.add(latest)
            if early:
                result.perhaps.add(latest)
                result.unread.add(latest)
                if early.pop(0):
                    result.certainly.add(latest)
        elif r["f"] in ("ack", "nack") and r["type"] == "invoke":
            is_asked = True
            under_way += latest is not None
        elif r["f"] in ("ack", "nack") and r["type"] in ("ok", "fail"):
            under_way = max(under_way - 1, 0)
        elif r["f"] == "timeout":
            if latest is not None and latest not in result.perhaps:
                result.perhaps.add(latest)
                if is_asked:
                    early.append(False)
                else:
                    result.certainly.add(latest)
            else:
                early.append(True)
    return result


def given_since(
    history: History, rows: Sequence[Row], d: Row, options: CheckOptions, *, own_rows_only: bool = False
) -> int:
    """Return the first moment (ns) at which the broker can have sent a delivery.

    By then the message had been sent. The session's subscribe, and every operation that was
    answered earlier on its connection, had been invoked. Every delivery that certainly came first
    had been sent, and no other session held the message any more. ``own_rows_only``: judged
    by the rows of the message only.
    """
    if (d["index"], own_rows_only) in history.given:
        return history.given[d["index"], own_rows_only]
    begins = (history.sent(d), history.session_begin(d["session"]))
    questions = [index for index in begins if index is not None]
    questions += [] if own_rows_only else history.answered_before(d, options)
    since = max((history.time(index) for index in questions if index < d["index"]), default=-NEVER)
    if d.get("time_low") is not None:
        since = max(since, d["time_low"])
    earlier = [r for r in rows if r["f"] == "deliver" and r["type"] == "ok" and r["index"] < d["index"]]
    earlier = [r for r in earlier if r.get("session") is not None]
    for e in earlier:
        since = max(since, _not_before(history, rows, e, d, since, options, own_rows_only=own_rows_only))
    history.given[d["index"], own_rows_only] = since
    return since


def _not_before(
    history: History,
    rows: Sequence[Row],
    e: Row,
    d: Row,
    since: int,
    options: CheckOptions,
    *,
    own_rows_only: bool,
) -> int:
    """Return the first moment (ns) at which ``d`` can have been sent, judged by ``e``, read before.

    ``d`` was sent after ``e`` had lapsed or was settled, unless ``d`` can have been sent so long
    before ``e`` that it had lapsed itself. ``since`` is what is known already of that moment.
    """
    first = given_since(history, rows, e, options, own_rows_only=own_rows_only)
    older = was_first(e, d, options)
    least = first if older else -NEVER
    wait_s = options.broker.ack_wait_s
    lapse = lapses(history, rows, e, options, own_rows_only=own_rows_only)
    if wait_s is None or lapse == -NEVER or first == -NEVER:
        return least
    if history.session_end(e["session"]) is not None:
        return least
    if not older and since + int(wait_s * 1e9) <= e["time"]:
        return least
    settling = min(
        (r for r in answers(rows, e) if r["index"] > e["index"] and _release(history, r) is not None),
        key=lambda r: _release(history, r) or 0,
        default=None,
    )
    if settling is not None and (_release(history, settling) or 0) < d["index"]:
        oks = (r for r in rows if r["f"] == "ack" and r["type"] == "ok" and r["index"] > e["index"])
        settled = next((r["time"] for r in oks if r.get("session") == e["session"]), None)
        done = settling["time"] if settled is None else settled
        in_time = options.broker.refuses_stale_acks and settled is not None
        lapse = done if in_time else min(lapse, done)
    if lapse <= d["time"] or (not own_rows_only and history.proven(e["session"]) > d["index"]):
        least = max(least, min(lapse, d["time"]))
    return least


def was_first(e: Row, d: Row, options: CheckOptions) -> bool:
    """Return whether the redelivery marks or counts say that ``e`` was sent before ``d``."""
    marks = e.get("redelivered") is False and d.get("redelivered") is True
    count, other = e.get("delivery_count"), d.get("delivery_count")
    counted = count is not None and other is not None and count < other
    return counted or (marks and options.broker.marks_redeliveries == "always")


def lapses(
    history: History, rows: Sequence[Row], d: Row, options: CheckOptions, *, own_rows_only: bool = False
) -> int:
    """Return until when (ns) a session certainly held a delivery, as far as time-outs tell.

    ``NEVER`` means that no time-out ended it, ``-NEVER`` that it is not certain at any time.
    ``own_rows_only``: judged by the rows of the message only.
    """
    timeouts = time_outs(rows, d["session"])
    timed = options.broker.ack_wait_s is not None or any(r["f"] == "timeout" for r in rows)
    if d["index"] in timeouts.perhaps or (timed and d["index"] in timeouts.crossed):
        return -NEVER
    if options.broker.ack_wait_s is None:
        return NEVER
    return given_since(history, rows, d, options, own_rows_only=own_rows_only) + int(
        options.broker.ack_wait_s * 1e9
    )


def has_lapsed(
    history: History,
    rows: Sequence[Row],
    d: Row,
    at: Row,
    options: CheckOptions,
    *,
    own_rows_only: bool = False,
) -> bool:
    """Return whether the broker may have taken a delivery back by the time of a row."""
    return bool(lapses(history, rows, d, options, own_rows_only=own_rows_only) <= at["time"])


def may_have_been_taken_back(
    history: History, rows: Sequence[Row], d: Row, ack: Row, settled: int, options: CheckOptions
) -> bool:
    """Return whether the broker may have taken ``d`` back, unread, before its message was settled.

    A ``timeout`` row says so; or ``d`` can have been sent long enough before row ``settled``, and
    so before the delivery that ``ack`` settled.
    """
    if d["index"] in time_outs(rows, d["session"]).unread:
        return True
    e = latest_delivery(rows, ack)
    if options.broker.ack_wait_s is None or e is None:
        return False
    if was_first(e, d, options):
        return False
    wait_ns = int(options.broker.ack_wait_s * 1e9)
    return given_since(history, rows, d, options) + wait_ns <= history.time(settled)


def latest_delivery(rows: Sequence[Row], ack: Row) -> Row | None:
    """Return the delivery that an ack settled: the latest in its session before its invocation."""
    acks = [r for r in answers(rows, ack) if r["f"] == "ack" and r["index"] <= ack["index"]]
    since = acks[-1]["index"] if acks else ack["index"]
    got = [r for r in rows if r["f"] == "deliver" and r["type"] == "ok" and r["index"] < since]
    return next((r for r in reversed(got) if r.get("session") == ack["session"]), None)


def certainly_taken_back(rows: Sequence[Row], d: Row, until: int, options: CheckOptions) -> bool:
    """Return whether the broker certainly took a delivery back before a moment (ns)."""
    if d["index"] in time_outs(rows, d["session"]).certainly:
        return True
    wait_s = options.broker.ack_wait_s
    return wait_s is not None and bool(d["time"] + int(wait_s * 1e9) <= until)


def refused_late(rows: Sequence[Row], previous: Row, options: CheckOptions) -> bool:
    """Return whether a nack of an earlier delivery may have refused ``previous`` after a time-out.

    The nack was invoked before ``previous`` was read, and not answered by then. What a session
    refuses before it has got the message at all refuses nothing.
    """
    if options.broker.ack_wait_s is None and not any(r["f"] == "timeout" for r in rows):
        return False
    unanswered, has_message = 0, False
    for r in rows:
        if r.get("session") != previous["session"] or r["index"] >= previous["index"]:
            continue
        if r["f"] == "deliver":
            has_message = True
        elif r["f"] == "nack" and r["type"] == "invoke":
            unanswered += has_message
        elif r["f"] == "nack":
            unanswered = max(unanswered - 1, 0)
    return unanswered > 0


def is_late(
    history: History, rows: Sequence[Row], ack: Row, options: CheckOptions, *, own_rows_only: bool = False
) -> bool:
    """Return whether an ack that was answered ``ok`` may have come too late to settle anything.

    Where stale acks are refused, the answer ``ok`` proves that it did not.

    ``own_rows_only``: judged by the rows of the message only. What is owed at the end is judged in
    this way, because little depends on it: a message that was perhaps settled and is in a store is
    found either way.
    """
    if options.broker.refuses_stale_acks:
        return False
    settled = latest_delivery(rows, ack)
    return settled is not None and has_lapsed(
        history, rows, settled, ack, options, own_rows_only=own_rows_only
    )
