"""What became of each message: which of several findings it is, and how many there are.

The names of the cases are what they prove; columns and reference must both say so.
"""

from __future__ import annotations

import pytest
from checker_rows import Row, agreed, finished, lay_out, o
from test_asked import LATE, ONCE, SLOW, TWO, asking, clock
from test_fates import GIVEN_BACK, HELD
from test_findings import answer, deliver, end, gone, kept, role, send, tidy
from test_owed import HELD as SERVED
from test_owed import LET_GO, STAYS, UNKNOWN

from checkers import delivery, judge
from checkers.verdict import CheckOptions, Promises

DONE = finished(90)
ANY = Promises()
SENT = send(0, 1)
LEFT = [*HELD, *gone(8, 1)]
DELAYED = asking(0, 1, delay=(LATE, LATE))
EXPIRED = asking(0, 1, expires=(1, 2))
FORWARDED, DEAD = "store-and-forward", "dead-letter"
UNREADABLE = {"queue": "q", "group": "g", "broker": "a1", "error": "unreadable"}


def ungrouped(rows: list[Row]) -> list[Row]:
    return [{**row, "group": None} if "group" in row else row for row in rows]


def both(store: str) -> list[Row]:
    """It is in that store, and among the dead letters."""
    return [*kept(79, 1, store), *kept(80, 1, DEAD), *DONE]


def unreadable(at: int, session: int) -> list[Row]:
    return [o(at, 10 + session, "ok", "deliver", session=session, **UNREADABLE)]


NEVER, AFTER = ("stuck", "never delivered"), ("stuck", "after delivery")
EITHER, EARLY = ("stuck", "either way"), ("died-early", None)
CORRUPTED = ("corrupted", None)

CASES: dict[str, tuple[list[Row], Promises, set[tuple[str, str | None]]]] = {
    # ---------------------------------------------------------------------- on its way to another
    "what is on its way to another broker in the end is stuck": (
        [*SENT, *kept(80, 1, FORWARDED), *DONE], ANY, {NEVER}),
    "so is what was delivered before": ([*LEFT, *kept(80, 1, FORWARDED), *DONE], ANY, {AFTER}),
    "not if a store was not read to which it may have come": (
        [*SENT, *role(10, "b1", "live", 9, 10, "other"), *kept(80, 1, FORWARDED), *DONE], ANY, set()),
    "not if it may have expired": ([*EXPIRED, *kept(80, 1, FORWARDED), *DONE], ANY, set()),
    "not if it was to wait": ([*DELAYED, *kept(80, 1, FORWARDED), *DONE], ANY, set()),
    # -------------------------------------------------------------------------------- dead letters
    "what is in the main store and among the dead letters is stuck": ([*LEFT, *both("main")], TWO, {AFTER}),
    "so is what is on its way and among them": ([*LEFT, *both(FORWARDED)], TWO, {AFTER}),
    "so is what did not expire, and is with what did": ([*LEFT, *both("expired")], TWO, {AFTER}),
    "what somebody holds is not, nor did it die early while the main store has it": (
        [*HELD, *both("main")], TWO, set()),
    "nor while it is on its way": ([*HELD, *both(FORWARDED)], TWO, set()),
    "what is to wait in the main store did": ([*DELAYED, *both("main")], TWO, {EARLY}),
    "so did what is to wait on its way": ([*DELAYED, *both(FORWARDED)], TWO, {EARLY}),
    "what came as of another group died there, if at all": (
        [*SENT, *deliver(5, 1, group="h"), *kept(80, 1, DEAD), *DONE], TWO, {CORRUPTED}),
    "what may have died with a session that never read it was refused too often": (
        [*SENT, *gone(8, 1, queue="q"), *DONE], Promises(delivery_attempts=1, attempts="given back"),
        {("lost", "refused too often")}),
    "it is where its broker drops the dead": ([*SENT, *gone(8, 1, queue="q"), *DONE], GIVEN_BACK, set()),
    "where transactions are batches, what was answered and never committed is not owed": (
        [*send(0, 1, transaction=9), *DONE], Promises(atomic=False), set()),
    "what was answered and committed is": (
        [*send(0, 1, transaction=9), *end(3, "commit", 9), *DONE], Promises(atomic=False),
        {("lost", "never delivered")}),
    # ---------------------------------------------------------------------------------- either way
    "what may have been acknowledged and is in its store is stuck either way": (
        [*SERVED, *UNKNOWN, *LET_GO, *STAYS], ANY, {EITHER}),
    "not if it came as of another group": (
        [*SERVED, *UNKNOWN, *LET_GO, *deliver(33, 1, 2, group="h"), *gone(34, 2), *STAYS], ANY, {CORRUPTED}),
    "nor if it may have expired by then": (
        [*EXPIRED, *deliver(4, 1), *answer(6, 1, outcome="info"), *gone(8, 1), *STAYS], ANY, set()),
    "not if it may wait for its redelivery": ([*SERVED, *UNKNOWN, *LET_GO, *STAYS], SLOW, set()),
    "not if it was sent again when the stores were read": (
        [*send(0, 1, "info"), *deliver(4, 1), *answer(6, 1, outcome="info"), *gone(8, 1), *DONE[:4],
         *send(96, 1), *kept(98, 1), *(dict(row, index=row["index"] + 10) for row in DONE[4:])], ANY, set()),
    # --------------------------------------------------------------------------------------- waits
    "what cannot have expired is stuck": (
        [*asking(0, 1, expires=(LATE, LATE)), *kept(80, 1), *DONE], ANY, {NEVER}),
    "what was due before the drain is": ([*asking(0, 1, delay=(5, 5)), *kept(80, 1), *DONE], ANY, {NEVER}),
    "not for certain if a clock was wrong": (
        [*asking(0, 1, delay=(5, 5)), *clock(4, "clock-step"), *kept(80, 1), *DONE], ANY, set()),
    "what was refused may wait, without a group, too": (
        ungrouped([*ONCE, *kept(80, 1)]) + DONE, SLOW, set()),
    "what nobody had, without a group, may not": (ungrouped([*SENT, *kept(80, 1)]) + DONE, SLOW, {NEVER}),
    # ----------------------------------------------------------------------------------- elsewhere
    "what was sent to another group is corrupted though it is sent to this one later": (
        [*send(0, 1, group="h"), *deliver(5, 1), *send(8, 1)], ANY, {CORRUPTED}),
    "what failed though nobody asked for it was never sent": (
        [*send(0, 1, "fail")[1:], *deliver(5, 1)], ANY, {("phantom", None)}),
    "what was answered though nobody asked for it was sent, whatever failed": (
        [*send(0, 1)[1:], *send(2, 1, "fail"), *deliver(5, 1)], ANY, set()),
    "an ack of what cannot be read, by who did not get it, is no phantom": (
        [*SERVED, *unreadable(20, 1), *({**row, "message": None} for row in answer(22, 1, 2))], ANY,
        {CORRUPTED}),
    "what may have been received unheard is not lost, but the rest is told": (
        [*SENT, *send(2, 2), o(4, 11, "invoke", "receive", queue="q"), *deliver(6, 2, digest=9), *DONE], ANY,
        {CORRUPTED}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_both_implementations_say_so(tmp_path, name):
    rows, promises, expected = CASES[name]
    options = CheckOptions(broker=promises)
    assert {(one.name, one.key) for one in agreed(tmp_path, tidy(rows), options)} == expected


COUNTED: dict[str, tuple[list[Row], dict[str, int]]] = {
    "a second and a third delivery are two": (
        [*SENT, *deliver(5, 1), *deliver(6, 1, 2, redelivered=True), *deliver(7, 1, 3, redelivered=True)],
        {delivery.REDELIVERED: 2}),
    "bodies that cannot be read are no redeliveries": (
        [*SENT, *deliver(5, 1), *unreadable(6, 1), *unreadable(7, 1)], {}),
    "what came though its send was not answered is recovered": (
        [send(0, 1)[0], *send(2, 2), *deliver(5, 1), *deliver(6, 2)], {delivery.RECOVERED: 1}),
    "what nobody sent is not recovered": ([*send(0, 2), *deliver(5, 1), *deliver(6, 2)], {}),
    "nor what failed to be sent": ([*send(0, 1, "fail"), *send(2, 2), *deliver(5, 1), *deliver(6, 2)], {}),
    "nor what did not come": ([send(0, 1)[0], *send(2, 2), *deliver(6, 2)], {}),
    "nor what was certainly sent": ([*SENT, *deliver(5, 1)], {}),
    "what two stores have is stuck once": (
        [*SENT, *kept(79, 1, FORWARDED), *kept(80, 1), *DONE], {"stuck": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_each_is_counted_once(tmp_path, name):
    rows, expected = COUNTED[name]
    case = judge.examine(
        judge.CheckRun(lay_out(tmp_path / "history", tidy(rows), slice_rows=100), CheckOptions())
    )
    assert case is not None
    counted = {one: found.count for one, found in case.found[0].items()}
    wanted = (delivery.REDELIVERED, delivery.RECOVERED, "stuck")
    assert {one: count for one, count in counted.items() if one in wanted} == expected
