"""A message that is sent more than once: its fate follows from all attempts.

Of each clause a history that is guilty, and one as near as can be that is innocent, judged by both
implementations.
"""

from __future__ import annotations

import msgspec
import pytest
from checker_rows import Row, agreed, o
from test_excuses import killed
from test_fates import DONE, joined
from test_findings import OPTIONS, deliver, end, gone, kept, role, tidy

from checkers import reference
from checkers.reference_attempts import is_recovered
from checkers.verdict import Promises

BATCHES = Promises(atomic=False)


def attempt(at: int, message: int, outcome: str | None, *, by: int = 1, **columns: object) -> list[Row]:
    """A send of producer 1 by that process, answered in the next row, or never."""
    place = {"producer": 1, "sequence": message, "digest": message, **columns}
    asked = o(at, by, "invoke", "send", message, **place)
    if outcome is None:
        return [asked]
    return [asked, o(at + 1, by, outcome, "send", message, **{"broker": "a1", **place})]


def within(transaction: int, at: int, message: int = 1, outcome: str | None = "ok", by: int = 1) -> list[Row]:
    return attempt(at, message, outcome, by=by, transaction=transaction)


LATE = '{"delay": [900000000, 950000000]}'
SOON = '{"expires": [10000000, 20000000]}'
READ = deliver(40, 1)
FOUND = kept(40, 1, "dead-letter")
TWO_FIRST = [*deliver(40, 2), *deliver(41, 1)]
"""Message 2 is first delivered before message 1."""
GIVEN_BACK = [
    *deliver(10, 1),
    *gone(12, 1),
    *joined(13, 2),
    *deliver(15, 2, 2),
    *deliver(16, 1, 2, redelivered=True),
]
"""Message 1 is given back, and comes after message 2 in another session."""
NODE_A = [*role(0, "a1", "live", 0, 0, "a"), *role(1, "a2", "backup", 0, 0, "a")]
LATER = attempt(20, 2, "ok", by=9)
"""Message 2 is sent when every attempt to send message 1 is over."""

FIRST_LIVE = role(2, "a1", "live", 2, 2, "a")
TAKEN_OVER = [
    *killed(8, "a1"),
    *role(9, "a1", "stopped", 8, 9, "a"),
    *role(10, "a2", "live", 10, 11, "a"),
    *attempt(20, 2, "ok", by=9, broker="a2"),
    *deliver(40, 2, broker="a2"),
    *deliver(41, 1, broker="a2"),
]
"""Its backup takes over from a1, and message 2, which is sent then, comes before message 1."""

CASES: dict[str, tuple[list[Row], set[str]]] = {
    # ---------------------------------------------------------------------------- aborted-delivery
    "what failed twice must not be delivered": (
        [*attempt(0, 1, "fail"), *attempt(2, 1, "fail", by=2), *READ], {"aborted-delivery"}),
    "what failed twice must not be in a store": (
        [*attempt(0, 1, "fail"), *attempt(2, 1, "fail", by=2), *FOUND], {"aborted-delivery"}),
    "what was unknown and then failed may be delivered": (
        [*attempt(0, 1, "info"), *attempt(2, 1, "fail", by=2), *READ], set()),
    "what failed and then was unknown may be delivered": (
        [*attempt(0, 1, "fail"), *attempt(2, 1, "info", by=2), *READ], set()),
    "what was never answered and then failed may be in a store": (
        [*attempt(0, 1, None), *attempt(2, 1, "fail", by=2), *FOUND], set()),
    "what failed and then was never answered may be delivered": (
        [*attempt(0, 1, "fail"), *attempt(2, 1, None, by=2), *READ], set()),
    "what was sent and then failed may be delivered": (
        [*attempt(0, 1, "ok"), *attempt(2, 1, "fail", by=2), *READ], set()),
    "what one process asked twice, the first time in vain, is answered in turn": (
        [*attempt(0, 1, "fail"), *attempt(2, 1, "info"), *READ], set()),
    "what is delivered when its only attempt by then had failed was not sent": (
        [*attempt(0, 1, "fail"), *READ, *attempt(50, 1, "ok", by=2)], {"aborted-delivery"}),
    "what is delivered when an attempt by then was unknown may have been sent": (
        [*attempt(0, 1, "info"), *READ, *attempt(50, 1, "ok", by=2)], set()),
    # ----------------------------------------------------------------------------- in transactions
    "what two transactions rolled back must not be delivered": (
        [*within(5, 0), *end(2, "commit", 5, "info"), *end(4, "abort", 5), *within(6, 6, by=2),
         *end(8, "commit", 6, "info"), *end(10, "abort", 6), *READ], {"aborted-delivery"}),
    "what one transaction rolled back and another may have committed may be delivered": (
        [*within(5, 0), *end(2, "commit", 5, "info"), *end(4, "abort", 5), *within(6, 6, by=2),
         *end(8, "commit", 6, "info"), *READ], set()),
    "what one transaction rolled back and another committed may be delivered": (
        [*within(5, 0), *end(4, "abort", 5), *within(6, 6, by=2), *end(8, "commit", 6), *READ], set()),
    "what was rolled back and then failed must not be in a store": (
        [*within(5, 0), *end(2, "abort", 5), *attempt(6, 1, "fail", by=2), *FOUND], {"aborted-delivery"}),
    "what was rolled back and then sent without a transaction may be delivered": (
        [*within(5, 0), *end(2, "abort", 5), *attempt(6, 1, "ok", by=2), *READ], set()),
    "what a transaction sent whose commit failed must not be in a store": (
        [*within(5, 0), *end(2, "commit", 5, "fail"), *FOUND], {"aborted-delivery"}),
    "what a transaction sent whose commit failed once and then was unknown may be delivered": (
        [*within(5, 0), *end(2, "commit", 5, "fail"), *end(4, "commit", 5, "info"), *READ], set()),
    "what failed in a transaction that was committed must not be delivered": (
        [*within(5, 0, outcome="fail"), *end(2, "commit", 5), *READ], {"aborted-delivery"}),
    # ---------------------------------------------------------------------------- read-uncommitted
    "what only open transactions sent must not be delivered": (
        [*within(5, 0), *within(6, 2, by=2), *READ], {"read-uncommitted"}),
    "what an open transaction sent may be delivered if it was sent without one, too": (
        [*within(5, 0), *attempt(2, 1, "info", by=2), *READ], set()),
    "what an open transaction sent may be delivered if another that sent it was committed": (
        [*within(5, 0), *within(6, 2, by=2), *end(4, "commit", 6), *READ], set()),
    "what an open transaction sent must not be delivered if it failed without one": (
        [*within(5, 0), *attempt(2, 1, "fail", by=2), *READ], {"read-uncommitted"}),
    "what two transactions sent must not be delivered before the first commit": (
        [*within(5, 0), *within(6, 2, by=2), *READ, *end(50, "commit", 6)], {"read-uncommitted"}),
    # --------------------------------------------------------------------------------------- order
    "what was sent for certain before it was sent again keeps its place": (
        [*attempt(0, 1, "ok"), *attempt(2, 2, "ok", by=2), *attempt(4, 1, "ok", by=3), *TWO_FIRST],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what may have been stored by its second attempt only has no certain place": (
        [*attempt(0, 1, "info"), *attempt(2, 2, "ok", by=2), *attempt(4, 1, "ok", by=3), *TWO_FIRST], set()),
    "what may have been stored by its first attempt only has no certain place either": (
        [*attempt(0, 2, "info"), *attempt(2, 1, "ok", by=2), *attempt(4, 2, "ok", by=3), *TWO_FIRST], set()),
    "what failed first was stored by its second attempt": (
        [*attempt(0, 2, "fail"), *attempt(2, 1, "ok", by=2), *attempt(4, 2, "ok", by=3), *TWO_FIRST],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what failed first and was stored later may come later": (
        [*attempt(0, 1, "fail"), *attempt(2, 2, "ok", by=2), *attempt(4, 1, "ok", by=3), *TWO_FIRST], set()),
    "what failed first and was stored later must not come earlier": (
        [*attempt(0, 1, "fail"), *attempt(2, 2, "ok", by=2), *attempt(4, 1, "ok", by=3),
         *deliver(40, 1), *deliver(41, 2)],
        {"reordered-realtime", "not-linearizable"}),
    "what was sent twice before the other was begun keeps its place": (
        [*attempt(0, 1, "info"), *attempt(2, 1, "ok", by=2), *LATER, *TWO_FIRST],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what was sent twice at the same time as the other has no certain place": (
        [*attempt(0, 1, "info"), o(19, 2, "invoke", "send", 1, producer=1, sequence=1, digest=1),
         *LATER, o(23, 2, "ok", "send", 1, producer=1, sequence=1, digest=1, broker="a1"), *TWO_FIRST],
        set()),
    "what was committed the second time before the other was begun keeps its place": (
        [*within(5, 0), *end(2, "abort", 5), *within(6, 4, by=2), *end(6, "commit", 6), *LATER, *TWO_FIRST],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what was committed the second time after the other was sent has no certain place": (
        [*within(5, 0), *end(2, "abort", 5), *within(6, 4, by=2), *LATER, *end(25, "commit", 6), *TWO_FIRST],
        set()),
    # ------------------------------------------------------------------------- a taker without name
    "what only one broker can have taken was stored when that was seen gone": (
        [*FIRST_LIVE, *attempt(4, 1, "info", broker=None), *TAKEN_OVER],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what one that had been live before cannot have taken was stored when its taker was seen gone": (
        [*role(0, "a2", "live", 0, 0, "a"), *role(1, "a2", "stopped", 0, 0, "a"), *FIRST_LIVE,
         *attempt(4, 1, "info", broker=None), *TAKEN_OVER],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what one that may still have been live may have taken, too, may be stored later": (
        [*role(0, "a2", "live", 0, 0, "a"), *FIRST_LIVE, *role(3, "a2", "stopped", 0, 4, "a"),
         *attempt(4, 1, "info", broker=None), *TAKEN_OVER], set()),
    "what was given up before any broker was live may be stored later": (
        [*attempt(0, 1, "info", broker=None), *FIRST_LIVE, *TAKEN_OVER], set()),
    "what was given up when its taker lived again may be stored later": (
        [*FIRST_LIVE, attempt(4, 1, None)[0], *killed(5, "a1"), *role(7, "a1", "stopped", 5, 7, "a"),
         *role(8, "a1", "live", 8, 8, "a"), o(15, 1, "info", "send", 1, producer=1, sequence=1, digest=1),
         *LATER, *TWO_FIRST], set()),
    "what was given up when a successor was live may be stored later": (
        [*FIRST_LIVE, attempt(4, 1, None)[0], *TAKEN_OVER,
         o(15, 1, "info", "send", 1, producer=1, sequence=1, digest=1)], set()),
    "what nobody gave up may be stored later": ([*FIRST_LIVE, *attempt(4, 1, None), *TAKEN_OVER], set()),
    # -------------------------------------------------------------------- no attempt was certain
    "what nobody can still store was stored when its taker was seen gone": (
        [*NODE_A, *attempt(2, 1, "info"), *attempt(4, 1, "info", by=2), *killed(8, "a1"), *LATER, *TWO_FIRST],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what was taken again after its taker was seen gone may be stored later": (
        [*NODE_A, *attempt(2, 1, "info"), *killed(4, "a1"), *attempt(8, 1, "info", by=2), *LATER, *TWO_FIRST],
        set()),
    "what another taker of an earlier attempt may still have may be stored later": (
        [*NODE_A, *attempt(2, 1, "info", broker="a2"), *attempt(4, 1, "info", by=2), *killed(8, "a1"),
         *LATER, *TWO_FIRST], set()),
    "what nobody can still store since both takers were seen gone keeps its place": (
        [*NODE_A, *attempt(2, 1, "info", broker="a2"), *attempt(4, 1, "info", by=2), *killed(8, "a1"),
         *killed(9, "a2"), *LATER, *TWO_FIRST],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what failed first and whose taker was seen gone keeps its place": (
        [*NODE_A, *attempt(2, 1, "fail", broker="a2"), *attempt(4, 1, "info", by=2), *killed(8, "a1"),
         *LATER, *TWO_FIRST],
        {"reordered", "reordered-realtime", "reordered-session", "not-linearizable"}),
    "what was taken by who was seen gone only later may be stored later": (
        [*NODE_A, *attempt(2, 1, "info"), *attempt(4, 1, "info", by=2), *LATER, *killed(30, "a1"),
         *TWO_FIRST],
        set()),
    "what nobody knows the taker of may be stored later": (
        [*NODE_A, *attempt(2, 1, "info"), *attempt(4, 1, None, by=2), *killed(8, "a1"), *LATER, *TWO_FIRST],
        set()),
    "what was forwarded may be stored later": (
        [*NODE_A, *attempt(2, 1, "info"), *attempt(4, 1, "info", by=2), *killed(8, "a1"), *LATER,
         *deliver(40, 2), *deliver(41, 1, broker="b1")], set()),
    # ------------------------------------------------------------------- another copy of a message
    "what another session had before may come again as the copy of a repeated send": (
        [*attempt(0, 1, "ok"), *attempt(2, 2, "ok", by=2), *attempt(4, 1, "ok", by=3),
         *GIVEN_BACK],
        set()),
    "what another session had before keeps its place if the last attempt was over": (
        [*attempt(0, 1, "ok"), *attempt(2, 1, "ok", by=3), *attempt(4, 2, "ok", by=2),
         *GIVEN_BACK],
        {"reordered-session"}),
    # ------------------------------------------------------------------- when a place did not exist
    "what was sent again may come to a subscription that is younger than its first attempt": (
        [*attempt(0, 1, "ok", queue="/topic/t"),
         o(10, 11, "invoke", "subscribe", queue="/topic/t", subscription="s", session=1),
         o(11, 11, "ok", "subscribe", queue="/topic/t", subscription="s", session=1, broker="a1"),
         *attempt(20, 1, "ok", by=2, queue="/topic/t"),
         *deliver(40, 1, queue="/topic/t", subscription="s")], set()),
    "what may have been sent again may come to a subscription that is younger than its first attempt": (
        [*attempt(0, 1, "ok", queue="/topic/t"),
         o(10, 11, "invoke", "subscribe", queue="/topic/t", subscription="s", session=1),
         o(11, 11, "ok", "subscribe", queue="/topic/t", subscription="s", session=1, broker="a1"),
         *attempt(20, 1, "info", by=2, queue="/topic/t"),
         *deliver(40, 1, queue="/topic/t", subscription="s")], set()),
    "what failed before a subscription and was sent again is owed to it": (
        [*attempt(0, 1, "fail", queue="/topic/t"),
         o(10, 11, "invoke", "subscribe", queue="/topic/t", subscription="s", session=1),
         o(11, 11, "ok", "subscribe", queue="/topic/t", subscription="s", session=1, broker="a1"),
         *attempt(20, 1, "ok", by=2, queue="/topic/t"), *DONE], {"lost"}),
    "what may have been sent before a subscription is not owed to it when it is sent again": (
        [*attempt(0, 1, "info", queue="/topic/t"),
         o(10, 11, "invoke", "subscribe", queue="/topic/t", subscription="s", session=1),
         o(11, 11, "ok", "subscribe", queue="/topic/t", subscription="s", session=1, broker="a1"),
         *attempt(20, 1, "ok", by=2, queue="/topic/t"), *DONE], set()),
    "what was sent twice before a subscription must not come to it": (
        [*attempt(0, 1, "ok", queue="/topic/t"), *attempt(2, 1, "ok", by=2, queue="/topic/t"),
         o(10, 11, "invoke", "subscribe", queue="/topic/t", subscription="s", session=1),
         o(11, 11, "ok", "subscribe", queue="/topic/t", subscription="s", session=1, broker="a1"),
         *deliver(40, 1, queue="/topic/t", subscription="s")], {"not-subscribed"}),
    # ------------------------------------------------------------------------- expiry and delays
    "what no attempt asked to be delivered before must not be": (
        [*attempt(0, 1, "info", value=LATE), *attempt(2, 1, "ok", by=2, value=LATE), *READ],
        {"early-delivery"}),
    "what one attempt asked to be delivered at once may be": (
        [*attempt(0, 1, "info"), *attempt(2, 1, "ok", by=2, value=LATE), *READ], set()),
    "what only an attempt that failed asked to be delivered at once must not be": (
        [*attempt(0, 1, "fail"), *attempt(2, 1, "ok", by=2, value=LATE), *READ], {"early-delivery"}),
    "what has expired by all attempts must not be delivered": (
        [*attempt(0, 1, "info", value=SOON), *attempt(2, 1, "ok", by=2, value=SOON), *joined(30, 1), *READ],
        {"expired-delivery"}),
    "what never expires by one attempt may be delivered": (
        [*attempt(0, 1, "info"), *attempt(2, 1, "ok", by=2, value=SOON), *joined(30, 1), *READ], set()),
    "what never expires only by an attempt that failed must not be delivered": (
        [*attempt(0, 1, "fail"), *attempt(2, 1, "ok", by=2, value=SOON), *joined(30, 1), *READ],
        {"expired-delivery"}),
    # -------------------------------------------------------------------------------------- owed
    "what was certain once is owed, whatever became of other attempts": (
        [*attempt(0, 1, "ok"), *attempt(2, 1, "fail", by=2), *DONE], {"lost"}),
    "what was never certain is not owed": (
        [*attempt(0, 1, "info"), *attempt(2, 1, "fail", by=2), *DONE], set()),
    "an answer that belongs to no attempt makes none certain": (
        [*attempt(0, 1, None), attempt(2, 1, "ok", by=2)[1], *attempt(4, 1, "fail", by=3), *DONE], set()),
    "what was committed happened, whatever else is said of its transaction": (
        [*within(5, 0), *within(5, 2, by=2), *end(4, "commit", 5), *end(6, "abort", 5), *READ], set()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_what_became_of_attempts(tmp_path, case):
    rows, expected = CASES[case]
    assert {i.name for i in agreed(tmp_path, tidy(rows), OPTIONS)} == expected


@pytest.mark.parametrize(("outcome", "expected"), [("ok", {"lost"}), ("info", set())])
def test_what_was_sent_twice_in_a_batch_is_owed_if_that_was_committed(tmp_path, outcome, expected):
    rows = tidy([*within(5, 0), *within(5, 2, by=2), *end(4, "commit", 5, outcome), *DONE])
    options = msgspec.structs.replace(OPTIONS, broker=BATCHES)
    assert {i.name for i in agreed(tmp_path / "batches", rows, options)} == expected


def test_a_commit_that_failed_says_nothing_of_a_batch(tmp_path):
    rows = tidy([*within(5, 0), *end(2, "commit", 5, "fail"), *READ])
    options = msgspec.structs.replace(OPTIONS, broker=BATCHES)
    assert {i.name for i in agreed(tmp_path / "batches", rows, options)} == set()
    assert {i.name for i in agreed(tmp_path / "atomic", rows, OPTIONS)} == {"aborted-delivery"}


def test_a_send_of_a_batch_is_certain_when_both_it_and_the_commit_were_answered(tmp_path):
    options = msgspec.structs.replace(OPTIONS, broker=BATCHES)
    for outcome, expected in (("ok", {"lost"}), ("info", set())):
        rows = tidy([*within(5, 0, outcome=outcome), *end(2, "commit", 5), *DONE])
        assert {i.name for i in agreed(tmp_path / outcome, rows, options)} == expected


def test_of_a_batch_that_is_sent_more_than_once_the_send_must_be_answered_too(tmp_path):
    options = msgspec.structs.replace(OPTIONS, broker=BATCHES)
    for outcome, expected in (("ok", {"lost"}), ("info", set())):
        batch = [*within(5, 0, outcome=outcome), *end(2, "commit", 5)]
        rows = tidy([*batch, *attempt(6, 1, "fail", by=2), *DONE])
        assert {i.name for i in agreed(tmp_path / outcome, rows, options)} == expected


@pytest.mark.parametrize(
    ("rows", "recovered"),
    [
        ([*attempt(0, 1, "info"), *READ], True),
        ([*attempt(0, 1, None), *READ], True),
        ([*attempt(0, 1, "info")], False),
        ([*attempt(0, 1, "info"), *attempt(2, 1, "fail", by=2), *READ], True),
        ([*attempt(0, 1, "info"), *attempt(2, 1, "ok", by=2), *READ], False),
        ([*attempt(0, 1, "fail"), *attempt(2, 1, "fail", by=2), *READ], False),
        ([*within(5, 0), *end(2, "commit", 5, "info"), *READ], True),
        ([*within(5, 0), *end(2, "commit", 5), *READ], False),
        ([*within(5, 0), *end(2, "abort", 5), *READ], False),
        ([*within(5, 0), *end(2, "abort", 5), *attempt(6, 1, "info", by=2), *READ], True),
    ],
)
def test_a_message_is_recovered_if_it_came_though_no_attempt_was_certain(rows, recovered):
    history = reference.History(tidy(rows), atomic=True)
    assert [is_recovered(m) for m in history.all_messages] == [recovered]
