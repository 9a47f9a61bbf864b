"""When deliveries lapse and acknowledgements are late, as both implementations know it.

Rows are a millisecond apart, a row's index is its time in milliseconds, and brokers wait for 20 of
them. The names of the cases are what they prove.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from checker_rows import MS, Row, o, table
from test_findings import answer, deliver, end, gone, send
from test_owed import joined

from checkers import reference_waits
from checkers.ends import Ends
from checkers.ends import read as ends_of
from checkers.links import LinkAnswers, SessionFacts, Spans, UnderWay, questions
from checkers.reference import History
from checkers.rows import (
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    FOREVER,
    NACK_INVOKE,
    NACK_OK,
    NONE,
    TIMEOUT,
    PlaceTable,
    Rows,
    from_table,
    lowest,
    ordered,
)  # fmt: skip
from checkers.rows import joined as joined_tables
from checkers.sessions import proofs, proven
from checkers.source import WITH_MESSAGES
from checkers.timeouts import NEVER, Lapses, lapses, taken_back_unread
from checkers.verdict import CheckOptions, Promises

FREE = -1
"""The end of a hold that is certain at no moment."""
NO_WAIT = Promises()
WAITS = Promises(ack_wait_s=0.020)
LENIENT = Promises(ack_wait_s=0.020, refuses_stale_acks=False)
UNORDERED = Promises(ack_wait_s=0.020, answers_in_order=False)
SOMETIMES = Promises(ack_wait_s=0.020, marks_redeliveries="same-process")

Held = dict[int, tuple[int | None, int | None]]


@dataclass
class Known:
    """What is known of deliveries and acknowledgements, by the indexes of their rows.

    ``held`` has since when (ms) each delivery can have been sent, and until when it was certainly
    held; None for unknown and for ever. ``excused`` are the deliveries that may have been taken
    back, unread, before their message was settled.
    """

    held: Held = field(default_factory=dict)
    certain: set[int] = field(default_factory=set)
    unread: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)


def read(rows: list[Row]) -> tuple[Rows, Rows, Ends]:
    """Return the rows about messages, the control rows, and the ends that they tell."""
    with_queue = [row["f"] in WITH_MESSAGES and "queue" in row for row in rows]
    about, control = (
        table([row for row, one in zip(rows, with_queue, strict=True) if one is wanted])
        for wanted in (True, False)
    )
    return from_table(about, PlaceTable()), from_table(control, PlaceTable()), ends_of(control)


def session_facts(part: Rows, control: Rows, ends: Ends) -> SessionFacts:
    at = part.of(DELIVER)
    keys = part.run[at], part.session[at], part.connection[at], np.full(len(at), NONE)
    spans = Spans.of(UnderWay(*keys, np.full(len(at), -1), np.full(len(at), FOREVER)))
    answered = joined_tables([questions(control, spans), questions(part, spans)])
    return SessionFacts(proven([proofs(part)], ends.sessions), LinkAnswers(answered))


def excused(
    part: Rows, ends: Ends, promises: Promises, found: Lapses, under_way_after: int = FOREVER
) -> set[int]:
    at = part.of(DELIVER, ACK_INVOKE, ACK_OK, NACK_INVOKE, NACK_OK, TIMEOUT)
    at = at[part.session[at] != NONE]
    order = at[ordered(part.id[at], part.session[at], part.index[at])]
    ids, index, transaction = part.id[order], part.index[order], part.transaction[order]
    commit = ends.transactions.find("commit", part.run[order], transaction)
    settles = np.where(transaction == NONE, index, commit)
    settles = np.where(part.kind[order] == ACK_OK, settles, NONE)
    after = np.full(len(order), under_way_after)
    flags = taken_back_unread(part, order, settles, after, found, promises, ends)
    settled = lowest(ids[settles != NONE], settles[settles != NONE], part.messages)[ids]
    is_again = (part.kind[order] == DELIVER) & (settled != NONE) & (settled < index)
    return set(index[flags & is_again].tolist())


def by_columns(rows: list[Row], promises: Promises, *, alone: bool) -> Known:
    part, control, ends = read(rows)
    found = lapses(part, ends, promises, None if alone else session_facts(part, control, ends))
    at, oks = part.of(DELIVER), part.of(ACK_OK, NACK_OK)
    since, lapse = found.since_of(at).tolist(), found.lapse_of(at).tolist()
    held = {
        index: (None if begin < 0 else begin // MS, None if until == NEVER else max(until // MS, FREE))
        for index, begin, until in zip(part.index[at].tolist(), since, lapse, strict=True)
    }
    return Known(
        held,
        set(part.index[at[found.certain_of(at)]].tolist()),
        set(part.index[at[found.unread_of(at)]].tolist()),
        set(part.index[oks[found.are_late(oks)]].tolist()),
        set() if alone else excused(part, ends, promises, found),
    )


def by_reference(rows: list[Row], promises: Promises, *, alone: bool) -> Known:
    history, options, result = History(rows, atomic=True), CheckOptions(broker=promises), Known()
    for about in history.messages.values():
        timed = promises.ack_wait_s is not None or any(row["f"] == "timeout" for row in about)
        settlements = [
            (settled, row)
            for row in about
            if row["f"] == "ack" and row["type"] == "ok"
            if (settled := _settled(history, row)) is not None
        ]
        for row in about:
            index = row["index"]
            if row["f"] == "deliver" and None in (row.get("session"), row.get("message")):
                result.held[index] = (None, None)
            elif row["f"] == "deliver":
                told = reference_waits.time_outs(about, row["session"])
                since = reference_waits.given_since(history, about, row, options, own_rows_only=alone)
                until = reference_waits.lapses(history, about, row, options, own_rows_only=alone)
                result.held[index] = (
                    None if since < 0 or not timed else since // MS,
                    None if until == reference_waits.NEVER else max(until // MS, FREE),
                )
                result.certain |= {index} & told.certainly
                result.unread |= {index} & told.unread
                excuses = [
                    reference_waits.may_have_been_taken_back(history, about, row, ack, settled, options)
                    for settled, ack in settlements
                    if settled < index
                ]
                result.excused |= {index} if excuses and all(excuses) and not alone else set()
            elif row["f"] in ("ack", "nack") and row["type"] == "ok":
                is_late = reference_waits.is_late(history, about, row, options, own_rows_only=alone)
                result.late |= {index} if is_late else set()
    return result


def _settled(history: History, ack: Row) -> int | None:
    transaction = ack.get("transaction")
    return ack["index"] if transaction is None else history.ended(transaction, "commit", "ok")


def known(rows: list[Row], promises: Promises, *, alone: bool = False) -> Known:
    """Return what both implementations know; ``alone``: from the rows of each message alone."""
    rows = sorted(rows, key=lambda row: row["index"])
    result = by_columns(rows, promises, alone=alone)
    assert result == by_reference(rows, promises, alone=alone)
    return result


def time_out(at: int, session: int = 1, message: int = 1) -> list[Row]:
    return [o(at, 40, "info", "timeout", message, session=session)]


def got(at: int, session: int = 1, **columns: Any) -> list[Row]:
    """A first delivery."""
    return deliver(at, 1, session, **columns)


def again(at: int, session: int = 2, **columns: Any) -> list[Row]:
    """A delivery that is marked as a redelivery."""
    return deliver(at, 1, session, redelivered=True, **columns)


def bare(at: int, session: int = 1) -> list[Row]:
    """A delivery whose mark is not known."""
    return deliver(at, 1, session, redelivered=None)


def acked(at: int, session: int = 1, **columns: Any) -> list[Row]:
    return answer(at, 1, session, **columns)


def nacked(at: int, session: int = 1, **columns: Any) -> list[Row]:
    return answer(at, 1, session, f="nack", **columns)


BOTH = [*joined(0), *joined(2, 2)]
SENT = [*BOTH, *send(4, 1)]
HELD = [*SENT, *got(6)]
OTHER = [*send(7, 2), *deliver(9, 2), *answer(12, 2)]
"""Session 1 acknowledges another message."""

# ------------------------------------------------------------------------------------ who held what

CASES: dict[str, tuple[list[Row], Promises, Held]] = {
    "it was sent after its send": (HELD, WAITS, {6: (4, 24)}),
    "a send that was asked for later tells nothing": (
        [*BOTH, *got(10), *send(12, 1)], WAITS, {10: (0, 20)}),
    "it was sent after its session was asked for": (
        [*send(0, 1), *joined(5)[:1], *got(10)], WAITS, {10: (5, 25)}),
    "a session that was asked for later tells nothing": (
        [*send(0, 1), *got(10), *joined(12)], WAITS, {10: (0, 20)}),
    "it was sent after the client had asked for it": (
        [*SENT, *got(10, time_low=8 * MS)], WAITS, {10: (8, 28)}),
    "it was sent after a question that was answered before": (
        [*SENT, *OTHER, *got(15)], WAITS, {9: (7, 27), 15: (12, 32)}),
    "not where answers and deliveries have no order": (
        [*SENT, *OTHER, *got(15)], UNORDERED, {9: (7, 27), 15: (4, 24)}),
    "what no row tells of was sent at any time": (
        [*got(6), *acked(10), *again(30)], WAITS, {6: (None, FREE), 30: (None, FREE)}),
    "without a promise it was held for ever": (HELD, NO_WAIT, {6: (None, None)}),
    "a body that cannot be read is compared with no other": (
        [*HELD, *deliver(7, None), *deliver(8, None)],
        WAITS, {6: (4, 24), 7: (None, None), 8: (None, None)}),
    "what no session read is compared with nothing": (
        [*HELD, o(30, 12, "ok", "deliver", 1)], WAITS, {6: (4, 24), 30: (None, None)}),
    # ---------------------------------------------------------------------------- after another one
    "it was given away when another's time was over": (
        [*HELD, *again(30)], WAITS, {6: (4, 24), 30: (24, 44)}),
    "what was given away before may be a mistake": ([*HELD, *again(20)], WAITS, {6: (4, 24), 20: (4, 24)}),
    "a session that was alive later had it until then": (
        [*HELD, *OTHER, *again(20), *send(30, 3), *deliver(32, 3)], WAITS,
        {6: (4, 24), 9: (7, 27), 20: (20, 40), 32: (30, 50)}),
    "each is compared with all that were read before": (
        [*HELD, *again(30), *again(60, 1)], WAITS, {6: (4, 24), 30: (24, 44), 60: (44, 64)}),
    "a session that ended may have lost it at any time": (
        [*SENT, *got(10, time_low=8 * MS), *gone(11, 1), *again(40)], WAITS, {10: (8, 28), 40: (8, 28)}),
    "what a row says was taken back may have been so at any time": (
        [*HELD, *time_out(8), *again(30)], WAITS, {6: (4, FREE), 30: (4, 24)}),
    "what is not marked may have been sent so long before that it had lapsed": (
        [*SENT, *bare(30), *bare(60, 2)], WAITS, {30: (4, 24), 60: (4, 24)}),
    "not so shortly before": ([*SENT, *bare(23), *bare(60, 2)], WAITS, {23: (4, 24), 60: (24, 44)}),
    "nor where a mark says that it was sent later": (
        [*SENT, *got(30), *again(60)], WAITS, {30: (4, 24), 60: (24, 44)}),
    # ------------------------------------------------------------------------- after it was settled
    "an ack settles it when it is answered": (
        [*HELD, *acked(10), *again(30)], WAITS, {6: (4, 24), 30: (11, 31)}),
    "the first answer counts": (
        [*HELD, *acked(10), *acked(14), *again(30)], WAITS, {6: (4, 24), 30: (11, 31)}),
    "where stale acks are refused it had it until a late answer": (
        [*HELD, *acked(30), *again(40)], WAITS, {6: (4, 24), 40: (31, 51)}),
    "otherwise for its time": ([*HELD, *acked(30), *again(40)], LENIENT, {6: (4, 24), 40: (24, 44)}),
    "where nothing was answered, too": (
        [*HELD, *acked(30, outcome="info"), *again(40)], WAITS, {6: (4, 24), 40: (24, 44)}),
    "an ack that was not answered may settle it when it is asked for": (
        [*HELD, *acked(10, outcome="info"), *again(30)], WAITS, {6: (4, 24), 30: (10, 30)}),
    "the first question counts": (
        [*HELD, *acked(10, outcome="info"), *acked(14, outcome="info"), *again(30)], WAITS,
        {6: (4, 24), 30: (10, 30)}),
    "an ack that was asked for later had not settled it": (
        [*HELD, *again(30), *acked(35)], WAITS, {6: (4, 24), 30: (24, 44)}),
    "a nack may settle it when it is asked for": (
        [*HELD, *nacked(10), *again(30)], WAITS, {6: (4, 24), 30: (10, 30)}),
    "in a transaction, too": (
        [*HELD, *nacked(10, transaction=9), *again(30)], WAITS, {6: (4, 24), 30: (10, 30)}),
    "an ack in a transaction may settle nothing before its end": (
        [*HELD, *acked(10, transaction=9, outcome="info"), *again(30)], WAITS, {6: (4, 24), 30: (24, 44)}),
    "it may when a commit is asked for": (
        [*HELD, *acked(10, transaction=9, outcome="info"), *end(16, "commit", 9), *again(30)], WAITS,
        {6: (4, 24), 30: (10, 30)}),
    "or an abort": (
        [*HELD, *acked(10, transaction=9, outcome="info"), *end(16, "abort", 9), *again(30)], WAITS,
        {6: (4, 24), 30: (10, 30)}),
    "whichever may settle it first": (
        [*HELD, *acked(10, transaction=9, outcome="info"), *acked(14, outcome="info"),
         *end(20, "commit", 9), *again(30)], WAITS, {6: (4, 24), 30: (14, 34)}),
    "and not one that has no end": (
        [*HELD, *acked(10, outcome="info"), *acked(14, transaction=9, outcome="info"), *again(30)], WAITS,
        {6: (4, 24), 30: (10, 30)}),
    # ---------------------------------------------------------------------------- an ack on its way
    "what comes while an answer is on its way may have been settled by that": (
        [*HELD, nacked(8)[0], *again(12, 1), nacked(8)[1] | {"index": 13, "time": 13 * MS}], WAITS,
        {6: (4, 24), 12: (8, FREE)}),
    "not what comes after the answer": ([*HELD, *nacked(8), *again(12, 1)], WAITS, {6: (4, 24), 12: (8, 28)}),
    "nor where nothing of it is ever taken back": (
        [*HELD, nacked(8)[0], *again(12, 1), nacked(8)[1] | {"index": 13, "time": 13 * MS},
         *send(20, 2), *deliver(22, 2), *time_out(24, 1, 2)], NO_WAIT,
        {6: (None, None), 12: (None, None), 22: (20, FREE)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_since_when_it_can_have_been_sent_and_until_when_it_was_held(name):
    rows, promises, expected = CASES[name]
    assert known(rows, promises).held == expected
    known(rows, promises, alone=True)


def test_the_rows_of_a_message_alone_tell_less():
    assert known([*SENT, *OTHER, *got(15)], WAITS, alone=True).held == {9: (7, 27), 15: (4, 24)}
    rows = [*HELD, *OTHER, *again(20), *send(30, 3), *deliver(32, 3)]
    assert known(rows, WAITS, alone=True).held[20] == (4, 24)


@pytest.mark.parametrize(
    ("first", "second", "promises", "expected"),
    [
        ({"redelivered": False}, {"redelivered": True}, WAITS, 8),
        ({"redelivered": None}, {"redelivered": True}, WAITS, 4),
        ({"redelivered": False}, {"redelivered": None}, WAITS, 4),
        ({"redelivered": True}, {"redelivered": True}, WAITS, 4),
        ({"redelivered": False}, {"redelivered": False}, WAITS, 4),
        ({"redelivered": False}, {"redelivered": True}, SOMETIMES, 4),
        ({"delivery_count": 1}, {"delivery_count": 2}, SOMETIMES, 8),
        ({"delivery_count": 2}, {"delivery_count": 2}, SOMETIMES, 4),
        ({"delivery_count": 2}, {"delivery_count": 1}, SOMETIMES, 4),
        ({}, {"delivery_count": 2}, SOMETIMES, 4),
    ],
)
def test_marks_and_counts_tell_which_delivery_was_sent_first(first, second, promises, expected):
    rows = [*SENT, *got(10, time_low=8 * MS, **first), *gone(11, 1), *got(14, 2, **second)]
    assert known(rows, promises).held[14] == (expected, expected + 20)


def test_only_messages_that_are_asked_about_lapse():
    rows = [*HELD, *send(7, 2), *deliver(9, 2), *send(10, 3), *deliver(12, 3)]
    part, _, ends = read(rows)
    about = np.isin(part.message[part.first_row], [1, 3])
    assert part.index[lapses(part, ends, WAITS, of=about).at].tolist() == [6, 12]


# -------------------------------------------------------------------------------- what rows say

TOLD: dict[str, tuple[list[Row], set[int], set[int]]] = {
    "a row says that it was taken back": ([*HELD, *time_out(8)], {6}, set()),
    "no row says so of another message": (
        [*SENT, *time_out(5), *got(6), *send(10, 2), *deliver(12, 2)], {6}, {6}),
    "if nothing was read yet, it is about what is read next": ([*SENT, *time_out(5), *got(6)], {6}, {6}),
    "after an ack was asked for it may be about either": (
        [*HELD, *acked(8, outcome="info"), *time_out(10), *again(12, 1)], set(), {12}),
    "what was read after the ack was not asked for": (
        [*HELD, *nacked(8), *again(12, 1), *time_out(14)], {12}, set()),
    "a second row is about what is read next": (
        [*HELD, *time_out(8), *time_out(9), *again(12, 1)], {6, 12}, {12}),
    "a row of another session says nothing": ([*HELD, *time_out(8, 2)], set(), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_rows_say_that_a_delivery_was_taken_back(name):
    rows, certain, unread = TOLD[name]
    for promises in (NO_WAIT, WAITS):
        result = known(rows, promises)
        assert (result.certain, result.unread) == (certain, unread)
        assert {index for index, (_, until) in result.held.items() if until == FREE} >= certain | unread


LATE: dict[str, tuple[list[Row], Promises, set[int]]] = {
    "an ack in time is not late": ([*HELD, *acked(8)], LENIENT, set()),
    "an ack that is answered in the last moment is late": ([*HELD, *acked(23)], LENIENT, {24}),
    "so is a nack": ([*HELD, *nacked(30)], LENIENT, {31}),
    "none is late where stale acks are refused": ([*HELD, *acked(30)], WAITS, set()),
    "none is late of what the session never had": ([*HELD, *acked(30, 2)], LENIENT, set()),
    "none is late of another message": (
        [*HELD, *send(7, 2), *deliver(29, 2, 2), *answer(30, 2), *answer(32, 2, 2)], LENIENT, {33}),
    "an ack is of what was read before it was asked for": (
        [*HELD, acked(22)[0], *again(25, 1), *acked(25)[1:]], LENIENT, {26}),
    "and of the latest of these": ([*HELD, *again(25, 1), *acked(26)], LENIENT, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_an_acknowledgement_is_late_where_its_delivery_had_lapsed(name):
    rows, promises, expected = LATE[name]
    assert known(rows, promises).late == expected
    known(rows, promises, alone=True)


# ----------------------------------------------------------------------- unread when it was settled

SETTLED = [*SENT, *again(30), *acked(31, 2)]
EXCUSED: dict[str, tuple[list[Row], Promises, set[int]]] = {
    "it may have lapsed before what was settled": ([*SETTLED, *got(40)], WAITS, {40}),
    "not if it was sent too late for that": ([*SETTLED, *got(40, time_low=11 * MS)], WAITS, set()),
    "it may have lapsed just when that was read": ([*SETTLED, *got(40, time_low=10 * MS)], WAITS, {40}),
    "not if its mark says that it was sent later": (
        [*SENT, *got(30), *acked(31, 2), *gone(33, 2), *again(40, 1)], WAITS, set()),
    "not if nobody had what was settled": ([*SENT, *acked(31, 2), *got(40)], WAITS, set()),
    "without a promise it never lapses": ([*SETTLED, *got(40)], NO_WAIT, set()),
    "a row may say so, whenever it lapsed": (
        [*SENT, *time_out(5), *again(8), *acked(9, 2), *got(30)], WAITS, {30}),
    "where a row may say so": ([*SENT, *time_out(5), *again(8), *acked(9, 2), *got(30)], NO_WAIT, {30}),
    "a commit settles it later": (
        [*SENT, *again(30), *acked(31, 2, transaction=9), *end(33, "commit", 9), *gone(39, 2),
         *got(40, time_low=14 * MS)], WAITS, {40}),
    "an answer before that": (
        [*SETTLED, *end(33, "commit", 9), *gone(39, 2), *got(40, time_low=14 * MS)], WAITS, set()),
    "what was settled is what was read before the ack was asked for": (
        [*SENT, *again(30), acked(31, 2)[0], *got(32, 2), *time_out(33, 2), *acked(33, 2)[1:],
         *gone(55, 2), *again(60, 1)], WAITS, {60}),
    "or before the answer, where no row has the question": (
        [*SENT, *again(30), *acked(31, 2)[1:], *got(40)], WAITS, {40}),
    "and not what the session read and acknowledged after it": (
        [*SETTLED, *got(50, 2), *acked(51, 2)[:1], *gone(55, 2), *again(60, 1)],
        UNORDERED, {50, 60}),
    "nor a refusal of it": (
        [*SENT, *got(30, 2), *nacked(31, 2), *acked(34, 2), *gone(55, 2), *again(60, 1)], WAITS, set()),
    "what is settled after it was read does not matter": (
        [*SETTLED, *got(40), *acked(50, 3)], WAITS, {40}),
}  # fmt: skip


@pytest.mark.parametrize("name", EXCUSED)
def test_a_delivery_may_have_been_taken_back_before_its_message_was_settled(name):
    rows, promises, expected = EXCUSED[name]
    assert known(rows, promises).excused == expected


def test_what_may_have_been_under_way_needs_no_excuse():
    rows = [*SETTLED, *acked(36, 3), *got(40)]
    part, control, ends = read(sorted(rows, key=lambda row: row["index"]))
    found = lapses(part, ends, WAITS, session_facts(part, control, ends))
    assert excused(part, ends, WAITS, found, 37) == set()
    assert excused(part, ends, WAITS, found, 36) == {40}
