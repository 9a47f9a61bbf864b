"""What a subscription was owed while it existed, and the copies of one send in several of them.

Of each clause a history that is guilty, and one as near as can be that is innocent, judged by the
reference.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from checker_rows import Row, o
from test_attempts import attempt
from test_excuses import killed
from test_fates import DONE
from test_findings import OPTIONS, answer, deliver, end, role, tidy
from test_selected_order import RED, consumer

from checkers import reference
from checkers.verdict import Promises

TOPIC = "/topic/t"
TEMPORARY = "/temp-queue/1"


def joined(at: int, session: int, selector: object = None, **columns: object) -> list[Row]:
    return consumer(at, session, selector, **{"queue": TOPIC, "subscription": "d", **columns})


def left(at: int, session: int = 1, outcome: str | None = "ok", **columns: object) -> list[Row]:
    place = {"session": session, "queue": TOPIC, "subscription": "d", **columns}
    asked = o(at, 10 + session, "invoke", "unsubscribe", **place)
    return [asked] if outcome is None else [asked, o(at + 1, 10 + session, outcome, "unsubscribe", **place)]


def dropped(at: int, outcome: str = "ok", **columns: object) -> list[Row]:
    place = {"queue": TOPIC, "subscription": "d", **columns}
    return [o(at, 30, "invoke", "drop", **place), o(at + 1, 30, outcome, "drop", broker="a1", **place)]


def sent(at: int, message: int, outcome: str | None = "ok", **columns: object) -> list[Row]:
    return attempt(at, message, outcome, by=message, **{"queue": TOPIC, **columns})


def read(at: int, message: int, session: int = 1, **columns: object) -> list[Row]:
    return deliver(at, message, session, **{"queue": TOPIC, "subscription": "d", **columns})


BOTH = [*sent(10, 1), *sent(12, 2)]
OVER = [*left(40), *dropped(50)]
SKIPPED = [*BOTH, *read(20, 2), *OVER]
"""Message 2 is read, message 1 is not, and the subscription is dropped."""
NODE_A = [
    *role(90, "a2", "live", 0, 0, "a"),
    *role(91, "a2", "stopped", 15, 15, "a"),
    *role(92, "a1", "live", 16, 16, "a"),
]
DONE = [dict(row, index=row["index"] + 10) for row in DONE]

CASES: dict[str, tuple[list[Row], set[tuple[str, str]]]] = {
    # ------------------------------------------------------------------------------- which existed
    "what came before a later message is due": ([*joined(0, 1), *SKIPPED, *DONE], {("lost", "skipped")}),
    "nothing is due to a subscription that came later than the send": (
        [*sent(0, 1), *joined(2, 1), *sent(12, 2), *read(20, 2), *OVER, *DONE], set()),
    "nothing is due to a subscription that was asked for before the send, and answered only then": (
        [o(0, 11, "invoke", "subscribe", queue=TOPIC, subscription="d", session=1), *sent(10, 1),
         o(13, 11, "ok", "subscribe", queue=TOPIC, subscription="d", session=1, broker="a1"),
         *sent(14, 2), *read(20, 2), *OVER, *DONE], set()),
    "what nothing later shows to be missing had not come yet": (
        [*joined(0, 1), *BOTH, *OVER, *DONE], set()),
    "what came late was not skipped": (
        [*joined(0, 1), *BOTH, *read(20, 2), *read(22, 1), *OVER, *DONE],
        {("reordered", ""), ("reordered-realtime", ""), ("reordered-session", ""),
         ("not-linearizable", "1")}),
    "what was acknowledged, unread, came": (
        [*joined(0, 1), *SKIPPED, *answer(24, 1, queue=TOPIC, subscription="d", outcome="info"), *DONE],
        set()),
    "a subscription that was dropped before owes nothing of what was sent then": (
        [*joined(0, 1), *BOTH, *left(14), *dropped(16), *joined(18, 2), *read(20, 2, 2), *DONE],
        {("not-subscribed", "sent before it")}),
    "a subscription whose drop may have happened owes nothing": (
        [*joined(0, 1), *BOTH, *dropped(16, "info"), *read(20, 2), *DONE], set()),
    "a subscription whose drop failed goes on": (
        [*joined(0, 1), *BOTH, *dropped(16, "fail"), *read(20, 2), *OVER, *DONE], {("lost", "skipped")}),
    "a subscription that was dropped and made again before the send existed": (
        [*joined(0, 1), *left(2), *dropped(4), *joined(6, 2), *BOTH, *read(20, 2, 2), *left(40, 2),
         *dropped(50), *DONE], {("lost", "skipped")}),
    "a subscription goes on with the next session": (
        [*joined(0, 1), *BOTH, *left(14), *joined(16, 2), *read(20, 2, 2), *left(40, 2), *dropped(50), *DONE],
        {("lost", "skipped")}),
    "what is read after the client asked to leave shows nothing": (
        [*joined(0, 1), *BOTH, *left(18, outcome=None), *read(20, 2), *dropped(50), *DONE], set()),
    "a subscription that was not dropped is owed it to the end": (
        [*joined(0, 1), *BOTH, *read(20, 2), *answer(22, 2, queue=TOPIC, subscription="d"), *left(40), *DONE],
        {("lost", "never delivered")}),
    # ------------------------------------------------------------------------------------ selectors
    "what waited when the subscription was made again with a selector is void": (
        [*joined(0, 1), *sent(10, 1), *left(12), *joined(14, 2, RED),
         *sent(18, 2, value=json.dumps({"properties": {"colour": "red"}})), *read(20, 2, 2), *DONE], set()),
    "what was skipped before the subscription was made again with a selector is lost": (
        [*joined(0, 1), *BOTH, *read(20, 2), *left(40), *joined(42, 2, RED), *DONE], {("lost", "skipped")}),
    "what the selector does not match is not due": (
        [*joined(0, 1, RED), *sent(10, 1), *sent(12, 2, value=json.dumps({"properties": {"colour": "red"}})),
         *read(20, 2), *OVER, *DONE], set()),
    # ------------------------------------------------------------------------------------- the two
    "a message of another producer shows nothing": (
        [*joined(0, 1), *sent(10, 1), *sent(12, 2, producer=2), *read(20, 2, producer=2), *OVER, *DONE],
        set()),
    "a message of another group shows nothing": (
        [*joined(0, 1), *sent(10, 1), *sent(12, 2, group="h"), *read(20, 2, group="h"), *OVER, *DONE], set()),
    "an earlier message shows nothing": (
        [*joined(0, 1), *BOTH, *read(20, 1), *OVER, *DONE], set()),
    "a message of unknown outcome is not due": (
        [*joined(0, 1), *sent(10, 1, "info"), *sent(12, 2), *read(20, 2), *OVER, *DONE], set()),
    "a later message of unknown outcome that was read shows it": (
        [*joined(0, 1), *sent(10, 1), *sent(12, 2, "info"), *read(20, 2), *OVER, *DONE],
        {("lost", "skipped")}),
    "a message of a lower priority may be overtaken": (
        [*joined(0, 1), *sent(10, 1, value='{"priority": 1}'), *sent(12, 2), *read(20, 2), *OVER, *DONE],
        set()),
    "a message of the same priority may not": (
        [*joined(0, 1), *sent(10, 1, value='{"priority": 1}'), *sent(12, 2, value='{"priority": 1}'),
         *read(20, 2), *OVER, *DONE], {("lost", "skipped")}),
    "a message with a delay may be overtaken": (
        [*joined(0, 1), *sent(10, 1, value='{"delay": [0, 1]}'), *sent(12, 2), *read(20, 2), *OVER, *DONE],
        set()),
    "a message that may have expired may be overtaken": (
        [*joined(0, 1), *sent(10, 1, value='{"expires": [15000000, 16000000]}'), *sent(12, 2), *read(20, 2),
         *OVER, *DONE], set()),
    "a message that had not expired then may not": (
        [*joined(0, 1), *sent(10, 1, value='{"expires": [25000000, 26000000]}'), *sent(12, 2), *read(20, 2),
         *OVER, *DONE], {("lost", "skipped")}),
    "a message that was committed before the later one is due": (
        [*joined(0, 1), *sent(2, 1, transaction=9), *end(5, "commit", 9), *sent(12, 2), *read(20, 2), *OVER,
         *DONE], {("lost", "skipped")}),
    "a message that was committed after the later one was sent is not due": (
        [*joined(0, 1), *sent(2, 1, transaction=9), *sent(12, 2), *read(20, 2), *end(25, "commit", 9), *OVER,
         *DONE], set()),
    "a message that was sent again before the later one is due": (
        [*joined(0, 1), *attempt(4, 1, "info", by=8, queue=TOPIC), *BOTH, *read(20, 2), *OVER, *DONE],
        {("lost", "skipped")}),
    "a message that was sent again only after the later one is not due": (
        [*joined(0, 1), *attempt(4, 1, "info", by=8, queue=TOPIC), *sent(12, 2), *sent(14, 1), *read(20, 2),
         *OVER, *DONE], set()),
    # ------------------------------------------------------------------------------ who may hold it
    "another session of the subscription may hold it": (
        [*joined(0, 1), *joined(2, 2), *SKIPPED, *DONE], set()),
    "a session of another subscription may not": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *SKIPPED, *dropped(60, subscription="e"), *DONE],
        {("lost", "skipped")}),
    "a session that had left before the send may not": (
        [*joined(0, 1), *joined(2, 2), *left(4, 2), *SKIPPED, *DONE], {("lost", "skipped")}),
    "a session that left only afterwards may have held it": (
        [*joined(0, 1), *joined(2, 2), *BOTH, *left(15, 2), *read(20, 2), *OVER, *DONE], set()),
    "a session that was lost by its client may hold it": (
        [*joined(0, 1), *joined(2, 2),
         o(4, 12, "info", "disconnect", session=2, queue=TOPIC, subscription="d"), *SKIPPED, *DONE], set()),
    "a session whose process was gone before the reader came may not": (
        [*joined(0, 2, broker="a2"), *BOTH, *killed(14, "a2"), *joined(16, 1), *read(20, 2), *OVER, *DONE],
        {("lost", "skipped")}),
    "a session that came after the later one was read may not": (
        [*joined(0, 1), *BOTH, *read(20, 2), *joined(22, 2), *OVER, *DONE], {("lost", "skipped")}),
    "a session that no row asked for may always have been there": (
        [*joined(0, 1), *SKIPPED, *read(30, 2, 5, redelivered=True), *DONE], set()),
    "a body that cannot be read may have been it": (
        [*joined(0, 1), *SKIPPED,
         o(25, 11, "ok", "deliver", queue=TOPIC, subscription="d", group="g", session=1, error="cut"), *DONE],
        {("corrupted", "")}),
    "what was received unheard may have been it": (
        [*joined(0, 1), *SKIPPED, o(25, 19, "info", "receive", queue=TOPIC), *DONE], set()),
    "what another broker took may have to be forwarded": (
        [*joined(0, 1), *sent(10, 1, broker="b1"), *sent(12, 2), *read(20, 2), *OVER, *DONE], set()),
    "what a broker of the node took before the session came is due": (
        [*NODE_A, *joined(0, 2, broker="a2"), *sent(10, 1, broker="a2"), *left(12, 2), *joined(16, 1),
         *sent(18, 2), *read(20, 2), *OVER, *DONE], {("lost", "skipped")}),
    # ----------------------------------------------------------------------------- temporary queues
    "a temporary queue whose owner left was owed what came before": (
        [*joined(0, 1, queue=TEMPORARY, subscription=None), *sent(10, 1, queue=TEMPORARY),
         *sent(12, 2, queue=TEMPORARY), *read(20, 2, queue=TEMPORARY, subscription=None),
         *dropped(50, queue=TEMPORARY, subscription=None), *DONE], {("lost", "skipped")}),
    "a temporary queue is owed nothing when its owner may have left": (
        [*joined(0, 1, queue=TEMPORARY, subscription=None), *sent(10, 1, queue=TEMPORARY),
         *sent(12, 2, queue=TEMPORARY), *dropped(15, queue=TEMPORARY, subscription=None),
         *read(20, 2, queue=TEMPORARY, subscription=None), *DONE], set()),
    "a temporary queue is owed nothing that was sent before it was there": (
        [*sent(0, 1, queue=TEMPORARY), *joined(2, 1, queue=TEMPORARY, subscription=None),
         *sent(12, 2, queue=TEMPORARY), *read(20, 2, queue=TEMPORARY, subscription=None),
         *dropped(50, queue=TEMPORARY, subscription=None), *DONE], set()),
    # ------------------------------------------------------------------------ copies of plain sends
    "what one subscription got of an unknown send the other must get, too": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *read(20, 1), *DONE],
        {("lost", "not copied")}),
    "what no subscription got of an unknown send was not sent": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *DONE], set()),
    "what both got is there": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *read(20, 1),
         *read(22, 1, 2, subscription="e"), *DONE], set()),
    "what the other has in its store is there": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *read(20, 1),
         o(60, -3, "ok", "browse", 1, queue=TOPIC, subscription="e", broker="a1", value="main", producer=1,
           sequence=1, digest=1), *DONE], set()),
    "what one has in its store the other must have, too": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"),
         o(60, -3, "ok", "browse", 1, queue=TOPIC, subscription="d", broker="a1", value="main", producer=1,
           sequence=1, digest=1), *DONE], {("lost", "not copied")}),
    "what the other acknowledged it had got": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *read(20, 1),
         *answer(22, 1, 2, queue=TOPIC, subscription="e", outcome="info"), *DONE], set()),
    "a subscription that came later need not get it": (
        [*joined(0, 1), *sent(10, 1, "info"), *joined(12, 2, subscription="e"), *read(20, 1), *DONE], set()),
    "a subscription that was dropped need not get it": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *read(20, 1),
         *dropped(50, subscription="e"), *DONE], set()),
    "a subscription whose selector does not match must not get it": (
        [*joined(0, 1), *joined(2, 2, RED, subscription="e"), *sent(10, 1, "info"), *read(20, 1), *DONE],
        set()),
    "a subscription at another node may get it later": (
        [*joined(0, 1), *joined(2, 2, subscription="e", broker="b1"), *sent(10, 1, "info"), *read(20, 1),
         *DONE], set()),
    "a failed attempt beside the unknown one changes nothing": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *attempt(12, 1, "fail", by=8,
         queue=TOPIC), *read(20, 1), *DONE], {("lost", "not copied")}),
    "what failed is aborted where it came, and missing nowhere": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "fail"), *read(20, 1), *DONE],
        {("aborted-delivery", "")}),
    "what may have expired may be missing": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info", value='{"expires": [1, 2]}'),
         *read(20, 1), *DONE], set()),
    "nothing is missing before the stores were read": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *read(20, 1)], set()),
    # ----------------------------------------------------------------------- copies of transactions
    "what one subscription got of an unknown commit the other must get, too": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, transaction=9),
         *end(12, "commit", 9, "info"), *read(20, 1), *DONE], {("torn-transaction", "9")}),
    "an unknown commit of which nobody got anything is whole": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, transaction=9),
         *end(12, "commit", 9, "info"), *DONE], set()),
    "an unknown commit of which both got a copy is whole": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, transaction=9),
         *end(12, "commit", 9, "info"), *read(20, 1), *read(22, 1, 2, subscription="e"), *DONE], set()),
    "a subscription that came later is no part of it": (
        [*joined(0, 1), *sent(10, 1, transaction=9), *end(12, "commit", 9, "info"),
         *joined(14, 2, subscription="e"), *read(20, 1), *DONE], set()),
    "a subscription that was dropped unread is no part of it": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, transaction=9),
         *end(12, "commit", 9, "info"), *read(20, 1), *dropped(50, subscription="e"), *DONE], set()),
    "a subscription that was skipped is part of it, dropped or not": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, transaction=9),
         *end(12, "commit", 9, "info"), *read(20, 1), *sent(24, 2), *read(28, 2, 2, subscription="e"),
         *dropped(50, subscription="e"), *read(52, 2), *DONE], {("torn-transaction", "9")}),
    "a subscription that got the later one before the other copy was seen is not skipped for certain": (
        [*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, transaction=9),
         *end(12, "commit", 9, "info"), *sent(24, 2), *read(28, 2, 2, subscription="e"), *read(30, 1),
         *dropped(50, subscription="e"), *read(52, 2), *DONE], set()),
    "a copy and a send to a queue are of one transaction": (
        [*joined(0, 1), *sent(10, 1, transaction=9), *sent(12, 2, transaction=9, queue="q"),
         *end(14, "commit", 9, "info"), *deliver(20, 2), *DONE], {("torn-transaction", "9")}),
    "a subscription at another node is no part of it": (
        [*joined(0, 1), *joined(2, 2, subscription="e", broker="b1"), *sent(10, 1, transaction=9),
         *end(12, "commit", 9, "info"), *read(20, 1), *DONE], set()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_a_subscription_was_owed(case):
    rows, expected = CASES[case]
    assert {(i.name, i.key or "") for i in reference.find(tidy(rows), OPTIONS)} == expected


@pytest.mark.parametrize(
    ("promises", "expected"),
    [(Promises(fifo=True), {"lost"}), (Promises(), set())],
)
def test_a_queue_that_promises_order_as_a_whole_shows_what_was_skipped(promises, expected):
    rows = [*joined(0, 1), *sent(10, 1), *sent(12, 2, producer=2), *read(20, 2, producer=2), *OVER, *DONE]
    rows = [{**r, "group": None} for r in rows]
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    assert {i.name for i in reference.find(tidy(rows), options)} == expected


@pytest.mark.parametrize(
    "options",
    [
        msgspec.structs.replace(OPTIONS, ordered=False),
        msgspec.structs.replace(OPTIONS, broker=Promises(groups=False)),
    ],
)
def test_without_a_promise_of_order_nothing_shows_that_a_message_was_skipped(options):
    assert not reference.find(tidy([*joined(0, 1), *SKIPPED, *DONE]), options)


def test_what_a_dead_session_held_may_have_died_where_that_counts():
    rows = tidy(
        [*joined(0, 2, broker="a2"), *BOTH, *killed(14, "a2"), *joined(16, 1), *read(20, 2), *OVER, *DONE]
    )
    died = msgspec.structs.replace(OPTIONS, broker=Promises(attempts="given back", delivery_attempts=1))
    assert not reference.find(rows, died)


def test_batches_promise_no_copies():
    rows = tidy([*joined(0, 1), *joined(2, 2, subscription="e"), *sent(10, 1, "info"), *read(20, 1), *DONE])
    assert not reference.find(rows, msgspec.structs.replace(OPTIONS, broker=Promises(atomic=False)))
