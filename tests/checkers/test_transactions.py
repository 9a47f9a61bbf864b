"""torn-transaction: for each way in which it shows a history, and one as near as can be without.

The names of the cases are what they prove.
"""

from __future__ import annotations

import msgspec
import pytest
from checker_rows import MS, Row, agreed, dense, finished, lay_out, o
from test_findings import OPTIONS, answer, deliver, end, gone, kept, send, tidy

from checkers import judge
from checkers.verdict import Promises

DONE = finished(90)


def joined(at: int, session: int) -> list[Row]:
    return [o(at, 10 + session, "invoke", "subscribe", session=session)]


def moved(outcome: str | None = "ok", f: str = "commit", ended: bool = True) -> list[Row]:
    """Message 1 is taken from group g, and message 2 sent to queue r, in transaction 9.

    Its end is asked for at 20; session 1 is gone at 25.
    """
    asked = end(20, f, 9, outcome or "info")[: 2 if outcome else 1]
    return [
        *joined(0, 1), *send(1, 1), *deliver(4, 1), *answer(6, 1, transaction=9),
        *send(10, 2, transaction=9, queue="r", group="h"), *asked, *(gone(25, 1) if ended else []),
    ]  # fmt: skip


def in_turn(*rows: Row) -> list[Row]:
    """The rows in this order, whatever their indexes were; everything was drained behind them."""
    return [*({**row, "index": n, "time": n * MS} for n, row in enumerate(rows)), *DONE]


def subscribed(at: int, session: int, **place: object) -> list[Row]:
    return [
        *(dict(row, **place) for row in joined(at, session)),
        o(at + 1, 10 + session, "ok", "subscribe", session=session, broker="a1", **place),
    ]


def left(at: int, session: int, *, drop: bool = True, **place: object) -> list[Row]:
    """The session leaves its subscription or temporary queue, and drops it."""
    process = 10 + session
    rows = [
        o(at, process, "invoke", "unsubscribe", session=session, **place),
        o(at + 1, process, "ok", "unsubscribe", session=session, broker="a1", **place),
        o(at + 2, process, "invoke", "drop", **place),
        o(at + 3, process, "ok", "drop", broker="a1", **place),
    ]
    return rows if drop else rows[:2]


def unreadable(at: int) -> list[Row]:
    return [dict(row, message=None, error="cut") for row in deliver(at, 1)]


ARRIVED = deliver(30, 2, 3, queue="r", group="h")
AGAIN = [*joined(28, 2), *deliver(32, 1, 2, redelivered=True), *answer(34, 1, 2)]
ROLLED_BACK = [*moved("ok", "abort"), *AGAIN]

TEMPORARY = {"queue": "/temp-queue/1"}
NEWS = {"queue": "/topic/t"}
ALICE, BOB = {**NEWS, "subscription": "alice"}, {**NEWS, "subscription": "bob"}
EXPIRES_LATE = '{"expires": [9000000000, 9000000001]}'
RED = '{"selector": {"colour": ["red"]}}'
CLOCK = '{"label": "clock", "bit": true}'
WRONG_CLOCK = [
    o(60, -1, "invoke", "clock-step", value=CLOCK),
    o(61, -1, "info", "clock-step", value=CLOCK),
]
PUBLISHED = [*send(4, 1, transaction=9, **NEWS), *send(6, 2, transaction=9)]
"""Message 1 is sent to all subscriptions, and message 2 to a queue, in transaction 9."""
READ_BY_ALICE = [
    *subscribed(0, 1, **ALICE), *send(2, 1, **NEWS), *deliver(4, 1, **ALICE),
    *answer(6, 1, transaction=9, **ALICE), *send(8, 2, transaction=9), *end(10, "commit", 9, "info"),
]  # fmt: skip

TAKEN = [*deliver(4, 1, redelivered=True), *moved("info")[4:]]

CASES: dict[str, tuple[list[Row], set[str]]] = {
    "a commit of which everything happened is whole": ([*moved(), *ARRIVED, *DONE], set()),
    "a commit of unknown outcome of which everything happened is whole": (
        [*moved("info"), *ARRIVED, *DONE], set()),
    "a commit of unknown outcome of which nothing happened is whole": (
        [*moved("info"), *AGAIN, *DONE], set()),
    "a roll-back of which nothing happened is whole": ([*ROLLED_BACK, *DONE], set()),
    "a transaction that nobody ended, and of which nothing happened, is whole": (
        [*moved()[:-3], *gone(25, 1), *AGAIN, *DONE], set()),
    # ---------------------------------------- the ack happened, the send not
    "what was consumed in a commit of unknown outcome without its send is torn": (
        [*moved("info"), *DONE], {"torn-transaction"}),
    "what was consumed in a commit that nobody answered without its send is torn": (
        [*moved(None), *DONE], {"torn-transaction"}),
    "what was consumed in a confirmed commit without its send is torn, and the send lost": (
        [*moved(), *DONE], {"torn-transaction", "lost"}),
    "what was consumed in a roll-back without its send is torn, and lost": (
        [*moved("ok", "abort"), *DONE], {"torn-transaction", "lost"}),
    "what was consumed without any commit is torn, and lost": (
        [*moved()[:-3], *gone(25, 1), *DONE], {"torn-transaction", "lost"}),
    "what a session may still hold has not been consumed": ([*moved(None, ended=False), *DONE], set()),
    "nothing is missing before everything was drained": (moved("info"), set()),
    "nothing is missing while a broker's stores are closed": (
        [*moved("info"), o(80, -3, "info", "browse", broker="b1"), *DONE], set()),
    "what another session may have settled need not have been consumed in the transaction": (
        in_turn(*joined(0, 1), *send(1, 1), *deliver(2, 1, 4), *answer(3, 1, 4, "info"), *gone(5, 4),
         *TAKEN), set()),
    "what another transaction may have settled need not have been consumed in this one": (
        in_turn(*moved()[:3], *deliver(3, 1, 4), *answer(4, 1, 4, transaction=8),
                *end(6, "commit", 8, "info"),
         *gone(8, 4), *TAKEN), set()),
    "what another transaction certainly gave back was consumed in this one": (
        in_turn(*moved()[:3], *deliver(3, 1, 4), *answer(4, 1, 4, transaction=8), *end(6, "abort", 8),
         *gone(8, 4), *TAKEN), {"torn-transaction"}),
    "a send that was never answered need not have reached the broker": (
        [r for r in [*moved("info"), *DONE] if (r["f"], r["type"], r.get("message")) != ("send", "ok", 2)],
        set()),
    "a send that failed is none of the transaction's": (
        [*moved("info")[:-5], *send(10, 2, "fail", transaction=9, queue="r", group="h"),
         *end(20, "commit", 9, "info"), *gone(25, 1), *DONE], set()),
    "a send that arrived in another group did happen": (
        [*moved("info"), *deliver(30, 2, 3, queue="r"), *DONE], {"corrupted"}),
    "a send that somebody may have received unheard may have happened": (
        [*moved("info"), o(40, 9, "info", "receive", queue="r"), *DONE], set()),
    "a receive of another queue has not taken it": (
        [*moved("info"), o(40, 9, "info", "receive", queue="s"), *DONE], {"torn-transaction"}),
    "a send that a store has did happen": (
        [*moved("info"), *kept(80, 2, queue="r", group="h"), *DONE], set()),
    "what is in a store was not consumed": ([*moved("info"), *kept(80, 1), *DONE], set()),
    # ---------------------------------------- the send happened, the ack not
    "what came again though its transaction's send arrived shows it torn": (
        [*moved("info"), *AGAIN, *ARRIVED, *DONE], {"torn-transaction"}),
    "so it does before everything was drained": (
        [*moved("info"), *AGAIN, *ARRIVED], {"torn-transaction"}),
    "what came again after a confirmed commit is a duplicate and shows it torn": (
        [*moved(), *AGAIN, *ARRIVED, *DONE], {"torn-transaction", "duplicate"}),
    "what came again in the same session shows it torn": (
        [*moved("info", ended=False), *deliver(24, 1, redelivered=True), *answer(26, 1), *ARRIVED, *DONE],
        {"torn-transaction", "duplicate"}),
    "what came to a session that was there before may have been sent before": (
        in_turn(*joined(0, 2), *moved("info"), *deliver(32, 1, 2, redelivered=True),
                *answer(34, 1, 2), *ARRIVED), set()),
    "what came again after it was refused in the same session need not have come back": (
        [*moved("info", ended=False), *answer(22, 1, f="nack"), *joined(25, 2),
         *deliver(26, 1, 2, redelivered=True), *answer(28, 1, 2), *ARRIVED, *DONE], set()),
    "what was given back before it was acknowledged may have been sent before": (
        in_turn(*joined(0, 1), *send(1, 1), *deliver(4, 1), *answer(5, 1, f="nack"), *moved("info")[4:],
         *AGAIN, *ARRIVED), set()),
    "what came again because its session was left before the commit proves nothing": (
        [*moved("info")[:-3], o(15, 11, "invoke", "unsubscribe", session=1),
         o(16, 11, "ok", "unsubscribe", session=1, broker="a1"), *end(20, "commit", 9, "info"),
         *AGAIN, *ARRIVED, *DONE], set()),
    "an ack that was never answered need not have reached the broker": (
        [r for r in [*moved("info"), *AGAIN, *ARRIVED, *DONE]
         if (r["f"], r["type"], r.get("transaction")) != ("ack", "ok", 9)], set()),
    "an ack that failed is none of the transaction's": (
        [*joined(0, 1), *send(1, 1), *deliver(4, 1), *answer(6, 1, outcome="fail", transaction=9),
         *moved("info")[6:], *AGAIN, *ARRIVED, *DONE], set()),
    "what is still in a main store was not consumed, though the send arrived": (
        [*moved("info"), *kept(80, 1), *ARRIVED, *DONE], {"torn-transaction"}),
    "what is among the dead letters was not consumed, though the send arrived": (
        [*moved("info"), *kept(80, 1, "dead-letter"), *ARRIVED, *DONE], {"torn-transaction", "died-early"}),
    "what is with the expired was not consumed either, though the send arrived": (
        [*moved("info"), *kept(80, 1, "expired"), *ARRIVED, *DONE], {"torn-transaction"}),
    "what is in a store-and-forward queue may have been forwarded": (
        [*moved("info"), *kept(80, 1, "store-and-forward"), *ARRIVED, *DONE], set()),
    "what was in a store before the commit was requested proves nothing": (
        [*moved("info"), *kept(15, 1), *ARRIVED, *DONE], set()),
    # ---------------------------------------- two of its sends
    "one of two sends that arrived shows a commit of unknown outcome torn": (
        [*send(0, 1, transaction=9), *send(3, 2, transaction=9, queue="r"), *end(6, "commit", 9, "info"),
         *deliver(9, 2, queue="r"), *DONE], {"torn-transaction"}),
    "one of two sends that is in a store shows it torn, too": (
        [*send(0, 1, transaction=9), *send(3, 2, transaction=9, queue="r"), *end(6, "commit", 9, "info"),
         *kept(80, 2, queue="r"), *DONE], {"torn-transaction"}),
    "one of two sends of a roll-back that arrived shows it torn": (
        [*send(0, 1, transaction=9), *send(3, 2, transaction=9, queue="r"), *end(6, "abort", 9),
         *deliver(9, 2, queue="r"), *DONE], {"torn-transaction", "aborted-delivery", "read-uncommitted"}),
    "one of two sends of two transactions that arrived shows nothing": (
        [*send(0, 1, transaction=8), *send(3, 2, transaction=9, queue="r"), *end(6, "commit", 8, "info"),
         *end(9, "commit", 9, "info"), *deliver(12, 2, queue="r"), *DONE], set()),
    "a message that was sent outside of the transaction, too, is none of its effects": (
        [*send(0, 1, transaction=9), *send(3, 2, transaction=9, queue="r"), *end(6, "commit", 9, "info"),
         *send(9, 2, queue="r"), *deliver(12, 2, queue="r"), *DONE], set()),
    "what another session may have got since was not certainly consumed": (
        in_turn(*joined(0, 2), *moved("info"), *deliver(32, 1, 2, redelivered=True), *gone(33, 2)), set()),
    "what a store-and-forward queue has was not consumed": (
        [*moved("info"), *kept(80, 1, "store-and-forward"), *DONE], set()),
    "what was not delivered again yet may be before everything was drained": (
        in_turn(*joined(0, 1), *send(1, 1), *send(1, 3), *deliver(4, 1), *deliver(4, 3),
                *answer(6, 1, transaction=9), *answer(8, 3, transaction=9), *end(20, "commit", 9, "info"),
                *gone(25, 1), *joined(28, 2), *deliver(32, 1, 2, redelivered=True))[:-5], set()),
    "a send that was not delivered yet may be before everything was drained": (
        [*send(0, 1, transaction=9), *send(3, 2, transaction=9, queue="r"), *end(6, "commit", 9, "info"),
         *deliver(9, 2, queue="r")], set()),
    "a send that failed and arrived is none of the transaction's": (
        [*send(0, 1, transaction=9), *send(3, 2, "fail", transaction=9, queue="r"),
         *end(6, "commit", 9, "info"), *deliver(9, 2, queue="r"), *DONE], {"aborted-delivery"}),
    "an ack that failed consumed nothing in the transaction": (
        [*joined(0, 1), *send(1, 1), *deliver(4, 1), *answer(6, 1, outcome="fail", transaction=9),
         *moved("info")[6:], *DONE], {"lost"}),
    "a message that a store had before its send is a phantom and no effect": (
        [*kept(0, 2, queue="r"), *send(1, 1, transaction=9), *send(3, 2, transaction=9, queue="r"),
         *end(6, "commit", 9, "info"), *deliver(9, 1), *DONE], {"phantom"}),
    "a delivery before its send is a phantom and no effect": (
        [*deliver(0, 2, queue="r"), *send(1, 1, transaction=9), *send(3, 2, transaction=9, queue="r"),
         *end(6, "commit", 9, "info"), *deliver(9, 1), *DONE], {"phantom", "read-uncommitted"}),
    "what may have expired by a wrong clock need not be missing": (
        [*send(0, 1, transaction=9, value=EXPIRES_LATE), *send(3, 2, transaction=9, queue="r"),
         *end(6, "commit", 9, "info"), *deliver(9, 2, queue="r"), *WRONG_CLOCK, *DONE], set()),
    "what has not expired by a right clock is missing": (
        [*send(0, 1, transaction=9, value=EXPIRES_LATE), *send(3, 2, transaction=9, queue="r"),
         *end(6, "commit", 9, "info"), *deliver(9, 2, queue="r"), *DONE], {"torn-transaction"}),
    # ---------------------------------------- the answers to an ack, and what ends a transaction
    "what came again after its session had answered it once more need not have come back": (
        [*moved("info", ended=False), *answer(22, 1, outcome="info"), *deliver(25, 1, redelivered=True),
         *answer(27, 1), *ARRIVED, *DONE], {"duplicate"}),
    "a second ack that failed says nothing of the first": (
        [*moved("info", ended=False), *answer(22, 1, outcome="fail"), *kept(80, 1), *ARRIVED, *DONE],
        {"torn-transaction"}),
    "a second ack that was answered does not answer the first": (
        [*joined(0, 1), *send(1, 1), *deliver(4, 1), *answer(6, 1, outcome="info", transaction=9),
         *moved("info", ended=False)[6:], *answer(22, 1), *kept(80, 1), *ARRIVED, *DONE], {"resurrected"}),
    "what was given back and read again before its ack came back after it": (
        in_turn(*joined(0, 1), *send(1, 1), *deliver(3, 1), *answer(4, 1, f="nack"),
                *deliver(5, 1, redelivered=True), *moved("info")[4:], *AGAIN, *ARRIVED),
        {"torn-transaction"}),
    "the ack of a body that cannot be read is undone by no other such body": (
        [*joined(0, 1), *send(1, 1), *unreadable(4),
         *(dict(row, message=None) for row in answer(6, 1, transaction=9)), *moved("info", ended=False)[6:],
         *unreadable(24), *ARRIVED, *DONE], {"corrupted", "lost"}),
    "what was consumed in a confirmed commit was consumed before its session ended": (
        [*moved(ended=False), *DONE], {"torn-transaction", "lost"}),
    "what another transaction gave back because its commit failed was consumed in this one": (
        in_turn(*moved()[:3], *deliver(3, 1, 4), *answer(4, 1, 4, transaction=8),
                *end(6, "commit", 8, "fail"), *gone(8, 4), *TAKEN), {"torn-transaction"}),
    # ---------------------------------------- topics and temporary queues
    "what a subscription that lasts consumed is gone": (
        [*READ_BY_ALICE, *left(20, 1, drop=False, **ALICE), *DONE], {"torn-transaction"}),
    "what a dropped subscription consumed may have gone with it": (
        [*READ_BY_ALICE, *left(20, 1, **ALICE), *DONE], set()),
    "what waited in a subscription that was made again with a selector may have gone": (
        [*READ_BY_ALICE, *left(20, 1, drop=False, **ALICE), *subscribed(22, 3, value=RED, **ALICE),
         *left(24, 3, drop=False, **ALICE), *DONE], set()),
    "what was skipped for a temporary queue tells nothing": (
        [*subscribed(0, 1, **TEMPORARY), *send(2, 1, transaction=9, **TEMPORARY),
         *send(4, 2, transaction=9, queue="r"), *send(6, 3, transaction=9, **TEMPORARY),
         *end(8, "commit", 9, "info"), *deliver(10, 3, **TEMPORARY), *answer(11, 3, **TEMPORARY),
         *deliver(13, 2, queue="r"), *left(20, 1, **TEMPORARY), *DONE], set()),
    "what was sent to a temporary queue that had ended tells nothing": (
        [*subscribed(0, 1, **TEMPORARY), *left(2, 1, **TEMPORARY), *send(7, 1, transaction=9, **TEMPORARY),
         *send(9, 2, transaction=9, queue="r"), *end(11, "commit", 9, "info"), *deliver(13, 2, 3, queue="r"),
         *DONE], set()),
    "a copy that went astray is not missing, and one that arrived shows that another send is": (
        [*subscribed(0, 1, **ALICE), *subscribed(2, 2, **BOB), *PUBLISHED, *end(8, "commit", 9, "info"),
         *deliver(10, 1, **ALICE), *deliver(12, 1, 5, queue="r"), *DONE], {"corrupted", "torn-transaction"}),
    "of two copies that are missing the first by name is told, though the other lasts": (
        [*subscribed(0, 1, **ALICE), *subscribed(2, 2, **BOB), *PUBLISHED, *end(8, "commit", 9),
         *send(10, 3, **NEWS), *deliver(12, 3, **ALICE), *answer(14, 3, **ALICE), *deliver(16, 3, 2, **BOB),
         *answer(18, 3, 2, **BOB), *deliver(20, 2), *left(22, 1, **ALICE), *DONE],
        {"torn-transaction", "lost"}),
}  # fmt: skip

UNANSWERED = [r for r in [*moved(), *DONE] if (r["f"], r["type"], r.get("message")) != ("send", "ok", 2)]

BUT_FOR: dict[str, tuple[list[Row], Promises, set[str]]] = {
    "a confirmed commit confirms its sends": (UNANSWERED, Promises(), {"lost"}),
    "the commit of a batch confirms no send that was not answered itself": (
        UNANSWERED, Promises(atomic=False), set()),
    "a send of a batch that was answered itself is owed": (
        [*moved(), *DONE], Promises(atomic=False), {"torn-transaction", "lost"}),
    "where acks are not promised to last, what comes again shows nothing": (
        [*moved("info"), *AGAIN, *ARRIVED, *DONE], Promises(durable_acks=False), set()),
    "where two brokers may have a message, what comes again shows nothing": (
        [*moved("info"), *AGAIN, *ARRIVED, *DONE], Promises(single=False), set()),
    "where the dead are dropped, what is gone need not have been consumed": (
        [*moved("info"), *DONE], Promises(keeps_dead_letters=False), set()),
    "where a late ack may be accepted, it shows nothing that the message is a dead letter": (
        [*moved("info"), *kept(80, 1, "dead-letter"), *ARRIVED, *DONE],
        Promises(refuses_stale_acks=False, ack_wait_s=0.002), {"died-early"}),
    "where it is refused, an accepted one was not late": (
        [*moved("info"), *kept(80, 1, "dead-letter"), *ARRIVED, *DONE],
        Promises(ack_wait_s=0.002), {"torn-transaction", "died-early"}),
    "an ack that came in time was not late": (
        [*moved("info"), *kept(80, 1, "dead-letter"), *ARRIVED, *DONE],
        Promises(refuses_stale_acks=False, ack_wait_s=0.05), {"torn-transaction", "died-early"}),
    "what came again in the same session may have been taken back first": (
        [*moved("info", ended=False), *deliver(24, 1, redelivered=True), *answer(26, 1), *ARRIVED, *DONE],
        Promises(ack_wait_s=0.01), set()),
    "what came again in another session may have been taken back first": (
        [*moved("info"), *AGAIN, *ARRIVED, *DONE], Promises(ack_wait_s=0.01), set()),
    "what came again in time was not taken back": (
        [*moved("info"), *AGAIN, *ARRIVED, *DONE], Promises(ack_wait_s=0.04), {"torn-transaction"}),
    "where a refusal consumes, what another may have refused need not have been acknowledged": (
        in_turn(*joined(0, 1), *send(1, 1), *deliver(2, 1, 4), *answer(3, 1, 4, "info", f="nack"),
                *gone(5, 4), *TAKEN), Promises(nack="consume"), set()),
    "where a refusal does not, it was": (
        in_turn(*joined(0, 1), *send(1, 1), *deliver(2, 1, 4), *answer(3, 1, 4, "info", f="nack"),
                *gone(5, 4), *TAKEN), Promises(), {"torn-transaction"}),
}  # fmt: skip

ALL = {name: (rows, Promises(), expected) for name, (rows, expected) in CASES.items()} | BUT_FOR


@pytest.mark.parametrize("case", ALL)
@pytest.mark.slow
def test_both_implementations_say_so(tmp_path, case):
    rows, promises, expected = ALL[case]
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    assert {i.name for i in agreed(tmp_path, tidy(rows), options)} == expected


def test_the_sentence_says_what_happened_and_what_did_not(tmp_path):
    rows = dense(tidy([*moved("info"), *AGAIN, *ARRIVED, *DONE]))
    (finding,) = judge.judge(lay_out(tmp_path / "here", rows, slice_rows=10**6), OPTIONS).findings
    assert finding.sentence == (
        "transaction 9, whose commit was requested at 0.020 s, with unknown outcome, happened only in "
        'part: the send of message 2 (queue "r", group "h") took effect (it was delivered), but the '
        'acknowledgement of message 1 (queue "q", group "g") did not (it was delivered again).'
    )
    assert finding.severity == "grave"
