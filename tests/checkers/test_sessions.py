"""What conflicts of sessions are proven by, and which row is told.

The names of the cases are what they prove; columns and reference must both say so.
"""

from __future__ import annotations

import pytest
from checker_rows import Row, agreed, o
from test_alternation import CLOSE, SEVEN, read, sent
from test_delivery import unreadable
from test_findings import answer, deliver, end, gone, live, role, send, tidy
from test_owed import joined
from test_selected_order import consumer

from checkers.verdict import CheckOptions, Promises

BOTH = [*consumer(0, 1), *consumer(2, 2)]
LATE_ORDER = {("not-linearizable", 20), ("reordered", 21), ("reordered-realtime", 21)}
ALIVE = [
    *consumer(0, 1), *send(10, 1), *send(12, 2, group="h"), *deliver(20, 1), *deliver(21, 2, group="h"),
    *consumer(24, 2), *deliver(30, 1, 2, redelivered=True), *answer(40, 2, group="h"),
]  # fmt: skip
"""Session 1 was given message 1 before there was a session 2, and was answered in another group."""
SPLIT = {("double-delivery", 30), ("group-split", 30)}

CASES: dict[str, tuple[list[Row], set[tuple[str, int]]]] = {
    "what says nothing of its producer has no place in its line": (
        [*BOTH, *send(10, 1), *send(12, 2), *deliver(20, 2, producer=None), *deliver(21, 1, producer=None)],
        LATE_ORDER),
    "what says its producer goes back": (
        [*BOTH, *send(10, 1), *send(12, 2), *deliver(20, 2), *deliver(21, 1)],
        {*LATE_ORDER, ("reordered-session", 21)}),
    "of several deliveries without a mark the first is told, whatever its session": (
        [*BOTH, *consumer(4, 3), *send(10, 1), *deliver(20, 1, 3), *gone(21, 3), *deliver(22, 1, 2),
         *gone(23, 2), *deliver(24, 1, 1)], {("unflagged-redelivery", 22)}),
    "a session that was answered later held what it had": (ALIVE, SPLIT),
    "an answer to nothing, read in another part, takes nothing back of that": (
        [*ALIVE, *answer(50, 3, group="i")[1:]], {*SPLIT, ("phantom", 51)}),
    "nor does what nobody sent": (
        [*ALIVE, *deliver(50, 3, group="i")], {*SPLIT, ("phantom", 50)}),
}  # fmt: skip


ANY = Promises()
STALE = Promises(refuses_stale_acks=False)
FREE = Promises(sticky_groups=False)
WAITS = Promises(ack_wait_s=0.030)
SAME = Promises(marks_redeliveries="same-process")
AGAIN = {"redelivered": True}
SESSIONS = [*joined(0), *joined(2, 2)]
SENT = [*SESSIONS, *send(10, 1), *send(14, 2)]
HOLDING = [*SESSIONS, *send(4, 3, group="h"), *deliver(6, 3, group="h")]
"""Session 1 is alive when the ack of this is asked for."""
REFUSED = [*joined(0), *send(10, 1), *deliver(20, 1, **AGAIN), *answer(22, 1, f="nack")]
BOTH_HOLD = [*HOLDING, *send(8, 4, group="i"), *deliver(10, 4, 2, group="i"), *send(20, 1), *send(22, 2)]
ASKED = [*answer(92, 3, group="h"), *answer(94, 4, 2, group="i")]
GIVEN = [*deliver(100, 1), *deliver(110, 2, 2), *answer(118, 1), *answer(120, 2, 2)]
ONE_REIGN = [
    *live(0, "a1", 0, 0, 1), *role(25, "a1", "stopped", 23, 25), *send(10, 1),
    *({**row, "broker": "a1"} for row in (*joined(2), *joined(4, 2))),
]  # fmt: skip


def alternating(committed: str, later: int = 0) -> list[Row]:
    """A group that goes back and forth, each message acknowledged in a transaction of its own."""
    ends = [
        row
        for n, session in enumerate(SEVEN)
        for row in (
            *answer(102 + 10 * n, 1 + n, session, transaction=20 + n),
            *end(104 + later + 10 * n, "commit", 20 + n, committed),
        )
    ]
    return [*SESSIONS, *sent(7), *read(SEVEN), *ends]


def without_session(rows: list[Row]) -> list[Row]:
    return [{**row, "session": None} for row in rows]


PROMISED: dict[str, tuple[list[Row], Promises, set[tuple[str, int]]]] = {
    # ------------------------------------------------------------------- until when it is held
    "an ack of a session that never got the message ends no hold": (
        [*HOLDING, *send(10, 1), *send(14, 2), *deliver(20, 1), *answer(22, 1, 2), *deliver(30, 2, 2),
         *answer(40, 3, group="h"), *answer(44, 2, 2)], STALE, {("group-split", 30)}),
    "nor does one that was refused before the message came": (
        [*HOLDING, *send(10, 1), *send(14, 2), *answer(19, 1, outcome="fail"), *deliver(22, 1),
         *deliver(30, 2, 2), *answer(40, 3, group="h"), *answer(44, 2, 2)], ANY, {("group-split", 30)}),
    "nor does what the session did later with another message": (
        [*SENT, *send(12, 5), *deliver(20, 1), *deliver(22, 5), *answer(23, 5), *deliver(30, 2, 2),
         *answer(44, 9, group="h"), *answer(46, 2, 2)], STALE,
        {("group-split", 30), ("phantom", 45), ("reordered", 30)}),
    "of two acks the first ends it": (
        [*HOLDING, *send(10, 1), *send(14, 2), *deliver(20, 1), *answer(22, 1), *deliver(30, 2, 2),
         *answer(40, 1), *answer(42, 2, 2), *answer(44, 3, group="h")], ANY, set()),
    "another delivery to its session does not end it": (
        [*joined(0), *send(2, 1), *send(4, 2), *deliver(6, 1), *joined(7, 2), *deliver(9, 1, **AGAIN),
         *deliver(12, 2, 2), *answer(20, 1)], ANY, {("duplicate", 9), ("group-split", 12)}),
    "a body that cannot be read is in nobody's hands": (
        [*SESSIONS, *send(14, 2), *unreadable(20, 1), *deliver(30, 2, 2), *answer(42, 2, 2),
         *answer(44, 3, group="h")], STALE, {("corrupted", 20), ("phantom", 45)}),
    "and two of them are not one message twice": (
        [*SESSIONS, *unreadable(20, 1), *unreadable(22, 1)], ANY, {("corrupted", 20)}),
    "a delivery that names no session is in no session's order": (
        [*send(10, 1), *send(14, 2), *without_session([*deliver(20, 2), *deliver(30, 1)])], ANY,
        {("not-linearizable", 20), ("reordered", 30), ("reordered-realtime", 30)}),
    "what was acknowledged and is in no delivery may come and close its group": (
        [*SENT, *send(12, 3, value=CLOSE), *deliver(20, 1), *answer(22, 3), *deliver(30, 2, 2),
         *answer(40, 1), *answer(42, 2, 2)], STALE, set()),
    "what a question shows to be sent late is held until its time is over": (
        [*BOTH_HOLD, *ASKED, *GIVEN], WAITS, {("group-split", 110)}),
    "and not longer where nobody knows when it was sent": (
        [*BOTH_HOLD, *ASKED[2:], *GIVEN], WAITS, set()),
    "so is what comes to two sessions": (
        [*BOTH_HOLD, *ASKED, *deliver(100, 1), *deliver(110, 1, 2, **AGAIN), *answer(118, 1),
         *answer(120, 1, 2)], WAITS, {("double-delivery", 110), ("group-split", 110)}),
    "a commit of unknown outcome lets go of nothing": (
        alternating("info"), FREE, {("group-split", 160)}),
    "one that was answered does": (alternating("ok"), FREE, set()),
    "but not before it was asked for": (alternating("ok", later=100), FREE, {("group-split", 110)}),
    # ------------------------------------------------------------------------- settled by two
    "one session that acknowledges twice is not two": (
        [*SENT[:-2], *deliver(20, 1), *answer(22, 1), *answer(24, 1)], ANY, set()),
    "who got it when it was settled has a duplicate, and held it with nobody": (
        [*SENT[:-2], *deliver(20, 1, 2), *answer(22, 1, 2), *deliver(25, 1, **AGAIN), *answer(27, 1)],
        ANY, {("duplicate", 25)}),
    "what a session settles twice is settled by what comes first": (
        [*SENT[:-2], *deliver(20, 1, 2), *answer(22, 1, 2, transaction=9), *answer(24, 1, 2),
         *deliver(27, 1, **AGAIN), *answer(29, 1), *end(40, "commit", 9)], ANY, {("duplicate", 27)}),
    "an acknowledgement settles nothing before its transaction is committed": (
        [*SENT[:-2], *deliver(20, 1), *answer(22, 1, transaction=9), *gone(25, 1),
         *deliver(26, 1, 2, **AGAIN), *end(28, "commit", 9)], ANY, set()),
    "what was refused too often may have been taken back unread before": (
        [*SENT[:-2], *joined(4, 3), o(15, 13, "info", "timeout", 1, session=3), *deliver(20, 1, **AGAIN),
         *answer(22, 1, f="nack"), *deliver(24, 1, 2, **AGAIN), *answer(26, 1, 2, f="nack"),
         *deliver(30, 1, 3)], Promises(delivery_attempts=2, most_attempts=2), set()),
    "what was acknowledged in its session was not under way there": (
        [*SENT[:-2], *deliver(12, 1, 2), *answer(13, 1, 2, "info", f="nack"),
         o(15, 22, "invoke", "ack", 1, session=2), *deliver(20, 1, **AGAIN), *answer(22, 1),
         *deliver(24, 1, 2, **AGAIN), o(40, 22, "ok", "ack", 1, session=2, broker="a1"), *gone(50, 2)],
        ANY, {("duplicate", 24)}),
    "a session that no row asked for may always have been there": (
        [*joined(0), *send(10, 1), *deliver(20, 1), *answer(22, 1), *deliver(24, 1, 2, **AGAIN),
         *gone(30, 2)], ANY, set()),
    "not if it was alive when the message had been acknowledged": (
        [*joined(0), *send(10, 1), *send(12, 2, group="h"), *deliver(18, 2, 2, group="h"), *deliver(20, 1),
         *answer(22, 1), *deliver(24, 1, 2, **AGAIN), *answer(26, 2, 2, group="h"), *gone(30, 2)], ANY,
        {("duplicate", 24)}),
    # ----------------------------------------------------------------------- counts and marks
    "that a count stayed is proven by an answer in another group": (
        [*SESSIONS, *send(4, 1), *deliver(6, 1, delivery_count=1), *answer(8, 1, f="nack"),
         *send(10, 2, group="h"), *deliver(12, 2, 2, group="h"), *answer(14, 2, 2, group="h"),
         *deliver(16, 1, 2, delivery_count=1, **AGAIN), *gone(18, 2)], Promises(counts="given back"),
        {("count-stuck", 16)}),
    "and without it the delivery may have been under way": (
        [*SESSIONS, *send(4, 1), *deliver(6, 1, delivery_count=1), *answer(8, 1, f="nack"),
         *deliver(16, 1, 2, delivery_count=1, **AGAIN), *gone(18, 2)], Promises(counts="given back"), set()),
    "what counts itself as the first may have been sent first": (
        [*joined(0), *send(10, 1), *deliver(20, 1, delivery_count=2, **AGAIN), *answer(22, 1, f="nack"),
         *deliver(26, 1, 2, delivery_count=1)], ANY, set()),
    "not to a session that nobody asked for, where the other has no count": (
        [*REFUSED, *deliver(26, 1, 2, delivery_count=1)], ANY, {("unflagged-redelivery", 26)}),
    "but to one that was asked for": (
        [*REFUSED, *joined(2, 2), *deliver(26, 1, 2, delivery_count=1)], ANY, set()),
    "what counts itself as the second was not": (
        [*joined(0), *send(10, 1), *deliver(20, 1, delivery_count=3, **AGAIN), *answer(22, 1, f="nack"),
         *deliver(26, 1, 2, delivery_count=2)], ANY, {("unflagged-redelivery", 26)}),
    "in one session what is read second was sent second, whoever served it": (
        [*ONE_REIGN, *deliver(20, 1), *answer(21, 1, f="nack"), *deliver(26, 1)], SAME,
        {("unflagged-redelivery", 26)}),
    "in another session of one process, too": (
        [*ONE_REIGN, *deliver(20, 1), *answer(21, 1, f="nack"), *deliver(23, 1, 2)], SAME,
        {("unflagged-redelivery", 23)}),
    "not when that process may be gone": (
        [*ONE_REIGN, *deliver(20, 1), *answer(21, 1, f="nack"), *deliver(26, 1, 2)], SAME, set()),
    "what was read in time did not expire by who asked for its session later": (
        [*send(0, 1, value='{"expires": [5000000, 6000000]}'), *deliver(3, 1), *joined(8)], ANY, set()),
}  # fmt: skip

ALL = {name: (rows, ANY, expected) for name, (rows, expected) in CASES.items()} | PROMISED


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_both_implementations_say_so(tmp_path, name):
    rows, promises, expected = ALL[name]
    options = CheckOptions(broker=promises)
    assert {(one.name, one.index) for one in agreed(tmp_path, tidy(rows), options)} == expected
