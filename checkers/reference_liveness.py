"""The second implementation of ``unavailable``, ``starved`` and ``not-recovered``.

It follows the definitions as loops; see ``checkers.reference``.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import expires, is_delayed
from checkers.reference_attempts import of_one_node
from checkers.reference_subscriptions import matches, selectors_of
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]
_OPERATIONS = ("send", "ack", "nack")


@dataclass(frozen=True, slots=True)
class Unavailability:
    """A window in which no operation of ``key`` succeeded, from ``begin`` to ``end`` (ns).

    ``index`` is the row of its first invocation; ``brokers`` are those that the operations of the
    key went to.
    """

    key: str
    index: int
    begin: int
    end: int
    brokers: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlainHunger:
    """A window in which a session held nothing and got nothing though a message waited for it.

    The window is from ``begin`` to ``end`` (ns). ``ok`` is the row in which the send of the message
    was answered, ``index`` the session's next row. ``brokers`` has the broker of the session.
    """

    session: int
    message: PlainMessage
    ok: int
    index: int
    begin: int
    end: int
    brokers: frozenset[str]


def liveness(history: History, options: CheckOptions) -> Iterator[Instance]:
    """Find ``unavailable``, ``starved`` and ``not-recovered``."""
    rows = history.rows
    for window in unavailabilities(rows, options):
        yield Instance("unavailable", None, None, None, window.index, window.key)
    for hunger in hungers(history, options):
        yield hunger.message.instance("starved", hunger.index, f"session {hunger.session}")
    yield from _not_recovered(rows, options)


def _keys(r: Row) -> Sequence[str]:
    return _keys_of(r["f"], r.get("queue"), r.get("group"), r.get("producer"), r.get("broker"))


@functools.lru_cache
def _keys_of(
    f: str, queue: str | None, group: str | None, producer: int | None, broker: str | None
) -> Sequence[str]:
    """Return the names of all that an operation is counted for."""
    keys = [f"operation {f}"]
    if queue is not None:
        keys.append(f'queue "{queue}", {f}')
        if group is not None:
            keys.append(f'group "{group}" of queue "{queue}", {f}')
    if f == "send" and producer is not None:
        keys.append(f"client producer {producer}")
    if f == "send" and broker is not None:
        keys.append(f"broker {broker}")
    return keys


def judged(rows: Sequence[Row], options: CheckOptions) -> list[Row]:
    """Return the sends, acks and nacks of clients, with their answers.

    A broker rightly refuses an acknowledgement that came too late; the invocation and the answer of
    such a one are left out.
    """
    operations = [
        r for r in rows if r["f"] in _OPERATIONS and r["process"] >= 0 and r.get("queue") is not None
    ]
    if options.broker.ack_wait_s is None and not any(r["f"] == "timeout" for r in rows):
        return operations
    late = [r for r in operations if _is_refused_late(rows, r, options)]
    left_out = {r["index"] for r in late} | {
        q["index"] for r in late for q in [_question_of(operations, r)] if q
    }
    return [r for r in operations if r["index"] not in left_out]


def _is_refused_late(rows: Sequence[Row], answer: Row, options: CheckOptions) -> bool:
    """Return whether an answer refuses an ack or nack that may have come too late.

    By then the broker may have taken the message back.
    """
    session = answer.get("session")
    if answer["f"] == "send" or answer["type"] != "fail" or session is None:
        return False
    about = [r for r in rows if _place(r) == _place(answer)]
    if any(r["f"] == "timeout" and r.get("session") == session for r in about):
        return True
    subscribes = (r for r in rows if r["f"] == "subscribe" and r["type"] == "invoke")
    begun = next((r["time"] for r in subscribes if r.get("session") == session), None)
    sent = next((r["time"] for r in about if r["f"] == "send" and r["type"] == "invoke"), None)
    moments = [time for time in (begun, sent) if time is not None]
    wait_s = options.broker.ack_wait_s
    return wait_s is not None and bool(moments) and bool(max(moments) + int(wait_s * 1e9) <= answer["time"])


def _place(r: Row) -> tuple[Any, ...]:
    return r.get("queue"), r.get("group"), r.get("message")


def _question_of(rows: Sequence[Row], answer: Row) -> Row | None:
    """Return the latest invocation, before an answer, of the same operation by the same process.

    It must be about the same message. Return None if there is none.
    """
    invocations = (r for r in rows if r["type"] == "invoke" and r["index"] < answer["index"])
    return next(
        (
            r
            for r in reversed(list(invocations))
            if (r["process"], r["f"], *_place(r)) == (answer["process"], answer["f"], *_place(answer))
        ),
        None,
    )


def unavailabilities(rows: Sequence[Row], options: CheckOptions) -> Iterator[Unavailability]:
    """Find the windows in which operations were asked for and none succeeded.

    A window lasts from the first invocation after an ``ok`` to the last unsuccessful completion
    before the next ``ok``. It must be longer than the bound and have at least three invocations.

    For the key of a broker, the completions that name the broker and are not ``ok`` count as
    invocations, because an invocation does not name its broker.
    """
    bound_ns = int(options.unavailable_bound_s * 1e9)
    by_key: dict[str, list[Row]] = defaultdict(list)
    for r in judged(rows, options):
        for key in _keys(r):
            by_key[key].append(r)
    for key, key_rows in by_key.items():
        windows: list[list[Row]] = [[]]
        for r in key_rows:
            if r["type"] != "ok":
                windows[-1].append(r)
            elif windows[-1]:
                windows.append([])
        for window in windows:
            unavailability = _window(key, window, key_rows, bound_ns)
            if unavailability is not None:
                yield unavailability


def _brokers(key: str, rows: Sequence[Row], begin: Row, end: Row) -> frozenset[str]:
    """Return the brokers that the rows of a key name.

    For the key of a client these are the brokers named in the window, and the last before it and
    the first after it.
    """
    named = [r for r in rows if r.get("broker") is not None]
    if key.startswith("client"):
        oks = [r["index"] for r in rows if r["type"] == "ok"]
        low = max((index for index in oks if index < begin["index"]), default=-1)
        high = min((index for index in oks if index > end["index"]), default=rows[-1]["index"] + 1)
        before = [r for r in named if r["index"] <= low][-1:]
        after = [r for r in named if r["index"] >= high][:1]
        named = [*before, *(r for r in named if low < r["index"] < high), *after]
    return frozenset(r["broker"] for r in named)


def _window(key: str, rows: Sequence[Row], every: Sequence[Row], bound_ns: int) -> Unavailability | None:
    """Return the window of unavailability among the rows of a key without ``ok``, if it is one.

    ``rows`` lie between two ``ok`` rows, before the first or after the last; ``every`` are all rows
    of the key.
    """
    if len(rows) < 3:
        return None
    asks = ("fail", "info") if key.startswith("broker") else ("invoke",)
    questions = [r for r in rows if r["type"] in asks]
    failed = [r for r in rows if r["type"] in ("fail", "info")]
    if not questions or not failed:
        return None
    begin, end = questions[0], failed[-1]
    attempts = [r for r in questions if r["index"] <= end["index"]]
    if len(attempts) < 3 or end["time"] - begin["time"] <= bound_ns:
        return None
    brokers = _brokers(key, every, begin, end)
    return Unavailability(key, begin["index"], begin["time"], end["time"], brokers)


def hungers(history: History, options: CheckOptions) -> Iterator[PlainHunger]:
    """Find the windows in which a session was starved.

    A session is starved if it held nothing between two of its rows for longer than the bound, while
    a message in its reach waited.
    """
    bound_ns = int(options.unavailable_bound_s * 1e9)
    by_session: dict[int, list[Row]] = defaultdict(list)
    for r in history.rows:
        if r["process"] >= 0 and r.get("session") is not None and _is_active(r):
            by_session[r["session"]].append(r)
    messages: list[PlainMessage] | None = None
    for session, session_rows in by_session.items():
        joined = next((r for r in session_rows if r["f"] == "subscribe"), None)
        if joined is None or joined.get("queue") is None or joined.get("broker") is None:
            continue
        ended = history.session_end(session)
        selectors = selectors_of(history, session, joined["queue"])
        for after, before in itertools.pairwise(session_rows):
            if before["time"] - after["time"] <= bound_ns or after["index"] < joined["index"]:
                continue
            if (ended is not None and ended <= after["index"]) or _unsettled(session_rows, after) != 0:
                continue
            messages = history.all_messages if messages is None else messages
            waiting = [
                (ok, m)
                for m in messages
                for ok in [_waits(history, m, joined, before)]
                if ok is not None and before["time"] - max(ok["time"], after["time"]) > bound_ns
                if m.group is None or not _is_anothers(history, m, session, after, before)
                if len(selectors) <= 1 and all(matches(selector, m) for selector in selectors)
            ]
            if waiting:
                ok, m = min(waiting, key=lambda pair: int(pair[0]["index"]))
                begin = max(ok["time"], after["time"])
                brokers = frozenset({joined["broker"]})
                yield PlainHunger(session, m, ok["index"], before["index"], begin, before["time"], brokers)


def _is_active(r: Row) -> bool:
    return (
        r["f"] in ("deliver", "ack", "nack", "disconnect")
        or (r["f"] == "unsubscribe" and r["type"] == "invoke")
        or (r["f"] == "subscribe" and r["type"] == "ok")
    )


def _unsettled(session_rows: Sequence[Row], after: Row) -> int:
    """Return how many deliveries of a session were not settled by row ``after``.

    Settled means acknowledged or refused with ``ok`` outside of transactions.
    """
    counted = [r for r in session_rows if r["index"] <= after["index"] and r.get("queue") is not None]
    got = sum(r["f"] == "deliver" and r["type"] == "ok" for r in counted)
    done = [
        r for r in counted if r["f"] in ("ack", "nack") and r["type"] == "ok" and r.get("transaction") is None
    ]
    return int(got) - len(done)


def _waits(history: History, m: PlainMessage, joined: Row, before: Row) -> Row | None:
    """Return the ``ok`` of a send whose message waited for a session at least until row ``before``.

    ``joined`` is the row that began the session. The message must have waited in the session's
    queue on a broker of the session's node. Return None if it did not, or if that is not certain.
    """
    ok = next((r for r in m.rows if r["f"] == "send" and r["type"] == "ok"), None)
    in_store = [r for r in m.stored if r.get("value") == "main"]
    last = m.deliveries[:1] or in_store[:1]
    if m.queue != joined["queue"] or m.transaction is not None or ok is None or not last:
        return None
    if expires(m) is not None or is_delayed(m):
        return None
    if m.deliveries and m.deliveries[0]["index"] < before["index"]:
        return None
    if any(r.get("redelivered") or (r.get("delivery_count") or 0) > 1 for r in m.deliveries[:1]):
        return None  # another session may have held it
    brokers = [ok.get("broker"), last[0].get("broker"), joined["broker"]]
    near = None not in brokers and all(of_one_node(history, brokers[0], broker) for broker in brokers[1:])
    return ok if near else None


def _is_anothers(history: History, m: PlainMessage, session: int, after: Row, before: Row) -> bool:
    """Return whether another session, which was there in the window, had got messages of a group.

    The group is that of ``m``; the window lasts from row ``after`` to row ``before``.
    """
    first: dict[int, int] = {}
    for (queue, group, _), rows in history.messages.items():
        if (queue, group) == (m.queue, m.group):
            for r in rows:
                if r["f"] == "deliver" and r["type"] == "ok" and r.get("session") is not None:
                    first[r["session"]] = min(r["index"], first.get(r["session"], r["index"]))
    for other, since in first.items():
        over = history.over(other)
        is_there = over is None or max(over, since) > after["index"]
        if other != session and since < before["index"] and is_there:
            return True
    return False


def _not_recovered(rows: Sequence[Row], options: CheckOptions) -> Iterator[Instance]:
    """Find whether operations did not succeed again after everything was healed.

    The harness said so; or operations failed after the heal and the recovery bound, and none was
    ``ok``. In the second case nothing may have been ``ok`` since the latest of these was invoked,
    nor within the bound before the last of them ended. The instance names the completion of the
    latest invoked one.
    """
    heals = [r for r in rows if r["f"] == "phase" and r.get("value") == "heal"]
    admissions = [r for r in rows if r["f"] == "phase" and r.get("value") == "not-recovered"]
    if admissions:
        yield Instance("not-recovered", None, None, None, admissions[0]["index"])
        return
    if not heals:
        return
    bound_ns = int(options.recovery_bound_s * 1e9)
    since = heals[0]["time"] + bound_ns
    operations = judged(rows, options)
    oks = [r for r in operations if r["type"] == "ok"]
    failed = [r for r in operations if r["type"] in ("fail", "info") and r["time"] > since]
    if not failed or any(r["time"] > since for r in oks):
        return
    if oks and max(r["time"] for r in failed) <= oks[-1]["time"] + bound_ns:
        return
    pairs = [(q["index"], r) for r in failed for q in [_question_of(operations, r)] if q is not None]
    if pairs:
        question, last = max(pairs, key=lambda pair: int(pair[0]))
        if all(r["index"] < question for r in oks):
            yield Instance("not-recovered", None, None, None, last["index"])
