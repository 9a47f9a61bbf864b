"""Unavailable, starved, not-recovered from their definitions; see ``checkers.reference``."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.instance import Instance
from checkers.reference_asked import expires, is_delayed
from checkers.reference_attempts import of_one_node
from checkers.reference_subscriptions import matches, selector
from checkers.verdict import CheckOptions

if TYPE_CHECKING:
    from checkers.reference import History, PlainMessage

Row = Mapping[str, Any]
_OPERATIONS = ("send", "ack", "nack")


@dataclass(frozen=True, slots=True)
class Unavailability:
    """A window without success of ``key``: its first question, its begin and end (ns).

    ``brokers`` are those that the operations of the key went to.
    """

    key: str
    index: int
    begin: int
    end: int
    brokers: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlainHunger:
    """A session held nothing and got nothing, and a message waited for it.

    Since row ``ok`` until row ``index``, that is from ``begin`` to ``end`` (ns).
    """

    session: int
    message: PlainMessage
    ok: int
    index: int
    begin: int
    end: int
    brokers: frozenset[str]


def liveness(history: History, options: CheckOptions) -> Iterator[Instance]:
    """The liveness rules."""
    rows = history.rows
    for one in unavailabilities(rows, options):
        yield Instance("unavailable", None, None, None, one.index, one.key)
    for hunger in hungers(history, options):
        yield hunger.message.instance("starved", hunger.index, f"session {hunger.session}")
    yield from _not_recovered(rows, options)


def _keys(r: Row) -> Iterator[str]:
    yield f"operation {r['f']}"
    if r.get("queue") is not None:
        yield f'queue "{r["queue"]}", {r["f"]}'
        if r.get("group") is not None:
            yield f'group "{r["group"]}" of queue "{r["queue"]}", {r["f"]}'
    if r["f"] == "send" and r.get("producer") is not None:
        yield f"client producer {r['producer']}"
    if r["f"] == "send" and r.get("broker") is not None:
        yield f"broker {r['broker']}"


def judged(rows: Sequence[Row], options: CheckOptions) -> list[Row]:
    """Return the questions of clients to brokers, and their answers.

    A refusal that says that an acknowledgement came too late is right: it goes, with its question.
    """
    mine = [r for r in rows if r["f"] in _OPERATIONS and r["process"] >= 0 and r.get("queue") is not None]
    if options.broker.ack_wait_s is None and not any(r["f"] == "timeout" for r in rows):
        return mine
    late = [r for r in mine if _is_refused_late(rows, r, options)]
    gone = {r["index"] for r in late} | {q["index"] for r in late for q in [_question_of(mine, r)] if q}
    return [r for r in mine if r["index"] not in gone]


def _is_refused_late(rows: Sequence[Row], answer: Row, options: CheckOptions) -> bool:
    """Return whether an answer refuses what the broker may have taken back by then."""
    session = answer.get("session")
    if answer["f"] == "send" or answer["type"] != "fail" or session is None:
        return False
    about = [r for r in rows if _place(r) == _place(answer)]
    if any(r["f"] == "timeout" and r.get("session") == session for r in about):
        return True
    asked = (r for r in rows if r["f"] == "subscribe" and r["type"] == "invoke")
    begun = next((r["time"] for r in asked if r.get("session") == session), None)
    sent = next((r["time"] for r in about if r["f"] == "send" and r["type"] == "invoke"), None)
    known = [time for time in (begun, sent) if time is not None]
    wait_s = options.broker.ack_wait_s
    return wait_s is not None and bool(known) and bool(max(known) + int(wait_s * 1e9) <= answer["time"])


def _place(r: Row) -> tuple[Any, ...]:
    return r.get("queue"), r.get("group"), r.get("message")


def _question_of(rows: Sequence[Row], answer: Row) -> Row | None:
    """The latest before it that its process asked about the message."""
    asked = (r for r in rows if r["type"] == "invoke" and r["index"] < answer["index"])
    return next(
        (
            r
            for r in reversed(list(asked))
            if (r["process"], r["f"], *_place(r)) == (answer["process"], answer["f"], *_place(answer))
        ),
        None,
    )


def unavailabilities(rows: Sequence[Row], options: CheckOptions) -> Iterator[Unavailability]:
    """From the first question after an ``ok`` to the last completion before the next that is not.

    Longer than the bound, and three questions at least.

    For a broker the questions are the completions that name it and are not ``ok``: an invocation
    does not know its broker.
    """
    bound_ns = int(options.unavailable_bound_s * 1e9)
    by_key: dict[str, list[Row]] = defaultdict(list)
    for r in judged(rows, options):
        for key in _keys(r):
            by_key[key].append(r)
    for key, mine in by_key.items():
        windows: list[list[Row]] = [[]]
        for r in mine:
            if r["type"] == "ok":
                windows.append([])
            else:
                windows[-1].append(r)
        for window in windows:
            found = _window(key, window, mine, bound_ns)
            if found is not None:
                yield found


def _brokers(key: str, rows: Sequence[Row], begin: Row, end: Row) -> frozenset[str]:
    """Return the brokers that the rows of a key name; of a client only those around the window."""
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
    """What lies between two ``ok``, or before the first, or after the last."""
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
    """Each time that a session was starved.

    For longer than the bound between two rows of a session that held nothing, while a message in
    its reach waited.
    """
    bound_ns = int(options.unavailable_bound_s * 1e9)
    by_session: dict[int, list[Row]] = defaultdict(list)
    for r in history.rows:
        if r["process"] >= 0 and r.get("session") is not None and _is_active(r):
            by_session[r["session"]].append(r)
    messages: list[PlainMessage] | None = None
    for session, mine in by_session.items():
        joined = next((r for r in mine if r["f"] == "subscribe"), None)
        if joined is None or joined.get("queue") is None or joined.get("broker") is None:
            continue
        ended = history.session_end(session)
        for after, before in itertools.pairwise(mine):
            if before["time"] - after["time"] <= bound_ns or after["index"] < joined["index"]:
                continue
            if (ended is not None and ended <= after["index"]) or _held(mine, after) != 0:
                continue
            messages = history.all_messages if messages is None else messages
            waiting = [
                (ok, m)
                for m in messages
                for ok in [_waits(history, m, joined, before)]
                if ok is not None and before["time"] - max(ok["time"], after["time"]) > bound_ns
                if m.group is None or not _is_anothers(history, m, session, after, before)
                if matches(selector(history, session), m)
            ]
            if waiting:
                ok, m = min(waiting, key=lambda one: int(one[0]["index"]))
                begin = max(ok["time"], after["time"])
                brokers = frozenset({joined["broker"]})
                yield PlainHunger(session, m, ok["index"], before["index"], begin, before["time"], brokers)


def _is_active(r: Row) -> bool:
    return (
        r["f"] in ("deliver", "ack", "nack", "disconnect")
        or (r["f"] == "unsubscribe" and r["type"] == "invoke")
        or (r["f"] == "subscribe" and r["type"] == "ok")
    )


def _held(mine: Sequence[Row], after: Row) -> int:
    """How many deliveries of the session had not been answered."""
    known = [r for r in mine if r["index"] <= after["index"] and r.get("queue") is not None]
    got = sum(r["f"] == "deliver" and r["type"] == "ok" for r in known)
    done = [
        r for r in known if r["f"] in ("ack", "nack") and r["type"] == "ok" and r.get("transaction") is None
    ]
    return int(got) - len(done)


def _waits(history: History, m: PlainMessage, joined: Row, before: Row) -> Row | None:
    """The ``ok`` of a message that waited, until that row at least, where the session was."""
    ok = next((r for r in m.rows if r["f"] == "send" and r["type"] == "ok"), None)
    kept = [r for r in m.stored if r.get("value") == "main"]
    last = m.deliveries[:1] or kept[:1]
    if m.queue != joined["queue"] or m.transaction is not None or ok is None or not last:
        return None
    if expires(m) is not None or is_delayed(m):
        return None
    if m.deliveries and m.deliveries[0]["index"] < before["index"]:
        return None
    if any(r.get("redelivered") or (r.get("delivery_count") or 0) > 1 for r in m.deliveries[:1]):
        return None  # it may have been in somebody's hands
    brokers = [ok.get("broker"), last[0].get("broker"), joined["broker"]]
    near = None not in brokers and all(of_one_node(history, brokers[0], broker) for broker in brokers[1:])
    return ok if near else None


def _is_anothers(history: History, m: PlainMessage, session: int, after: Row, before: Row) -> bool:
    """Whether another session that was there meanwhile had got any of its group."""
    first: dict[int, int] = {}
    for (queue, group, _), rows in history.messages.items():
        if (queue, group) == (m.queue, m.group):
            for r in rows:
                if r["f"] == "deliver" and r["type"] == "ok" and r.get("session") is not None:
                    first[r["session"]] = min(r["index"], first.get(r["session"], r["index"]))
    for other, since in first.items():
        over = history.over(other)
        there = over is None or max(over, since) > after["index"]
        if other != session and since < before["index"] and there:
            return True
    return False


def _not_recovered(rows: Sequence[Row], options: CheckOptions) -> Iterator[Instance]:
    """The harness said so; or after heal and bound operations still end, none of them ``ok``.

    Nor was anything ``ok`` since the last of them was asked, which is told, or within the bound
    before the last of them ended.
    """
    heals = [r for r in rows if r["f"] == "phase" and r.get("value") == "heal"]
    said = [r for r in rows if r["f"] == "phase" and r.get("value") == "not-recovered"]
    if said:
        yield Instance("not-recovered", None, None, None, said[0]["index"])
        return
    if not heals:
        return
    bound_ns = int(options.recovery_bound_s * 1e9)
    since = heals[0]["time"] + bound_ns
    mine = judged(rows, options)
    oks = [r for r in mine if r["type"] == "ok"]
    failed = [r for r in mine if r["type"] in ("fail", "info") and r["time"] > since]
    if not failed or any(r["time"] > since for r in oks):
        return
    if oks and max(r["time"] for r in failed) <= oks[-1]["time"] + bound_ns:
        return
    asked = [(q["index"], r) for r in failed for q in [_question_of(mine, r)] if q is not None]
    if asked:
        question, last = max(asked, key=lambda one: int(one[0]))
        if all(r["index"] < question for r in oks):
            yield Instance("not-recovered", None, None, None, last["index"])
