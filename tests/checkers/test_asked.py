"""What a message asked for: expiry, delays; and what became of it when it was refused too often.

For each finding a history that has it, and one as near as can be that has not; columns and
reference must both say so. The names of the cases are what they prove.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from checker_rows import BROWSED, BROWSING, MS, Row, S, agreed, finished, o, table
from test_fates import joined, left, read
from test_findings import OPTIONS, answer, deliver, gone, kept, role, send, tidy

from checkers import reference, words
from checkers.asked import Asked, amount_of, asked_by, closes, priority_of, properties_of, selector_of
from checkers.rows import PlaceTable, from_table
from checkers.verdict import Promises

DONE = finished(90)
DONE_LATER = [*DONE[:3], *(dict(row, time=6 * S) for row in DONE[3:])]
"""A drain of nearly six seconds."""
LATE = 10**6
"""A moment (ms) after every history."""


def asking(at: int, message: int, outcome: str = "ok", **spans: object) -> list[Row]:
    """A send; spans are in milliseconds, which is a row each."""
    told = {
        name: [None if end is None else end * MS for end in span] if isinstance(span, tuple) else span
        for name, span in spans.items()
    }
    return send(at, message, outcome, value=json.dumps(told))


def clock(at: int, f: str) -> list[Row]:
    value = json.dumps({"label": "x", "shape": "s", "bit": True})
    return [o(at, -1, "invoke", f, value=value), o(at + 1, -1, "info", f, value=value)]


def wrong(
    at: int,
    *nodes: str,
    kind: str = "clock-skew",
    error: str | None = None,
    label: str = "x",
    **told: object,
) -> list[Row]:
    """The rows of a fault of some nodes' clocks, or of their healing; ``told`` is what was seen."""
    about = {"label": label, "links": [], "nodes": list(nodes), "shape": None}
    said = json.dumps({**about, "bit": True, **told})
    return [
        o(at, -1, "invoke", kind, value=json.dumps(about)),
        o(at + 1, -1, "info", kind, value=said, error=error),
    ]


def subscribed(at: int, broker: str, queue: str) -> list[Row]:
    """A consumer of a queue at a broker."""
    return [
        o(at, 19, "invoke", "subscribe", session=9, queue=queue),
        o(at + 1, 19, "ok", "subscribe", session=9, queue=queue, broker=broker),
    ]


def nack(at: int, session: int = 1, outcome: str = "ok") -> list[Row]:
    return answer(at, 1, session, outcome, "nack")


EXPIRING = asking(2, 1, expires=(19, 20))
FRESH = [*joined(0, 1), *EXPIRING]
DELAYED = [*joined(0, 1), *asking(2, 1, delay=(19, 20))]
LATER = asking(12, 1, expires=(19, 20))
"""It expires, and was sent when there was time for other rows before."""
READ = [*joined(21, 1), *deliver(22, 1)]
"""The first of them, which has expired."""
PAIRS = [
    row
    for at, broker in enumerate(("a1", "a2", "b1", "b2"))
    for row in role(at, broker, "backup", 0, 0, f"node-{broker[0]}")
]
BROKERS = [*PAIRS, *LATER]
LASTING = [*PAIRS, *asking(12, 1, expires=(LATE, LATE)), *DONE]
"""It cannot have expired by a right clock, and is nowhere."""
OTHER = [*send(4, 2, group="h"), *deliver(6, 2, group="h")]
"""A message of another group, for the session to answer."""
OTHERS = [*send(4, 2, group="h"), *deliver(6, 2, 2, group="h")]
"""For another session to answer."""
AGAIN = {"redelivered": True}
OVERTAKEN = {"reordered", "reordered-realtime", "not-linearizable"}
ONCE = [*send(0, 1), *deliver(5, 1), *nack(6)]
TWICE = [*ONCE, *deliver(8, 1, **AGAIN), *nack(9)]
SLOW = Promises(redelivery_s=5.0)
TWO = Promises(delivery_attempts=2, most_attempts=2)

KEEPS = Promises(keeps_expired=True)
ALICE = {"queue": "/topic/t", "subscription": "alice"}
SUBSCRIBED = [
    o(0, 11, "invoke", "subscribe", session=1, **ALICE),
    o(1, 11, "ok", "subscribe", session=1, broker="a1", **ALICE),
]
PUBLISHED = [*SUBSCRIBED, *(dict(row, queue="/topic/t") for row in EXPIRING)]
DROPPED = [o(30, 12, "invoke", "drop", **ALICE), o(31, 12, "ok", "drop", broker="a1", **ALICE)]

READ_LATE = [*joined(0, 1), *send(2, 1), *send(4, 2), *joined(16, 2), *deliver(21, 2, 2), *deliver(23, 1)]
"""The first of two messages of a group was read by one session after the second by another."""


def dying(attempts: int, **promises: float) -> Promises:
    """What is given back so often dies, whyever."""
    return Promises(delivery_attempts=attempts, attempts="given back", **promises)


CASES: dict[str, tuple[list[Row], Promises, set[str]]] = {
    # --------------------------------------------------------------------- expired, and nowhere
    "what had expired before the drain must be where its broker keeps that": (
        [*EXPIRING, *DONE], KEEPS, {"lost"}),
    "what had expired is nowhere where its broker drops that": ([*EXPIRING, *DONE], Promises(), set()),
    "what had expired is kept": ([*EXPIRING, *kept(80, 1, "expired"), *DONE], KEEPS, set()),
    "what was given back before it expired must be kept": (
        [*EXPIRING, *deliver(5, 1), *gone(8, 1), *DONE], KEEPS, {"lost"}),
    "what had expired in the hands of a session that did not end may be there": (
        [*EXPIRING, *deliver(5, 1), *DONE], KEEPS, set()),
    "what was acknowledged before it expired is settled": (
        [*EXPIRING, *deliver(5, 1), *answer(6, 1), *DONE], KEEPS, set()),
    "what may have been acknowledged before it expired is not owed": (
        [*EXPIRING, *deliver(5, 1), *answer(6, 1, outcome="info"), *gone(8, 1), *DONE], KEEPS, set()),
    "what may have been sent is not owed, expired or not": (
        [*asking(2, 1, "info", expires=(19, 20)), *DONE], KEEPS, set()),
    "what may not have expired before the drain may be on its way": (
        [*asking(2, 1, expires=(19, 95)), *DONE], KEEPS, set()),
    "what expired at a moment that nobody knows may have expired in the drain": (
        [*asking(2, 1, expires=(19, None)), *DONE], KEEPS, set()),
    "what expired by a wrong clock expired nobody knows when": (
        [*EXPIRING, *clock(5, "clock-skew"), *DONE], KEEPS, set()),
    "what had expired is not missed where its store was not read": (
        [*EXPIRING, *DONE[:4], DONE[-1]], KEEPS, set()),
    "what had expired and may have died is not missed where its broker drops the dead": (
        [*EXPIRING, *deliver(5, 1), *nack(6), *DONE],
        Promises(keeps_expired=True, delivery_attempts=1, keeps_dead_letters=False), set()),
    "what had expired and may have died must be in one of the stores": (
        [*EXPIRING, *deliver(5, 1), *nack(6), *DONE],
        Promises(keeps_expired=True, delivery_attempts=1), {"lost"}),
    "what had expired in a subscription must be kept": ([*PUBLISHED, *DONE], KEEPS, {"lost"}),
    "what had expired in a subscription that was dropped went with it": (
        [*PUBLISHED, *DROPPED, *DONE], KEEPS, set()),
    "what had expired among the dead letters is there": (
        [*EXPIRING, *deliver(5, 1), *nack(6), *kept(80, 1, "dead-letter"), *DONE],
        Promises(keeps_expired=True, delivery_attempts=1), set()),
    # ------------------------------------------------------------------------------------- expiry
    "what is given to a session that was asked for after it had expired is expired": (
        [*EXPIRING, *joined(21, 1), *deliver(22, 1)], Promises(), {"expired-delivery"}),
    "what was asked for when it had expired is late": (
        [*FRESH, *deliver(30, 1, time_low=22 * MS)], Promises(), {"expired-delivery"}),
    "what was asked for when it had expired is late, whatever the order of answers": (
        [*FRESH, *deliver(30, 1, time_low=22 * MS)], Promises(answers_in_order=False), {"expired-delivery"}),
    "what was asked for in time may have been sent in time, whatever the order of answers": (
        [*FRESH, *deliver(30, 1, time_low=19 * MS)], Promises(answers_in_order=False), set()),
    "what is read late may have been sent in time": ([*FRESH, *deliver(30, 1)], Promises(), set()),
    "what is read in time is in time": ([*EXPIRING, *joined(5, 1), *deliver(20, 1)], Promises(), set()),
    "what is read behind an answer to a question that was asked after it had expired is expired": (
        [*FRESH, *OTHER, *answer(21, 2, group="h"), *deliver(23, 1)], Promises(),
        {"expired-delivery"}),
    "a question that was asked before says nothing": (
        [*FRESH, *OTHER, answer(20, 2, group="h")[0], answer(21, 2, group="h")[1], *deliver(23, 1)],
        Promises(), set()),
    "a question that was answered after it had been read says nothing": (
        [*FRESH, *OTHER, answer(21, 2, group="h")[0], *deliver(22, 1), answer(22, 2, group="h")[1]],
        Promises(), set()),
    "an answer that may overtake deliveries says nothing": (
        [*FRESH, *OTHER, *answer(21, 2, group="h"), *deliver(23, 1)],
        Promises(answers_in_order=False), set()),
    "an answer between two late deliveries refutes the excuse of the second alone": (
        [*FRESH, *OTHER, *asking(8, 3, expires=(19, 20)), *deliver(22, 1), *answer(23, 2, group="h"),
         *deliver(26, 3)], Promises(), {"expired-delivery"}),
    "a question of another session on its connection says so, too": (
        [*FRESH, *OTHERS, *answer(21, 2, 2, group="h", connection=7),
         *deliver(23, 1, connection=7)], Promises(), {"expired-delivery"}),
    "a question of another session on another connection does not": (
        [*FRESH, *OTHERS, *answer(21, 2, 2, group="h", connection=8),
         *deliver(23, 1, connection=7)], Promises(), set()),
    "what was refused after it had expired, and comes again, is expired": (
        [*FRESH, *deliver(5, 1), *nack(21), *deliver(23, 1, **AGAIN)], Promises(), {"expired-delivery"}),
    "what was refused before it expired may come again": (
        [*FRESH, *deliver(5, 1), *nack(15), *deliver(23, 1, **AGAIN)], Promises(), set()),
    "of what expires nobody knows when, nothing is said": (
        [*asking(2, 1, expires=(19, None)), *joined(21, 1), *deliver(22, 1)], Promises(), set()),
    "while clocks were wrong nobody knows what had expired": (
        [*EXPIRING, *clock(4, "clock-step"), *clock(7, "heal:clock-step"), *joined(21, 1), *deliver(22, 1)],
        Promises(), set()),
    "clocks that were right again before the send excuse nothing": (
        [*clock(0, "clock-step"), *clock(2, "heal:clock-step"), *asking(5, 1, expires=(19, 20)),
         *joined(21, 1), *deliver(22, 1)],
        Promises(), {"expired-delivery"}),
    "what may have expired is not lost": ([*EXPIRING, *DONE], Promises(), set()),
    "what cannot have expired is lost": ([*asking(2, 1, expires=(LATE, LATE)), *DONE], Promises(), {"lost"}),
    "while clocks were wrong anything may have expired": (
        [*asking(2, 1, expires=(LATE, LATE)), *clock(4, "clock-step"), *DONE], Promises(), set()),
    "what has expired is where such messages go": (
        [*EXPIRING, *kept(80, 1, "expired"), *DONE], Promises(), set()),
    "what cannot have expired does not belong there": (
        [*asking(2, 1, expires=(LATE, LATE)), *kept(80, 1, "expired"), *DONE], Promises(), {"stuck"}),
    "what never expires does not belong there": (
        [*send(2, 1), *kept(80, 1, "expired"), *DONE], Promises(), {"stuck"}),
    "what has expired may wait to be found": ([*EXPIRING, *kept(80, 1), *DONE], Promises(), set()),
    "what has expired may be among the dead letters": (
        [*EXPIRING, *kept(80, 1, "dead-letter"), *DONE], Promises(), set()),
    "what was acknowledged must not be with what has expired": (
        [*FRESH, *deliver(5, 1), *answer(6, 1), *kept(80, 1, "expired"), *DONE], Promises(), {"resurrected"}),
    # -------------------------------------------------------------------------------- wrong clocks
    "the clock of its broker was wrong": ([*BROKERS, *wrong(7, "a1"), *READ], Promises(), set()),
    "the clock of the other of its pair was wrong": ([*BROKERS, *wrong(7, "a2"), *READ], Promises(), set()),
    "the clock of another pair was wrong": (
        [*BROKERS, *wrong(7, "b1"), *READ], Promises(), {"expired-delivery"}),
    "no clock was wrong, as the fault found no target": (
        [*BROKERS, *wrong(7, bit=False, observed={}, error="no broker is backup now"), *READ],
        Promises(), {"expired-delivery"}),
    "no clock was wrong, as a probe saw none": (
        [*BROKERS, *wrong(7, "a1", bit=False, observed={"a1/clock": "true"}), *READ],
        Promises(), {"expired-delivery"}),
    "nobody looked whether its clock was wrong": ([*BROKERS, wrong(7, "a1")[0], *READ], Promises(), set()),
    "of two clocks that of its broker was wrong": (
        [*BROKERS, *wrong(7, "a1", "b1", bit=False, observed={"a1/clock": "skewed 9 ms", "b1/clock": "true"}),
         *READ], Promises(), set()),
    "of two clocks that of another pair was wrong": (
        [*BROKERS, *wrong(7, "a1", "b1", bit=False, observed={"a1/clock": "true", "b1/clock": "skewed 9 ms"}),
         *READ], Promises(), {"expired-delivery"}),
    "it was sent to the broker with the wrong clock, and delivered by another": (
        [*PAIRS, *wrong(7, "b1"), LATER[0], {**LATER[1], "broker": "b1"}, *READ], Promises(), set()),
    "it was delivered by the broker with the wrong clock": (
        [*BROKERS, *wrong(7, "b1"), *joined(21, 1), *deliver(22, 1, broker="b1")], Promises(), set()),
    "nobody says which broker took it": (
        [*PAIRS, *wrong(7, "b1"), *({k: v for k, v in row.items() if k != "broker"} for row in LATER), *READ],
        Promises(), set()),
    "nobody says whose pair the broker with the wrong clock is": (
        [*BROKERS, *wrong(7, "c1"), *READ], Promises(), set()),
    "nobody says whose pair its broker is": (
        [*PAIRS[2:], *LATER, *wrong(7, "b1"), *READ], Promises(), set()),
    "its clock was seen to be right again before it was sent": (
        [*BROKERS, *wrong(6, "a1"), *wrong(8, "a1", kind="heal:clock-skew"), *READ],
        Promises(), {"expired-delivery"}),
    "its clock was asked to be right again before it was sent, and seen to be afterwards": (
        [*BROKERS, *wrong(6, "a1"), wrong(8, "a1", kind="heal:clock-skew")[0],
         wrong(14, "a1", kind="heal:clock-skew")[1], *READ], Promises(), set()),
    "its clock was asked to be right again, and nobody saw that": (
        [*BROKERS, *wrong(6, "a1"), wrong(8, "a1", kind="heal:clock-skew")[0], *READ], Promises(), set()),
    "its clock was seen not to be right again": (
        [*BROKERS, *wrong(6, "a1"), *wrong(8, "a1", kind="heal:clock-skew", bit=False,
         observed={"a1/clock": "skewed 9 ms"}), *READ], Promises(), set()),
    "of two clocks only that of another pair was not seen to be right again": (
        [*BROKERS, *wrong(6, "a1", "b1"), *wrong(8, "a1", "b1", kind="heal:clock-skew", bit=False,
         observed={"a1/clock": "true", "b1/clock": "skewed 9 ms"}), *READ],
        Promises(), {"expired-delivery"}),
    "its clock was wrong when it was sent, and right when it was read": (
        [*BROKERS, *wrong(10, "a1"), *wrong(15, "a1", kind="heal:clock-step"), *READ], Promises(), set()),
    "of two faults of its clock the first was healed last": (
        [*BROKERS, *wrong(4, "a1"), *wrong(6, "a1", label="y"),
         *wrong(8, "a1", kind="heal:clock-skew", label="y"), *wrong(15, "a1", kind="heal:clock-skew"), *READ],
        Promises(), set()),
    "its clock was wrong only after it was read": (
        [*BROKERS, *READ, *wrong(30, "a1")], Promises(), {"expired-delivery"}),
    "a slow disk makes no clock wrong": (
        [*BROKERS, *wrong(7, "a1", kind="disk-slow"), *READ], Promises(), {"expired-delivery"}),
    "a hook may": ([*BROKERS, *wrong(7, "a1", kind="hook"), *READ], Promises(), set()),
    "a hook at another pair does not": (
        [*BROKERS, *wrong(7, "b1", kind="hook"), *READ], Promises(), {"expired-delivery"}),
    "it may have expired by the clock of its broker": ([*LASTING, *wrong(20, "a2")], Promises(), set()),
    "the clock of another pair lets it not expire": ([*LASTING, *wrong(20, "b1")], Promises(), {"lost"}),
    "it may have expired where its queue had a consumer": (
        [*LASTING, *wrong(20, "b1"), *subscribed(23, "b1", "q")], Promises(), set()),
    "it did not expire where another queue had a consumer": (
        [*LASTING, *wrong(20, "b1"), *subscribed(23, "b1", "r")], Promises(), {"lost"}),
    "it did not expire where its queue had a consumer at a broker with a right clock": (
        [*LASTING, *wrong(20, "b1"), *subscribed(23, "a1", "q")], Promises(), {"lost"}),
    "it may have expired where nobody knows whose clock was wrong": (
        [*LASTING, *wrong(20, "b1"), *wrong(23, label="y"), *subscribed(26, "a1", "q")], Promises(), set()),
    "it was not read too early by the clock of its broker": (
        [*PAIRS, *joined(5, 1), *asking(12, 1, delay=(19, 20)), *wrong(7, "a1"), *deliver(18, 1)],
        Promises(), set()),
    "it was read too early by a clock of another pair": (
        [*PAIRS, *joined(5, 1), *asking(12, 1, delay=(19, 20)), *wrong(7, "b1"), *deliver(18, 1)],
        Promises(), {"early-delivery"}),
    # ------------------------------------------------------------------------ sent more than once
    "what was sent again expires by the attempt that expires last": (
        [*asking(1, 1, expires=(7, 8)), *asking(3, 1, expires=(15, 16)), *joined(12, 1), *deliver(14, 1)],
        Promises(), set()),
    "what was sent again has expired when it has by every attempt": (
        [*asking(1, 1, expires=(7, 8)), *asking(3, 1, expires=(9, 10)), *joined(12, 1), *deliver(14, 1)],
        Promises(), {"expired-delivery"}),
    "what was sent again without an expiry does not expire": (
        [*asking(1, 1, expires=(7, 8)), *asking(3, 1), *joined(12, 1), *deliver(14, 1)], Promises(), set()),
    "what was sent again without any options does not expire": (
        [*asking(1, 1, expires=(7, 8)), *send(3, 1), *joined(12, 1), *deliver(14, 1)], Promises(), set()),
    "an attempt without an answer expires as it was asked for, whatever was sent last": (
        [*asking(1, 1, expires=(7, 8)), {**asking(3, 1, expires=(9, 10))[0], "process": 2}, *joined(12, 1),
         *deliver(14, 1), *asking(20, 2, expires=(LATE, LATE))], Promises(), {"expired-delivery"}),
    "an answer that is not ok says nothing of when it expires": (
        [*asking(1, 1, expires=(7, 8)), asking(3, 1, expires=(9, 10))[0],
         asking(3, 1, "info", expires=(LATE, LATE))[1], *joined(12, 1), *deliver(14, 1),
         *asking(20, 2, expires=(LATE, LATE))], Promises(), {"expired-delivery"}),
    "an attempt that failed lets nothing expire later": (
        [*asking(1, 1, expires=(7, 8)), *asking(3, 1, "fail", expires=(15, 16)), *joined(12, 1),
         *deliver(14, 1)], Promises(), {"expired-delivery"}),
    "what was sent again may have expired by the attempt that expires first": (
        [*asking(1, 1, expires=(7, 8)), *asking(3, 1, expires=(LATE, LATE)), *DONE], Promises(), set()),
    "an attempt that failed lets nothing expire sooner": (
        [*asking(1, 1, "fail", expires=(7, 8)), *asking(3, 1, expires=(LATE, LATE)), *DONE], Promises(),
        {"lost"}),
    "what was sent again is due when some attempt says so": (
        [*asking(1, 1, delay=(9, 10)), *asking(3, 1, delay=(19, 20)), *deliver(12, 1)], Promises(), set()),
    "what was sent again is early when every attempt says so": (
        [*asking(1, 1, delay=(15, 16)), *asking(3, 1, delay=(19, 20)), *deliver(12, 1)], Promises(),
        {"early-delivery"}),
    "what was sent again without a delay is not early": (
        [*asking(1, 1, delay=(15, 16)), *asking(3, 1), *deliver(12, 1)], Promises(), set()),
    "an attempt that failed makes nothing due sooner": (
        [*asking(1, 1, "fail", delay=(9, 10)), *asking(3, 1, delay=(19, 20)), *deliver(12, 1)], Promises(),
        {"early-delivery"}),
    "what was sent again with a delay has no turn to keep": (
        [*asking(1, 1), *asking(3, 1, delay=(7, 8)), *send(5, 2), *deliver(10, 2), *deliver(12, 1)],
        Promises(), set()),
    "what was sent again may wait if nobody knows until when by one attempt": (
        [*asking(1, 1, delay=(5, 6)), *asking(3, 1, "info", delay=(5, None)), *kept(80, 1), *DONE],
        Promises(), set()),
    "what was sent again must not wait when every attempt was due": (
        [*asking(1, 1, delay=(5, 6)), *asking(3, 1, "info", delay=(5, 8)), *kept(80, 1), *DONE],
        Promises(), {"stuck"}),
    "what was sent again with a delay must not wait when that was over": (
        [*asking(1, 1), *asking(3, 1, "info", delay=(5, 8)), *kept(80, 1), *DONE], Promises(), {"stuck"}),
    "it may while the delay of one attempt lasts": (
        [*asking(1, 1, delay=(5, 8)), *asking(3, 1, "info", delay=(LATE, LATE)), *send(5, 1, "info"),
         *kept(80, 1), *DONE], Promises(), set()),
    "what failed each time is read early, too": (
        [*asking(1, 1, "fail", delay=(15, 16)), *asking(3, 1, "fail", delay=(19, 20)), *deliver(12, 1)],
        Promises(), {"aborted-delivery", "early-delivery"}),
    "an attempt that failed takes no turn away": (
        [*asking(1, 1), *asking(3, 1, "fail", delay=(7, 8)), *send(5, 2), *deliver(10, 2), *deliver(12, 1)],
        Promises(), {"reordered", "reordered-realtime", "not-linearizable", "reordered-session"}),
    # ------------------------------------------------------------------------------------- delays
    "what is read before it is due is early": ([*DELAYED, *deliver(18, 1)], Promises(), {"early-delivery"}),
    "what is read when it may be due is not": ([*DELAYED, *deliver(19, 1)], Promises(), set()),
    "while clocks are wrong nobody knows what is due": (
        [*DELAYED, *clock(5, "clock-rate"), *deliver(18, 1)], Promises(), set()),
    "what is not due before the drain may wait": (
        [*asking(2, 1, delay=(LATE, LATE)), *kept(80, 1), *DONE], Promises(), set()),
    "of what is due nobody knows when, nothing is said": (
        [*asking(2, 1, delay=(5, None)), *kept(80, 1), *DONE], Promises(), set()),
    "what was due before the drain must not wait": (
        [*asking(2, 1, delay=(5, 6)), *kept(80, 1), *DONE], Promises(), {"stuck"}),
    "what is not due yet and nowhere is lost": (
        [*asking(2, 1, delay=(LATE, LATE)), *DONE], Promises(), {"lost"}),
    "what is delayed may be overtaken in its group": (
        [*DELAYED, *send(4, 2), *deliver(10, 2), *deliver(21, 1)], Promises(), set()),
    "what has another priority may be overtaken in its group": (
        [*asking(2, 1, priority=0), *send(4, 2), *deliver(10, 2), *deliver(21, 1)], Promises(), set()),
    "what has the ordinary priority may not": (
        [*asking(2, 1, priority=4), *send(4, 2), *deliver(10, 2), *deliver(21, 1)], Promises(),
        {"reordered", "reordered-realtime", "not-linearizable", "reordered-session"}),
    "what may have expired may be missing before what came": (
        [*EXPIRING, *send(4, 2), *deliver(10, 2)], Promises(), set()),
    "what cannot expire may not": (
        [*asking(2, 1, amount=5), *send(4, 2), *deliver(10, 2)], Promises(), {"not-linearizable"}),
    "what had expired before the next session got the rest, and is read late, was not overtaken": (
        [*FRESH, *send(4, 2), *deliver(21, 2, 2, **AGAIN), *deliver(23, 1)], Promises(), set()),
    "what had not expired yet was": (
        [*FRESH, *send(4, 2), *deliver(10, 2, 2, **AGAIN), *deliver(12, 1)], Promises(), OVERTAKEN),
    "what expires much later was": (
        [*joined(0, 1), *asking(2, 1, expires=(LATE, LATE)), *send(4, 2), *deliver(21, 2, 2, **AGAIN),
         *deliver(23, 1)], Promises(), OVERTAKEN),
    "but not for certain while clocks were wrong": (
        [*joined(0, 1), *asking(2, 1, expires=(LATE, LATE)), *send(4, 2), *clock(6, "clock-step"),
         *deliver(21, 2, 2, **AGAIN), *deliver(23, 1)], Promises(), set()),
    "clocks that were right again before it was sent leave it overtaken": (
        [*joined(0, 1), *clock(1, "clock-step"), *clock(3, "heal:clock-step"),
         *asking(5, 1, expires=(LATE, LATE)), *send(7, 2), *deliver(21, 2, 2, **AGAIN), *deliver(23, 1)],
        Promises(), OVERTAKEN),
    # ------------------------------------------------------------------------- died unread
    "what died in the hands of a session that ended, and is read late, was not overtaken": (
        [*READ_LATE, *gone(25, 1)], dying(1), set()),
    "what a session holds that did not end was": (READ_LATE, dying(1), OVERTAKEN),
    "what that session acknowledged was": (
        [*READ_LATE, *answer(24, 1), *gone(26, 1)], dying(1), OVERTAKEN),
    "what had attempts left was": ([*READ_LATE, *gone(25, 1)], dying(2), OVERTAKEN),
    "not if another session may have had it, too": (
        [*READ_LATE, *joined(14, 3), *gone(18, 3), *gone(25, 1)], dying(2), set()),
    "where only refusals count nothing dies unread": (
        [*READ_LATE, *gone(25, 1)], Promises(delivery_attempts=1), OVERTAKEN),
    "what was taken back as often as may be was not": (READ_LATE, dying(2, ack_wait_s=0.01), set()),
    "what cannot have been taken back so often was": (
        READ_LATE, dying(3, ack_wait_s=0.01), OVERTAKEN),
    "who ended in another queue took nothing back": (
        [*READ_LATE, *gone(25, 1, queue="p"), *gone(27, 4, queue="q")], dying(2), OVERTAKEN),
    "each queue has sessions of its own": (
        [*READ_LATE, *gone(25, 1, queue="q"), *send(30, 3, queue="r"), *deliver(33, 3, 5, queue="r"),
         o(35, 15, "info", "timeout", 3, session=5, queue="r")], dying(1), set()),
    "a row may say that it was taken back": (
        [*READ_LATE, o(22, 11, "info", "timeout", 1, session=1)], dying(1), set()),
    "even if an ack was answered since, where stale ones are": (
        [*READ_LATE, o(20, 11, "info", "timeout", 1, session=1), *answer(24, 1)],
        dying(1, refuses_stale_acks=False), set()),
    "not where they are refused": (
        [*READ_LATE, o(20, 11, "info", "timeout", 1, session=1), *answer(24, 1)], dying(1), OVERTAKEN),
    "nor where nothing was taken back": (
        [*READ_LATE, *answer(24, 1, f="nack"), *gone(26, 1)], dying(1, refuses_stale_acks=False), OVERTAKEN),
    "where nothing is ever a dead letter nothing dies unread": (
        [*READ_LATE, *gone(25, 1)], dying(-1), OVERTAKEN),
    "what nobody sent waits for no time-out": (deliver(5, 1), dying(1, ack_wait_s=0.01), {"phantom"}),
    # ------------------------------------------------------------------------------ redelivery
    "what waits for its redelivery when the stores are read is not stuck": (
        [*ONCE, *kept(80, 1), *DONE], SLOW, set()),
    "where it would have come at once it is": ([*ONCE, *kept(80, 1), *DONE], Promises(), {"stuck"}),
    "and where the drain took longer than that": ([*ONCE, *kept(80, 1), *DONE_LATER], SLOW, {"stuck"}),
    "what its group has behind it waits with it": (
        [*ONCE, *send(12, 2), *kept(80, 1), *kept(81, 2), *DONE], SLOW, set()),
    "what is in no group, and nobody ever had, waits for nothing": (
        [*send(12, 2, group=None), *kept(81, 2, group=None), *DONE], SLOW, {"stuck"}),
    "what waits is somewhere": ([*ONCE, *DONE], SLOW, {"lost"}),
    # ------------------------------------------------------------------------------- dead letters
    "what was refused as often as it may be is not delivered any more": (
        [*TWICE, *deliver(11, 1, **AGAIN)], TWO, {"duplicate"}),
    "what was refused less often is": ([*ONCE, *deliver(8, 1, **AGAIN)], TWO, set()),
    "a refusal that was not answered may not have happened": (
        [*ONCE, *deliver(8, 1, **AGAIN), *nack(9, outcome="info"), *deliver(11, 1, **AGAIN)], TWO, set()),
    "where nobody can say when it dies, it may live": (
        [*TWICE, *deliver(11, 1, **AGAIN)], Promises(delivery_attempts=2), set()),
    "what another session reads late may have been sent before it died": (
        [*joined(2, 2), *TWICE, *deliver(11, 1, 2, **AGAIN), *gone(14, 2)], TWO, set()),
    "what another session reads behind an answer was sent after it died": (
        [*joined(2, 2), *send(3, 2, group="h"), *TWICE, *deliver(11, 2, 2, group="h"),
         *answer(12, 2, 2, group="h"), *deliver(14, 1, 2, **AGAIN), *gone(15, 2)], TWO, {"duplicate"}),
    "where a refusal is a death, one is enough": (
        [*ONCE, *deliver(8, 1, **AGAIN)], Promises(nack="dead-letter"), {"duplicate"}),
    "what dies is once among the dead letters": (
        [*TWICE, *kept(80, 1, "dead-letter"), *read(81, "a1"), *kept(82, 1, "dead-letter"), *read(83, "a1"),
         *DONE], TWO, set()),
    "what is there twice, twice, is resurrected": (
        [*TWICE, *BROWSING, *kept(79, 1, "dead-letter"), *kept(80, 1, "dead-letter"), *read(81, "a1"),
         *kept(82, 1, "dead-letter"), *kept(83, 1, "dead-letter"), *read(84, "a1"), *BROWSED], TWO,
        {"resurrected"}),
    "what is there and in the main store, twice, is resurrected": (
        [*TWICE, *BROWSING, *kept(79, 1), *kept(80, 1, "dead-letter"), *read(81, "a1"), *kept(82, 1),
         *kept(83, 1, "dead-letter"), *read(84, "a1"), *BROWSED], TWO, {"resurrected", "stuck"}),
    "what is nowhere is lost": ([*TWICE, *DONE], TWO, {"lost"}),
    "what is there as of another queue is corrupted": (
        [*TWICE, *kept(80, 1, "dead-letter", queue="r"), *DONE], TWO, {"corrupted"}),
    "what is there as of another group is corrupted": (
        [*TWICE, *kept(80, 1, "dead-letter", group="h"), *DONE], TWO, {"corrupted"}),
    "what was never refused, and left with its consumer, has died early": (
        [*send(0, 1), *deliver(5, 1), *left(6, 1), *kept(80, 1, "dead-letter"), *DONE], TWO, {"died-early"}),
    "what was given back so often is rightly dead where that counts": (
        [*send(0, 1), *joined(2, 1), *deliver(5, 1), *left(6, 1), *kept(80, 1, "dead-letter"), *DONE],
        Promises(delivery_attempts=1, attempts="given back"), set()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_both_implementations_say_so(tmp_path, case):
    rows, promises, expected = CASES[case]
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    assert {i.name for i in agreed(tmp_path, tidy(rows), options)} == expected


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("what is nowhere is lost", "was refused 2 times, which made it a dead letter that is nowhere"),
        ("what was never refused, and left with its consumer, has died early", "had never been refused"),
        ("what is read before it is due is early", "was not to be delivered before 0.019 s"),
        (
            "what is given to a session that was asked for after it had expired is expired",
            "after it had certainly expired, at 0.020 s",
        ),
    ],
)
def test_it_is_said_in_words(case, said):
    rows, promises, _ = CASES[case]
    rows = tidy(rows)
    (found,) = reference.find(rows, msgspec.structs.replace(OPTIONS, broker=promises))
    assert said in words.sentence(found, 1, rows, {})


def of(*rows: Row) -> Asked:
    return asked_by(from_table(table(rows), PlaceTable()), None)


def test_an_answer_says_more_exactly_when_a_message_expires():
    rows = send(0, 1, value=json.dumps({"expires": [10, None]}))
    rows[1]["value"] = json.dumps({"expires": [10, 15]})
    assert (of(*rows).expires[0], of(*rows).expired[0]) == (10, 15)


@pytest.mark.parametrize(
    "value",
    [
        "", "[]", "a name", '{"expires": 5}', '{"expires": [5]}', '{"expires": [5, 6, 7]}',
        '{"expires": {"low": 5, "high": 6}}', '{"delay": [true, 3], "priority": "9"}',
        '{"delay": [5000000000000000000, 6], "priority": 5000000000000000000}',
    ],
)  # fmt: skip
def test_a_value_that_asks_for_nothing_is_no_wish(value):
    wish = of(*send(0, 1, value=value))
    assert wish.in_turn[0]
    assert max(wish.expires[0], wish.expired[0], wish.early[0], wish.due[0]) < 0


@pytest.mark.parametrize(
    ("read_option", "value", "expected"),
    [
        (selector_of, '{"selector": {"colour": ["red"]}}', {"colour": ["red"]}),
        *((selector_of, value, None) for value in (None, "x", '{"selector": {}}', '{"selector": "red"}')),
        (properties_of, '{"properties": {"colour": "red"}}', {"colour": "red"}),
        *((properties_of, value, {}) for value in (None, "x", '{"properties": "red"}')),
        (closes, '{"close": true}', True),
        *((closes, value, False) for value in (None, 'no object, "close"', '{"close": 1}')),
        (priority_of, '{"priority": 9}', 9),
        *((priority_of, value, None) for value in (None, 'no object, "priority"', '{"priority": "9"}')),
        (amount_of, '{"amount": -5, "account": "a"}', ("a", -5)),
        (amount_of, '{"amount": 5, "account": 7}', ("", 5)),
        *((amount_of, value, None) for value in (None, 'no object, "amount"', '{"amount": "5"}')),
        *((amount_of, f'{{"amount": {sign}1099511627777}}', None) for sign in ("", "-")),
    ],
)
def test_an_option_is_read_where_it_is_what_it_should_be(read_option, value, expected):
    assert read_option(value) == expected
