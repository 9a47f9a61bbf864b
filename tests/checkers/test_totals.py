"""wrong-total: for each way in which it shows a history, and one as near as can be without.

The names of the cases are what they prove.
"""

from __future__ import annotations

import msgspec
import pytest
from bank_histories import bank, said
from checker_rows import Row, agreed, dense, lay_out, o, phase
from test_findings import OPTIONS, answer, deliver, end, gone, send

from checkers import judge, reference
from checkers.verdict import CAUTIOUS, Promises

BEGUN = [o(0, 11, "invoke", "subscribe", session=1), o(1, 11, "ok", "subscribe", session=1, broker="a1")]
FINISHED = [phase(0, "browse"), o(0, -3, "ok", "browse", broker="a1"), phase(0, "end")]


def put(message: int, amount: int, outcome: str = "ok", account: str = "", **columns: object) -> list[Row]:
    """A send of an amount."""
    return send(0, message, outcome, value=said(account or f"a{message % 10}", amount), **columns)


def drained(*messages: int, **columns: object) -> list[Row]:
    """The drain delivers and acknowledges these."""
    got = [row for one in messages for row in (*deliver(0, one, 2, **columns), *answer(0, one, 2))]
    return [phase(0, "drain"), o(0, 12, "invoke", "subscribe", session=2), *got]


def transfer(commit: str | None = "ok", f: str = "commit", sent: tuple[int, int] = (60, 140)) -> list[Row]:
    """Messages 1 and 2, of 100 each, become 11 and 12 in transaction 9."""
    asked = end(0, f, 9, commit or "info")[: 2 if commit else 1]
    return [
        *BEGUN, *put(1, 100), *put(2, 100), *deliver(0, 1), *deliver(0, 2), *answer(0, 1, transaction=9),
        *answer(0, 2, transaction=9), *put(11, sent[0], transaction=9), *put(12, sent[1], transaction=9),
        *asked, *gone(0, 1),
    ]  # fmt: skip


def in_order(rows: list[Row]) -> list[Row]:
    return [{**row, "index": n, "time": n * 1_000_000} for n, row in enumerate([*rows, *FINISHED])]


def without(rows: list[Row], f: str, type_: str, message: int) -> list[Row]:
    return [r for r in rows if (r["f"], r["type"], r.get("message")) != (f, type_, message)]


def kept(message: int, store: str = "main") -> list[Row]:
    return [o(0, -3, "ok", "browse", message, queue="q", group="g", broker="a1", value=store)]


AGAIN = {"redelivered": True}

RIGHT: dict[str, list[Row]] = {
    "what a confirmed commit sent is what is left": [*transfer(), *drained(11, 12)],
    "a commit of unknown outcome that happened changes nothing": [*transfer("info"), *drained(11, 12)],
    "nor does one that did not happen": [*transfer("info"), *drained(1, 2, **AGAIN)],
    "nor one that nobody answered": [*transfer(None), *drained(11, 12)],
    "nor a roll-back": [*transfer("ok", "abort"), *drained(1, 2, **AGAIN)],
    "nor a transaction that nobody ended": [*transfer()[:-3], *gone(0, 1), *drained(1, 2, **AGAIN)],
    "what a store has is there": [*transfer(), *drained(11), *kept(12)],
    "what is among the dead letters is there": [*transfer(), *drained(11), *kept(12, "dead-letter")],
    "what the drain gets twice is there once": [*transfer(), *drained(11, 12, 11)],
    "a first send that certainly failed put nothing in": [
        *put(3, 100, "fail"), *transfer(), *drained(11, 12)],
    "one that nobody answered, and that came, put it in": [
        *put(3, 100, "info"), *transfer(), *drained(11, 12, 3)],
    "one that nobody answered, and that never came, did not": [
        *put(3, 100, "info"), *transfer(), *drained(11, 12)],
    "what the drain gets again after a confirmed commit took it is no amount": [
        *transfer(), *drained(11, 12, 1)],
    "what is acknowledged twice in one transaction is taken once": [
        *transfer()[:12], *answer(0, 1, transaction=9), *transfer()[12:], *drained(11, 12)],
    "what was refused and came again is there": [
        *put(3, 100), *BEGUN, *deliver(0, 3), *answer(0, 3, f="nack"), *transfer()[2:], *drained(11, 12, 3)],
    "a transaction that did not happen may take more than it sends": [
        *transfer("info", sent=(60, 100)), *drained(1, 2, **AGAIN)],
}  # fmt: skip

UNTOLD: dict[str, list[Row]] = {
    "what may never have been put in is not missing": [*put(3, 100, "info"), *transfer(), *drained(11)],
    "nothing is missing while stores are closed": [
        *transfer(), *drained(11), o(0, -3, "info", "browse", broker="b1")],
    "who acknowledged outside of transactions may have taken it out": [
        *put(3, 100), *BEGUN, *deliver(0, 3), *answer(0, 3), *transfer()[2:], *drained(11)],
    "who refused it may have, too": [
        *put(3, 100), *BEGUN, *deliver(0, 3), *answer(0, 3, f="nack"), *transfer()[2:], *drained(11)],
    "a receive that nobody heard of may have": [
        *transfer(), o(0, 20, "info", "receive", queue="q"), *drained(11)],
    "what cannot be read may be what is missing": [
        *transfer(), *drained(11), *deliver(0, None, 2, digest=5)],
    "a transaction of unknown outcome that sends less than it takes may have taken it out": [
        *transfer("info", sent=(60, 100)), *drained(11)[:2]],
    "a transaction of which a send failed tells nothing": [
        *transfer()[:-9], *put(11, 60, "fail", transaction=9), *transfer()[-5:], *drained(12)],
    "nor does one of unknown outcome": [
        *transfer("info")[:12], *put(11, 60, "fail", transaction=9), *transfer("info")[14:],
        *drained(1, **AGAIN)],
    "what cannot be read in a store may be what is missing, whenever that was read": [
        *transfer(), o(0, -3, "ok", "browse", queue="q", group="g", broker="a1", value="main"), *drained(11)],
    "what was sent twice tells nothing": [*put(1, 100), *transfer(), *drained(11)],
    "what was seen elsewhere is not missing": [*transfer(), *drained(11), *deliver(0, 12, 2, queue="r")],
    "what may have expired is not missing": [
        *send(0, 3, value='{"amount": 100, "expires": [0, 5]}'), *transfer(), *drained(11, 12)],
    "what a session of before reads in the drain it may have been given before another took it": [
        o(0, 13, "invoke", "subscribe", session=3), *transfer("info"), *drained(11, 12),
        *deliver(0, 1, 3, redelivered=True)],
    "an amount in a topic is no account": [
        *put(3, 100, queue="/topic/t"), *transfer(), *drained(11, 12)],
    "what is no number is no amount": [
        *send(0, 3, value='{"amount": true}'), *transfer(), *drained(11, 12)],
}  # fmt: skip

WRONG: dict[str, tuple[list[Row], int]] = {
    "what a confirmed commit sent is missing": ([*transfer(), *drained(11)], 12),
    "what was put in is missing": ([*put(3, 100), *transfer(), *drained(11, 12)], 3),
    "what a commit of unknown outcome took and did not send is missing": ([*transfer("info"), *drained()], 1),
    "half of what a commit of unknown outcome sent is missing": ([*transfer("info"), *drained(12)], 11),
    "what a roll-back took is missing": ([*transfer("ok", "abort"), *drained(2, **AGAIN)], 1),
    "what was taken and sent anew is there twice": ([*transfer("info"), *drained(1, 11, 12)], 1),
    "so it is in a store": ([*transfer("info"), *drained(11, 12), *kept(1)], 1),
    "what two transactions took is there twice": (
        [*transfer(), o(0, 13, "invoke", "subscribe", session=3), *deliver(0, 1, 3, redelivered=True),
         *answer(0, 1, 3, transaction=8), *put(21, 100, transaction=8), *end(0, "commit", 8),
         *drained(11, 12, 21)], 1),
    "what certainly failed is there": ([*put(3, 100, "fail"), *transfer(), *drained(11, 12, 3)], 3),
    "what certainly failed explains nothing": ([*put(3, 100, "fail"), *transfer(), *drained(11)], 12),
    "what a commit that was refused sent is there": ([*transfer("fail"), *drained(1, 2, 11, **AGAIN)], 11),
    "a roll-back that takes more than it sends explains nothing": (
        [*transfer("ok", "abort", sent=(60, 100)), *drained(2, **AGAIN)], 1),
    "a roll-back of which a send failed explains nothing": (
        [*transfer("ok", "abort")[:12], *put(11, 60, "fail", transaction=9), *transfer("ok", "abort")[14:],
         *drained(2, **AGAIN)], 1),
    "what is drained by a session that no row requested may be missing": (
        [*transfer(), phase(0, "drain"), *deliver(0, 11, 2), *answer(0, 11, 2)], 12),
    "a receive in another queue took nothing here": (
        [*transfer(), o(0, 20, "info", "receive", queue="r"), *drained(11)], 12),
    "what could not be read before the drain came again": (
        [*transfer()[:2], *deliver(0, None, 1, digest=5), *transfer()[2:], *drained(11)], 12),
}  # fmt: skip

ALL = {
    name: (rows, Promises(), {"wrong-total", *others})
    for name, others in {
        "what a confirmed commit sent is missing": ("lost", "torn-transaction"),
        "what was put in is missing": ("lost", "not-linearizable"),
        "what a commit of unknown outcome took and did not send is missing": ("torn-transaction",),
        "what was taken and sent anew is there twice": ("torn-transaction", "unflagged-redelivery"),
        "what two transactions took is there twice": ("duplicate", "torn-transaction"),
    }.items()
    for rows in [[{**row, "index": n} for n, row in enumerate([*WRONG[name][0], *FINISHED])]]
}


def waiting(seconds: float) -> Promises:
    """Brokers that take back what is acknowledged late, and confirm a late ack all the same."""
    return Promises(ack_wait_s=seconds, refuses_stale_acks=False)


def test_nothing_is_missing_before_everything_was_drained(tmp_path):
    rows = in_order(transfer())[:-3]
    assert not agreed(tmp_path, rows, OPTIONS)


def found(tmp_path, rows, promises=Promises()):  # noqa: B008 - frozen
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    return [i for i in agreed(tmp_path, in_order(rows), options) if i.name == "wrong-total"]


@pytest.mark.parametrize("case", [*RIGHT, *UNTOLD])
@pytest.mark.slow
def test_nothing_is_said_where_the_total_may_hold(tmp_path, case):
    assert not found(tmp_path, {**RIGHT, **UNTOLD}[case])


@pytest.mark.parametrize("case", WRONG)
def test_a_message_is_named_at_which_it_does_not_add_up(tmp_path, case):
    rows, message = WRONG[case]
    assert [one.message for one in found(tmp_path, rows)] == [message]


@pytest.mark.parametrize(
    ("case", "promises", "says_so"),
    [
        ("what was taken and sent anew is there twice", Promises(durable_acks=False), False),
        ("what was taken and sent anew is there twice", Promises(single=False), False),
        ("what a confirmed commit sent is missing", Promises(durable_acks=False), True),
        (
            "what a confirmed commit sent is missing",
            Promises(delivery_attempts=3, keeps_dead_letters=False),
            False,
        ),
        ("what a confirmed commit sent is missing", CAUTIOUS, True),
        ("what a confirmed commit sent is missing", Promises(delivery_attempts=3), True),
        ("what a confirmed commit sent is missing", waiting(10), True),
    ],
)
def test_what_brokers_do_not_promise_excuses_them(tmp_path, case, promises, says_so):
    assert bool(found(tmp_path, WRONG[case][0], promises)) is says_so


def told(tmp_path, rows):
    rows = dense(in_order(rows))
    findings = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), OPTIONS).findings
    return next(one for one in findings if one.name == "wrong-total")


def total(tmp_path, rows, promises=Promises()):  # noqa: B008 - frozen
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    rows = dense(in_order(rows))
    return judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), options).statistics.total


@pytest.mark.parametrize("case", RIGHT)
def test_a_total_that_holds_is_told(tmp_path, case):
    told = total(tmp_path, RIGHT[case])
    assert told.expected == told.left > 0
    assert not told.unjudged


def test_an_ack_in_a_transaction_that_came_too_late_may_have_taken_nothing(tmp_path):
    rows = [*transfer(), *drained(11, 12, 1, **AGAIN)]
    assert not found(tmp_path, rows, waiting(0.001))
    told = total(tmp_path, rows, waiting(0.001))
    assert told.left - told.expected == 100
    assert told.unjudged


def test_what_is_acknowledged_too_late_in_the_drain_is_there_when_it_comes_again(tmp_path):
    rows = [*put(3, 100), *BEGUN, *deliver(0, 3), phase(0, "drain"), *answer(0, 3), *drained(3, **AGAIN)[1:]]
    assert not found(tmp_path / "late", rows, waiting(0.001))
    assert total(tmp_path, rows, waiting(0.001)).left == 100


def test_a_total_that_holds_is_judged_whatever_would_explain_that_it_did_not(tmp_path):
    throwing = Promises(delivery_attempts=3, keeps_dead_letters=False)
    assert not total(tmp_path, [*transfer(), *drained(11, 12)], throwing).unjudged


@pytest.mark.parametrize("case", UNTOLD)
def test_why_nothing_is_claimed_is_told(tmp_path, case):
    told = total(tmp_path, UNTOLD[case])
    assert bool(told.unjudged) == (told.expected != told.left or "stores" in case)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_total_is_told(tmp_path, case):
    told = total(tmp_path, WRONG[case][0])
    assert told.expected != told.left
    assert not told.unjudged


def test_a_history_without_amounts_has_no_total(tmp_path):
    assert total(tmp_path, send(0, 1)) is None


def test_the_sentence_says_which_account_is_wrong_since_when(tmp_path):
    finding = told(tmp_path, [*transfer(), *drained(11)])
    assert finding.sentence == (
        "the accounts held 200 at the start and 60 at the end: account a2 with 140 is missing since "
        "transaction 9, whose commit was requested at 0.016 s and answered ok by a1."
    )
    assert finding.severity == "grave"


def test_the_sentence_says_what_is_there_twice(tmp_path):
    finding = told(tmp_path, [*transfer("info"), *drained(1, 11, 12)])
    assert finding.sentence == (
        "the accounts held 200 at the start and 300 at the end: account a1 still has the 100 that were "
        "moved on by transaction 9, whose commit was requested at 0.016 s, with unknown outcome."
    )


def test_what_a_confirmed_commit_sent_is_counted_one_by_one(tmp_path):
    assert "; 1 more is wrong" in told(tmp_path, [*transfer(), *drained()]).sentence


def test_what_a_roll_back_took_is_counted_one_by_one(tmp_path):
    assert "; 1 more is wrong" in told(tmp_path, [*transfer("ok", "abort"), *drained()]).sentence


def test_several_are_counted(tmp_path):
    finding = told(tmp_path, [*put(3, 100), *put(4, 100), *transfer(), *drained(11, 12)])
    assert (
        "account a3 with 100 is missing though it was put in for certain; 1 more is wrong" in finding.sentence
    )


@pytest.mark.parametrize("case", WRONG)
def test_few_rows_show_it(tmp_path, case):
    rows = WRONG[case][0]
    others = [100 + n for n in range(5)]
    rows = [*(r for n in others for r in put(n, 10)), *rows, *(r for n in others for r in deliver(0, n, 2))]
    shown = told(tmp_path, rows).witness.rows
    assert 3 < len(shown) < 20
    assert all((row.get("message") or 0) < 100 for row in shown)
    assert "wrong-total" in {one.name for one in reference.find(shown, OPTIONS)}


@pytest.mark.slow
def test_nothing_is_found_in_banks_of_a_correct_broker():
    for seed in range(300):
        found = {one.name for one in reference.find(bank(seed), OPTIONS)}
        assert not found - {"stuck"}, (seed, found)  # the one that a store keeps
