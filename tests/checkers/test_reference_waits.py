"""Brokers that take back what is not acknowledged in time.

For each clause a history that has the finding, and one as near as can be that has not. Rows are a
millisecond apart, and brokers wait for 20 of these.
"""

from __future__ import annotations

import pytest
from checker_rows import MS, Row, agreed, finished, o, phase
from test_findings import answer, deliver, end, gone, kept, send
from test_owed import joined

from checkers import reference
from checkers.verdict import CheckOptions, Promises

DONE = finished(90)
NO_WAIT = Promises()
WAITS = Promises(ack_wait_s=0.02)
LENIENT = Promises(ack_wait_s=0.02, refuses_stale_acks=False)
BOTH = [*joined(0, 1), *joined(2, 2)]
DOUBLE = {"double-delivery", "group-split"}


def timeout(at: int, session: int = 1) -> list[Row]:
    return [o(at, 40, "info", "timeout", 1, session=session)]


def again(at: int, session: int = 1, **columns: object) -> list[Row]:
    return deliver(at, 1, session, redelivered=True, **columns)


def two(second: int, *more: Row, first: int = 6, proof: int = 70) -> list[Row]:
    """Given to session 1, then to session 2, and both are there until later."""
    return [
        *BOTH, *send(4, 1), *deliver(first, 1), *again(second, 2), *more,
        *answer(proof, 1, 2), *send(60, 2, group="h"), *deliver(62, 2, 1, group="h"),
        *answer(proof + 2, 2, group="h"),
    ]  # fmt: skip


HELD = [*BOTH, *send(4, 1), *deliver(6, 1)]
SECOND = [*answer(32, 1, 2)]

CASES: dict[str, tuple[list[Row], Promises, set[str]]] = {
    # ------------------------------------------------------------------------------ what is refused
    "a session that refuses what it has not got refuses nothing": (
        [*joined(0, 1), *send(4, 1), o(6, 11, "invoke", "nack", 1, session=1), *deliver(8, 1),
         *again(12)], WAITS, {"duplicate"}),
    "what it has got, and refuses, may come again": (
        [*joined(0, 1), *send(4, 1), *deliver(6, 1), o(8, 11, "invoke", "nack", 1, session=1),
         *again(12)], WAITS, set()),
    # -------------------------------------------------------------------------------- who holds it
    "two hold it at once": (two(30), NO_WAIT, DOUBLE),
    "not if the broker had taken it back from the first": (two(30), WAITS, set()),
    "what it took back just then it may give out": (two(24), WAITS, set()),
    "before that it may not": (two(23), WAITS, DOUBLE),
    "it counts from when it sent it, which was before it was read": (two(30, first=15), WAITS, set()),
    "it had not sent it before a question that was answered before": (
        two(30, *answer(13, 9, outcome="ok", group="k"), *send(7, 9, group="k"), *deliver(9, 9, group="k"),
            first=16), WAITS, DOUBLE),
    "nor before it was asked for": (
        [dict(row, time_low=15 * MS) if row["index"] == 16 else row for row in two(30, first=16)], WAITS,
        DOUBLE),
    "a row that says so counts as well": (two(20, *timeout(18)), NO_WAIT, set()),
    "and if its client heard of it only later": (two(18, *timeout(20)), NO_WAIT, set()),
    "and if its client had not yet read it": (two(20, *timeout(5)), NO_WAIT, set()),
    "not one of another session": (two(20, *timeout(18, 3)), NO_WAIT, DOUBLE),
    "nor one of a delivery before": (
        two(30, *timeout(10), *again(12), *answer(8, 2, outcome="fail", group="h")), NO_WAIT, DOUBLE),
    # ------------------------------------------------------------------------------ what gives back
    "one session gets it twice for nothing": ([*HELD, *again(30)], NO_WAIT, {"duplicate"}),
    "not if it was taken back meanwhile": ([*HELD, *again(30)], WAITS, set()),
    "too early it was not": ([*HELD, *again(20)], WAITS, {"duplicate"}),
    "a row says that it was": ([*HELD, *timeout(10), *again(12)], NO_WAIT, set()),
    "once": ([*HELD, *timeout(10), *again(12), *again(14)], NO_WAIT, {"duplicate"}),
    "before it was read": ([*BOTH, *send(4, 1), *timeout(5), *deliver(6, 1), *again(12)], NO_WAIT, set()),
    "a redelivery must be marked as ever": (
        [*HELD, *deliver(30, 1)], WAITS, {"unflagged-redelivery"}),
    "what was taken back, and is nowhere, is lost": ([*HELD, *DONE], WAITS, {"lost"}),
    "what is held is not": ([*HELD, *DONE], NO_WAIT, set()),
    "nor what is held until after the drain began": (
        [*HELD[:-1], *deliver(80, 1), *DONE], WAITS, set()),
    "what a row says was taken back, and is nowhere, is lost": (
        [*HELD, *timeout(20), *DONE], NO_WAIT, {"lost"}),
    "not where that may be said of another delivery": (
        [*HELD, *answer(8, 1, f="nack"), *timeout(20), *again(22), *DONE], NO_WAIT, set()),
    "what was taken back, and lies there, is stuck": ([*HELD, *kept(80, 1), *DONE], WAITS, {"stuck"}),
    # -------------------------------------------------------------------------------- acks too late
    "an ack of who has it no more may be answered": (
        [*HELD, *again(30, 2), *SECOND, *answer(40, 1)], LENIENT, set()),
    "it may not have settled anything": (
        [*HELD, *again(30, 2), *answer(32, 1), *again(60, 2), *answer(62, 1, 2)], LENIENT, set()),
    "in time it has": (
        [*HELD, *answer(8, 1), *again(60, 2), *answer(62, 1, 2)], LENIENT, {"duplicate"}),
    "where stale acks are refused it has": (
        [*HELD, *answer(32, 1), *again(60, 2), *answer(62, 1, 2, "fail")], WAITS, {"duplicate"}),
    "it may have settled it": ([*HELD, *answer(32, 1), *gone(35, 1), *DONE], LENIENT, set()),
    "what it left in a store is wrong either way": (
        [*HELD, *answer(32, 1), *gone(35, 1), *finished(90)[:4], *kept(94, 1),
         o(95, -3, "ok", "browse", broker="a1"), phase(96, "end")], LENIENT, {"stuck"}),
    "what it is owed is judged by its own rows, whatever says that the ack was in time": (
        [*BOTH, *send(4, 1), *send(7, 9, group="k"), *deliver(9, 9, group="k"), *answer(22, 9, group="k"),
         *deliver(25, 1), *answer(26, 1), *kept(80, 1, "dead-letter"), *DONE], LENIENT, {"died-early"}),
    "it came back from the dead if it was certainly in time": (
        [*BOTH, *send(4, 1), *deliver(5, 1), *answer(6, 1), *kept(80, 1, "dead-letter"), *DONE], LENIENT,
        {"resurrected"}),
    "two settled what both had": (
        [*HELD, *again(15, 2), *answer(16, 1, 2), *answer(18, 1)], NO_WAIT, DOUBLE),
    "not if the first may have had it no more": (
        [*HELD, *timeout(12), *again(15, 2), *answer(16, 1, 2), *answer(18, 1)], NO_WAIT, set()),
    "who reads what was taken back unread gets no duplicate": (
        [*BOTH, *send(4, 1), *timeout(6), *again(8, 2), *answer(9, 1, 2), *deliver(12, 1)], NO_WAIT, set()),
    "nor who got it long before its redelivery was settled": (
        [*BOTH, *send(4, 1), *again(30, 2), *answer(31, 1, 2), *deliver(40, 1)], WAITS, set()),
    "who got it first had it first": (
        [*BOTH, *send(4, 1), *deliver(30, 1, 2), *answer(31, 1, 2), *again(40)], WAITS,
        {"duplicate"}),
    "who was counted lower had it first": (
        [*BOTH, *send(4, 1), *again(30, 2, delivery_count=2), *answer(31, 1, 2),
         *again(40, delivery_count=3)], WAITS, {"duplicate"}),
    "a refusal on its way may refuse what came meanwhile": (
        [*HELD, *timeout(10), answer(11, 1, f="nack")[0], *again(12), answer(13, 1, f="nack")[1], *again(16)],
        NO_WAIT, set()),
    # --------------------------------------------------------------------------------------- others
    "an ack in a transaction may be of what was given again": (
        [*HELD, answer(10, 1, transaction=9)[0], *timeout(12), *again(14), answer(15, 1, transaction=9)[1],
         *send(20, 2, group="h", transaction=9), *end(22, "commit", 9), *deliver(30, 2, 2, group="h"),
         *answer(31, 2, 2, group="h")], NO_WAIT, set()),
    "a time-out counts where all does that is given back": (
        [*HELD, *timeout(12), *again(14), *timeout(20), *kept(80, 1, "dead-letter"), *DONE],
        Promises(delivery_attempts=2, attempts="given back"), set()),
    "and not where refusals alone do": (
        [*HELD, *timeout(12), *again(14), *timeout(20), *kept(80, 1, "dead-letter"), *DONE],
        Promises(delivery_attempts=2), {"died-early"}),
}  # fmt: skip


def found(rows: list[Row], promises: Promises) -> set[str]:
    rows = sorted(rows, key=lambda row: row["index"])
    return {one.name for one in reference.find(rows, CheckOptions(broker=promises))}


@pytest.mark.parametrize("name", CASES)
def test_who_has_a_message_that_may_have_been_taken_back(tmp_path, name):
    rows, promises, expected = CASES[name]
    rows = sorted(rows, key=lambda row: row["index"])
    instances = agreed(tmp_path, rows, CheckOptions(broker=promises))
    assert {one.name for one in instances} == expected


GROUP = [*BOTH, *send(4, 1), *deliver(6, 1), *send(8, 2), *deliver(30, 2, 2), *answer(60, 2, 2),
         *send(61, 3, group="h"), *deliver(63, 3, 1, group="h"), *answer(64, 3, group="h")]  # fmt: skip


@pytest.mark.parametrize(("promises", "expected"), [(NO_WAIT, {"group-split"}), (WAITS, set())])
def test_a_group_is_free_when_what_was_held_of_it_was_taken_back(promises, expected):
    assert found(GROUP, promises) == expected
