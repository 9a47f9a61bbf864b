"""What excuses a broker, and what refutes the excuse.

Of each a history in which the accusation is right, and one as near as can be in which it would be
false.

The names of the cases are what they prove; columns and reference must both say so.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from checker_rows import Row, agreed, o
from test_fates import joined, left
from test_findings import OPTIONS, answer, deliver, end, gone, role, send, tidy

from checkers.verdict import Promises


def copied(at: int, message: int = 1, session: int = 2, **columns: object) -> list[Row]:
    return deliver(at, message, session, redelivered=True, **columns)


# Session 2 was there before message 1 was settled in session 1 (row 7), reads a copy of it at row
# 20, and is lost at row 40.
SETTLED = [*joined(0, 2), *send(1, 1), *deliver(5, 1), *answer(6, 1)]
LOST = [*SETTLED, *copied(20), *gone(40, 2)]


def killed(at: int, broker: str, phrase: str = "gone") -> list[Row]:
    """What a fault was seen to do to a process."""
    return [
        o(
            at,
            -1,
            "info",
            "kill",
            value=json.dumps({"label": "x", "observed": {broker: phrase}, "bit": phrase == "gone"}),
        )
    ]


LATE = [*deliver(30, 2, producer=2), *deliver(31, 1)]
"""Message 1 comes after message 2, in a session that was not lost."""


def on(connection: int | None, *rows: list[Row]) -> list[Row]:
    return [dict(r, connection=connection) for some in rows for r in some]


def numbered(rows: list[Row]) -> list[Row]:
    """The same, each session on a connection of its own."""
    return [dict(r, connection=r["session"]) if r.get("session") is not None else dict(r) for r in rows]


ANSWERED = [*send(10, 2, group="h"), *deliver(12, 2, 2, group="h"), *answer(13, 2, 2, group="h")]
MARKED = [*joined(0, 2), *send(1, 1), *deliver(5, 1, redelivered=True), *deliver(20, 1, 2), *gone(40, 2)]


def by(broker: str, *rows: list[Row]) -> list[Row]:
    """Rows of sessions of that broker."""
    return [dict(r, broker=broker) for some in rows for r in some]


SAME_PROCESS = Promises(marks_redeliveries="same-process", answers_in_order=False)
AGAIN = [
    *role(0, "a1", "live", 0, 0),
    *by("a1", joined(1, 1)),
    *send(2, 1),
    *deliver(5, 1),
    *gone(7, 1),
    *by("a1", joined(10, 2)),
    *deliver(20, 1, 2),
]
"""Session 1 of a1 gets message 1 and is lost; session 2 of it gets the same, without a mark."""


def subscribed(at: int, answered: int, session: int = 3) -> list[Row]:
    return [*joined(at, session), o(answered, 10 + session, "ok", "subscribe", session=session, broker="a1")]


TWO_COPIES = numbered([*LOST, *joined(3, 3), *copied(18, session=3), *gone(42, 3)])
"""Session 3 reads a copy of message 1 before session 2 does."""


CASES: dict[str, tuple[list[Row], set[str]]] = {
    # ------------------------------------------------------------------------------------ under way
    "a copy that is read late in a session that is lost may have been under way": (LOST, set()),
    "an ack of that session that was asked after the settling, and answered before the copy was read, "
    "refutes it": (
        [*LOST, *ANSWERED], {"duplicate"}),
    "one that was asked before the settling does not": (
        [*joined(0, 2), *send(1, 1), *send(3, 2, group="h"), *deliver(5, 2, 2, group="h"), *deliver(6, 1),
         *answer(8, 1),
         *(dict(r, index=7 if r["type"] == "invoke" else 12) for r in answer(7, 2, 2, group="h")),
         *copied(20), *gone(40, 2)], set()),
    "fifty acks that were asked and answered between the settling and the copy refute it": (
        [*SETTLED, *(r for n in range(50) for r in (
            *send(10 + 5 * n, 10 + n, group="h"), *deliver(12 + 5 * n, 10 + n, 2, group="h"),
            *answer(13 + 5 * n, 10 + n, 2, group="h"))),
         *copied(500), *gone(510, 2)], {"duplicate"}),
    "an answer that was never given refutes nothing": (
        [*joined(0, 2), *send(1, 1), *send(3, 2, group="h"), *deliver(5, 2, 2, group="h"), *deliver(6, 1),
         *answer(7, 1),
         *answer(10, 2, 2, "info", group="h"), *copied(20), *gone(40, 2)], set()),
    "an answer to another session on the same connection, between the settling and the copy, refutes it": (
        [*numbered(LOST), *on(2, subscribed(10, 11))], {"duplicate"}),
    "so it does if only its question names a queue": (
        [*numbered(LOST), *on(2, [dict(joined(10, 3)[0], queue="q"), subscribed(10, 11)[1]])], {"duplicate"}),
    "of two subscribes of one process the one that was asked for before the settling refutes nothing": (
        [*numbered(LOST), *on(2, subscribed(4, 11), [dict(joined(10, 4)[0], process=13)])], set()),
    "of two commits of one process the one that was asked for before the settling refutes nothing": (
        [*numbered(LOST),
         *on(2, end(3, "commit", 5)[:1], end(10, "commit", 6)[:1], end(10, "commit", 5)[1:])], set()),
    "of two copies on two connections an answer on the first refutes the excuse of that one": (
        [*TWO_COPIES, *on(2, subscribed(10, 15, 5)), *on(3, subscribed(4, 11, 6))], {"duplicate"}),
    "so it does where nothing was answered on the second": (
        [*TWO_COPIES, *on(2, subscribed(10, 15, 5))], {"duplicate"}),
    "of two copies on two connections an answer on the second refutes the excuse of that one": (
        [*TWO_COPIES, *on(2, subscribed(4, 15, 5)), *on(3, subscribed(10, 11, 6))], {"duplicate"}),
    "an answer to nothing that was asked refutes nothing": (
        [*LOST, *send(3, 2, group="h"), *deliver(8, 2, group="h"), *answer(10, 2, f="nack", group="h"),
         *deliver(12, 2, 2, redelivered=True, group="h"), answer(13, 2, 2, group="h")[1]], set()),
    "nor does one that nobody asked anything before": (
        [*numbered(LOST), *on(2, [dict(subscribed(10, 11)[1], process=2)])], set()),
    "an answer on another connection refutes nothing": ([*numbered(LOST), *on(3, subscribed(10, 11))], set()),
    "an answer on the same connection that came after the copy was read refutes nothing": (
        [*numbered(LOST), *on(2, subscribed(10, 21))], set()),
    "a login, which is asked for before there is a connection, refutes nothing": (
        [*numbered(LOST), o(10, 13, "invoke", "connect"),
         o(11, 13, "ok", "connect", broker="a1", connection=2)], set()),
    "an answer on the same connection that was asked for before the settling refutes nothing": (
        [*numbered(LOST), *on(2, subscribed(4, 11))], set()),
    "a session that asks something after the settling was not given up before, whenever it is answered": (
        [*LOST, *answer(25, 2, 2, f="nack"), *send(3, 2), *copied(24, 2)], {"duplicate"}),
    "a nack of the copy that was answered ok refutes it": (
        [*LOST, *answer(22, 1, 2, f="nack")], {"duplicate"}),
    "a nack of the copy that was answered ok twice refutes it": (
        [*LOST, *answer(22, 1, 2, f="nack"), *answer(24, 1, 2, f="nack")], {"duplicate"}),
    "a nack of the copy that was not answered refutes nothing": (
        [*LOST, *answer(22, 1, 2, "info", "nack")], set()),
    "a copy of what was sent after the session had left for certain was never under way": (
        [*joined(0, 2), *left(1, 2), *send(3, 1), *deliver(5, 1), *answer(6, 1), *copied(20)],
        {"duplicate", "late-delivery"}),
    "a copy of what was sent after the session had asked to leave may have been under way": (
        [*joined(0, 2), left(1, 2)[0], *send(3, 1), *deliver(5, 1), *answer(6, 1), *copied(20),
         dict(left(1, 2)[1], index=22)], set()),
    "a session that gets what was sent after the settling was not given up before it": (
        [*LOST, *send(10, 3, group="h"), *deliver(25, 3, 2, group="h")], {"duplicate"}),
    "a session that gets what was sent before the settling may have been given up": (
        [*LOST, *send(3, 3, group="h"), *deliver(25, 3, 2, group="h")], set()),
    "all messages delivered to two sessions, one of which never answers and is lost": (
        [*joined(0, 2), *(r for n in range(10) for r in (
            *send(10 + 8 * n, n), *deliver(12 + 8 * n, n), *answer(13 + 8 * n, n), *copied(15 + 8 * n, n))),
            *gone(200, 2)],
        {"duplicate", "group-split"}),
    # ----------------------------------------------------------------------------- marks and counts
    "a second copy without a mark that is read late may have been the first to be sent": (MARKED, set()),
    "an answer between the two says that it was not": ([*MARKED, *ANSWERED], {"unflagged-redelivery"}),
    "an answer between the two on the same connection says so, too": (
        [*numbered(MARKED), *on(2, subscribed(10, 11))], {"unflagged-redelivery"}),
    "an answer between the two on another connection does not": (
        [*numbered(MARKED), *on(3, subscribed(10, 11))], set()),
    "a count of one that is read after a count of two was sent first, and needs no mark": (
        [*send(1, 1), *deliver(5, 1, 1, redelivered=True, delivery_count=2),
         *deliver(6, 1, 2, delivery_count=1)], set()),
    "a count that falls behind an answer fell": (
        [*joined(0, 2), *send(1, 1), *deliver(5, 1, redelivered=True, delivery_count=2), *ANSWERED,
         *copied(20, delivery_count=1)],
        {"count-fell"}),
    "a count that is lower in what may have been under way did not fall": (
        [*joined(0, 2), *send(1, 1), *deliver(5, 1, redelivered=True, delivery_count=2),
         *copied(20, delivery_count=1)], set()),
    # ---------------------------------------------------------------------------------- group-split
    "what was sent after one session had got its message, and is given to another meanwhile, splits the "
    "group, answered or not": (
        [*send(0, 1), *deliver(5, 1), *send(6, 2), *deliver(10, 2, 2), *answer(12, 2, 2, "info"),
         *answer(15, 1)], {"group-split"}),
    "what was sent before may have been given to the other before it was lost": (
        [*send(0, 1), *send(2, 2), *deliver(5, 1), *deliver(10, 2, 2), *answer(12, 2, 2, "info"),
         *answer(15, 1)], set()),
    "a group that moves on to one that never answers, when the first may be lost, is not split": (
        [*send(0, 1), *deliver(5, 1), *send(6, 2), *deliver(10, 2, 2), *answer(12, 2, 2, "info"),
         *answer(15, 1, outcome="info")], set()),
    "a message that was given to a session that began while another held it was in two hands": (
        [*send(0, 1), *deliver(5, 1), *joined(6, 2), *copied(10), *answer(12, 1, 2, "info"), *answer(15, 1)],
        {"group-split", "double-delivery"}),
    "forty messages of one group that alternate between two sessions, one of which never gets an answer": (
        [r for n in range(20) for r in (
            *send(10 * n, 2 * n), *deliver(10 * n + 2, 2 * n), *send(10 * n + 3, 2 * n + 1),
            *deliver(10 * n + 5, 2 * n + 1, 2),
            *answer(10 * n + 6, 2 * n), *answer(10 * n + 8, 2 * n + 1, 2, "info"))], {"group-split"}),
    "forty that alternate are split, though each was let go before the next was given": (
        [r for n in range(20) for r in (
            *send(10 * n, 2 * n), *deliver(10 * n + 2, 2 * n), *answer(10 * n + 3, 2 * n),
            *send(10 * n + 5, 2 * n + 1),
            *deliver(10 * n + 7, 2 * n + 1, 2), *answer(10 * n + 8, 2 * n + 1, 2, "info"))], {"group-split"}),
    "six that alternate where each was let go before the next was given are not split": (
        [r for n in range(3) for r in (
            *send(10 * n, 2 * n), *deliver(10 * n + 2, 2 * n), *answer(10 * n + 3, 2 * n),
            *send(10 * n + 5, 2 * n + 1),
            *deliver(10 * n + 7, 2 * n + 1, 2), *answer(10 * n + 8, 2 * n + 1, 2, "info"))], set()),
    "a session that gets what was sent later was alive till then, and held what it had": (
        [*send(0, 1), *deliver(2, 1, 2), *send(3, 2), *deliver(5, 2), *send(6, 3, group="h"),
         *deliver(8, 3, 2, group="h")],
        {"group-split"}),
    "that its connection lived proves nothing about a session": (
        on(7, [*send(0, 1), *deliver(2, 1, 2), *send(3, 2), *deliver(5, 2), *joined(6, 3),
               o(8, 13, "ok", "subscribe", session=3, broker="a1")]), set()),
    # ---------------------------------------------------------------------------------- a late send
    "a send of unknown outcome may be late": ([*send(0, 1, "info"), *send(10, 2, producer=2), *LATE], set()),
    "a send whose taker was seen to be gone before the next was begun is late no more": (
        [*send(0, 1, "info"), *killed(5, "a1"), *send(10, 2, producer=2), *LATE],
        {"reordered-realtime", "not-linearizable"}),
    "so it is where the monitor saw the process gone": (
        [*send(0, 1, "info"), *role(5, "a1", "stopped", 4, 5), *send(10, 2, producer=2), *LATE],
        {"reordered-realtime", "not-linearizable"}),
    "so it is where the harness started it again": (
        [*send(0, 1, "info"), o(5, -3, "info", "restart", broker="a1"), *send(10, 2, producer=2), *LATE],
        {"reordered-realtime", "not-linearizable"}),
    "a process that was seen to be gone after the next send was begun may have stored it before or after": (
        [*send(0, 1, "info"), send(4, 2, producer=2)[0], *killed(5, "a1"), send(10, 2, producer=2)[1], *LATE],
        set()),
    "another process that was seen to be gone says nothing": (
        [*send(0, 1, "info"), *killed(5, "a2"), *send(10, 2, producer=2), *LATE], set()),
    "a process that was seen to run on says nothing": (
        [*send(0, 1, "info"), *killed(5, "a1", "running"), *send(10, 2, producer=2), *LATE], set()),
    "a process that was gone before the send was another one": (
        [*killed(0, "a1"), *send(1, 1, "info"), *send(10, 2, producer=2), *LATE], set()),
    "what nobody knows who took may be late": (
        [*send(0, 1, "info", broker=None), *killed(5, "a1"), *send(10, 2, producer=2), *LATE], set()),
    "what was sent again may be late": (
        [*send(0, 1, "info"), *killed(5, "a1"), *send(6, 1, "info"), *send(10, 2, producer=2), *LATE], set()),
    "what another broker delivers may have been forwarded, and late": (
        [*send(0, 1, "info"), *killed(5, "a1"), *send(10, 2, producer=2), *deliver(30, 2, producer=2),
         *deliver(31, 1, broker="b1")], set()),
    "what the backup of its taker delivers was not forwarded": (
        [*role(0, "a1", "live", 0, 0), *role(1, "a2", "backup", 0, 1), *send(2, 1, "info"),
         *role(5, "a1", "stopped", 4, 5), *role(8, "a2", "live", 7, 8),
         *send(10, 2, producer=2, broker="a2"), *deliver(30, 2, producer=2, broker="a2"),
         *deliver(31, 1, broker="a2")], {"reordered-realtime", "not-linearizable"}),
    "what was sent in a transaction of unknown end may be late": (
        [*send(0, 1, "info", transaction=5), *end(2, "commit", 5, "info"), *killed(5, "a1"),
         *send(10, 2, producer=2), *LATE], set()),
}  # fmt: skip

BUT_FOR: dict[str, tuple[list[Row], Promises, set[str]]] = {
    "a broker that does not answer in order refutes nothing with an answer": (
        [*numbered(LOST), *on(2, joined(10, 3), [o(11, 13, "ok", "subscribe", session=3, broker="a1")])],
        Promises(answers_in_order=False), set()),
    "a broker whose acks do not last may deliver what was acknowledged": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1), *deliver(20, 1, session=2, redelivered=True)],
        Promises(durable_acks=False), set()),
    "but not twice to one session": (
        [*send(0, 1), *deliver(5, 1), *answer(6, 1), *deliver(20, 1, redelivered=True)],
        Promises(durable_acks=False), {"duplicate"}),
    "a broker that promises no marks lacks none": (
        [*MARKED, *ANSWERED], Promises(marks_redeliveries="never"), set()),
    "a broker that marks what one process of it delivers again lacks a mark within one reign": (
        AGAIN, SAME_PROCESS, {"unflagged-redelivery"}),
    "so it does where it is seen to end after the second delivery": (
        [*AGAIN, *role(30, "a1", "stopped", 25, 29)], SAME_PROCESS, {"unflagged-redelivery"}),
    "where it may have ended before it was, another process may have delivered it": (
        [*AGAIN, *role(30, "a1", "stopped", 19, 29)], SAME_PROCESS, set()),
    "a process of which nobody saw that it was live may be another": (
        AGAIN[1:], SAME_PROCESS, set()),
    "another broker is another process": (
        [*AGAIN[:-2], *role(9, "a2", "live", 5, 8, "m"),
         *by("a2", joined(10, 2)), *deliver(20, 1, 2, broker="a2")], SAME_PROCESS, set()),
    "a session that it began before it was seen to be live again is another process' than one after": (
        [*AGAIN[:-2], *role(8, "a1", "unreachable", 6, 7), *role(9, "a1", "live", 8, 8),
         *AGAIN[-2:]], SAME_PROCESS, set()),
    "one session is one process, whoever saw it": (
        [*send(1, 1), *deliver(5, 1), *answer(6, 1, f="nack"), *deliver(20, 1)], SAME_PROCESS,
        {"unflagged-redelivery"}),
}  # fmt: skip

ALL = {name: (rows, Promises(), expected) for name, (rows, expected) in CASES.items()} | BUT_FOR


@pytest.mark.parametrize("case", ALL)
@pytest.mark.slow
def test_both_implementations_say_so(tmp_path, case):
    rows, promises, expected = ALL[case]
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    assert {i.name for i in agreed(tmp_path, tidy(rows), options)} == expected
