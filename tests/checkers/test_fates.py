"""What became of messages.

For each finding a history that has it, and one as near as can be that has not; columns and
reference must both say so.

The names of the cases are what they prove.
"""

from __future__ import annotations

import msgspec
import pytest
from checker_rows import BROWSED, BROWSING, Row, agreed, finished, o
from test_findings import OPTIONS, answer, deliver, end, gone, kept, role, send, tidy

from checkers import reference
from checkers.verdict import Promises

DONE = finished(90)


def left(at: int, session: int, **columns: object) -> list[Row]:
    return [
        o(at, 10 + session, "invoke", "unsubscribe", session=session, **columns),
        o(at + 1, 10 + session, "ok", "unsubscribe", session=session, broker="a1", **columns),
    ]


def joined(at: int, session: int) -> list[Row]:
    return [o(at, 10 + session, "invoke", "subscribe", session=session)]


def read(at: int, *brokers: str) -> list[Row]:
    """The ends of one reading of those brokers' stores."""
    return [o(at + n, -3, "ok", "browse", broker=broker) for n, broker in enumerate(brokers)]


HELD = [*send(0, 1), *deliver(5, 1)]
ACKED = [*HELD, *answer(6, 1)]
REFUSED = [*HELD, *answer(6, 1, f="nack")]
TWICE = [*send(0, 1), *deliver(5, 1), *deliver(6, 1, 2, redelivered=True)]
SENT_OK_AND_REFUSED = [*send(0, 1), o(3, 2, "fail", "send", 1, producer=1, sequence=1, digest=1)]
"""A history with such a row is refused, and yet no rule may go wrong by it."""
IN_TRANSACTION = [*HELD, *answer(6, 1, transaction=9)]

GIVEN_BACK = Promises(delivery_attempts=1, attempts="given back", keeps_dead_letters=False)

CASES: dict[str, tuple[list[Row], set[str]]] = {
    # ------------------------------------------------------------------------------- lost and stuck
    "what a dead consumer held, and no store has, is lost after delivery": (
        [*HELD, *gone(8, 1), *DONE], {"lost"}),
    "what a consumer still holds is not lost": ([*HELD, *DONE], set()),
    "what a consumer held that left in order is lost, if nobody has it": (
        [*HELD, *left(8, 1), *DONE], {"lost"}),
    "what a consumer holds that asked to leave and was not answered is not lost": (
        [*HELD, o(8, 11, "invoke", "unsubscribe", session=1), *DONE], set()),
    "what a dead consumer held is not lost if another got it": (
        [*HELD, *gone(8, 1), *deliver(9, 1, 2, redelivered=True), *DONE], set()),
    "what two dead consumers held one after the other is lost": (
        [*HELD, *gone(8, 1), *deliver(9, 1, 2, redelivered=True), *gone(11, 2), *DONE], {"lost"}),
    "what another got before the first was found dead is not lost": (
        [*HELD, *deliver(7, 1, 2, redelivered=True), *gone(8, 1), *DONE], set()),
    "what a dead consumer held and a store has is stuck": (
        [*HELD, *gone(8, 1), *kept(80, 1), *DONE], {"stuck"}),
    "what a dead consumer had acknowledged is settled": ([*ACKED, *gone(8, 1), *DONE], set()),
    "what a dead consumer may have acknowledged is not owed": (
        [*HELD, *answer(6, 1, outcome="info"), *gone(8, 1), *DONE], set()),
    "an ack that was asked and never answered may have happened": (
        [*HELD, answer(6, 1)[0], *gone(8, 1), *DONE], set()),
    "an ack that certainly failed leaves a message owed": (
        [*HELD, *answer(6, 1, outcome="fail"), *gone(8, 1), *DONE], {"lost"}),
    "an ack that failed gives a message back": ([*HELD, *answer(6, 1, outcome="fail"), *DONE], {"lost"}),
    "an ack that failed once and was taken later settles": (
        [*HELD, *answer(6, 1, outcome="fail"), *answer(8, 1), *gone(10, 1), *DONE], set()),
    "a message that was refused, and is nowhere, is lost": ([*REFUSED, *DONE], {"lost"}),
    "a message whose refusal may not have arrived is still held": (
        [*HELD, *answer(6, 1, outcome="info", f="nack"), *DONE], set()),
    "a message that was refused and delivered again is held": (
        [*REFUSED, *deliver(8, 1, redelivered=True), *DONE], set()),
    "a message that was delivered again before its refusal was answered is held": (
        [*HELD, answer(6, 1, f="nack")[0], *deliver(7, 1, redelivered=True), answer(7, 1, f="nack")[1],
         *DONE], set()),
    "an ack that was rolled back leaves a message owed": (
        [*IN_TRANSACTION, *end(8, "abort", 9), *DONE], {"lost"}),
    "an ack that was rolled back, and the message delivered again, is held": (
        [*IN_TRANSACTION, *end(8, "abort", 9), *deliver(11, 1, redelivered=True), *DONE], set()),
    "an ack whose commit failed leaves a message owed": (
        [*IN_TRANSACTION, *end(8, "commit", 9, "fail"), *DONE], {"lost"}),
    "an ack that was committed settles": (
        [*IN_TRANSACTION, *end(8, "commit", 9), *gone(11, 1), *DONE], set()),
    "an ack whose commit is unknown may have settled": (
        [*IN_TRANSACTION, *end(8, "commit", 9, "info"), *gone(11, 1), *DONE], set()),
    "a refusal that was committed gives a message back": (
        [*HELD, *answer(6, 1, f="nack", transaction=9), *end(8, "commit", 9), *DONE], {"lost"}),
    "a refusal whose commit is unknown may not have happened": (
        [*HELD, *answer(6, 1, f="nack", transaction=9), *end(8, "commit", 9, "info"), *DONE], set()),
    "an ack whose connection was lost before any commit leaves a message owed": (
        [*IN_TRANSACTION, *gone(11, 1), *DONE], {"lost"}),
    "an ack in a transaction that is still open holds a message": ([*IN_TRANSACTION, *DONE], set()),
    "a message that came under another group is corrupted, and not lost": (
        [*send(0, 1), *deliver(5, 1, group="h"), *gone(8, 1), *DONE], {"corrupted"}),
    # ---------------------------------------------------------------------------------- resurrected
    "an acknowledged message in a main store is resurrected": (
        [*ACKED, *kept(80, 1), *DONE], {"resurrected"}),
    "an acknowledged message among the dead letters is resurrected": (
        [*ACKED, *kept(80, 1, "dead-letter"), *DONE], {"resurrected"}),
    "an acknowledged message in a store-and-forward queue may have been forwarded": (
        [*ACKED, *kept(80, 1, "store-and-forward"), *DONE], set()),
    "a message whose ack is unknown may be in a store": (
        [*HELD, *answer(6, 1, outcome="info"), *kept(80, 1), *DONE], set()),
    "a message whose committed ack is undone is resurrected": (
        [*IN_TRANSACTION, *end(8, "commit", 9), *kept(80, 1), *DONE], {"resurrected"}),
    "a message whose ack was never committed for certain may be in a store": (
        [*IN_TRANSACTION, *end(8, "commit", 9, "info"), *kept(80, 1), *DONE], set()),
    "a message twice in one store, each time it was read, is resurrected": (
        [*HELD, *BROWSING, *kept(70, 1), *kept(71, 1), *read(72, "a1"), *kept(73, 1), *kept(74, 1),
         *read(75, "a1"), *BROWSED], {"resurrected"}),
    "a message twice in one reading decides nothing": (
        [*HELD, *BROWSING, *kept(70, 1), *kept(71, 1), *read(72, "a1"), *BROWSED], set()),
    "a message once in each of two readings is one message": (
        [*HELD, *BROWSING, *kept(70, 1), *read(72, "a1"), *kept(73, 1), *read(75, "a1"), *BROWSED], set()),
    "a message that two owners have, each time they were read, is resurrected": (
        [*HELD, *BROWSING, *kept(70, 1), *kept(71, 1, broker="b1"), *read(72, "a1", "b1"), *kept(74, 1),
         *kept(75, 1, broker="b1"), *read(76, "a1", "b1"),
         *BROWSED], {"resurrected"}),
    "a message that moved from one owner to another between two readings is one message": (
        [*HELD, *BROWSING, *kept(70, 1), *kept(71, 1, broker="b1"), *read(72, "a1", "b1"),
         *kept(75, 1, broker="b1"), *read(76, "a1", "b1"), *BROWSED], set()),
    "the brokers of one node ID are one owner": (
        [*role(3, "a1", "live", 0, 1), *role(4, "a2", "backup", 0, 1), *HELD, *BROWSING, *kept(70, 1),
         *kept(71, 1, broker="a2"), *read(72, "a1", "a2"),
         *kept(74, 1), *kept(75, 1, broker="a2"), *read(76, "a1", "a2"), *BROWSED], set()),
    # -------------------------------------------------------------------------------------- phantom
    "a delivery before its send was asked for is a phantom": ([*deliver(0, 1), *send(3, 1)], {"phantom"}),
    "a delivery before its send was answered is none": (
        [send(0, 1)[0], *deliver(1, 1), send(1, 1)[1]], set()),
    "a message in a store that nobody sent is a phantom": (
        [*send(0, 2), *deliver(4, 2), *kept(80, 1), *DONE], {"phantom"}),
    "a message in a store that somebody may have sent is none": ([send(0, 1)[0], *kept(80, 1), *DONE], set()),
    "an ack that a broker takes of what nobody sent is a phantom": (answer(5, 1), {"phantom"}),
    "an ack that a broker takes of what that session never got is a phantom": (
        [*HELD, *answer(7, 1, 2)], {"phantom"}),
    "an ack of what that session never got, and that is not answered, is none": (
        [*HELD, *answer(7, 1, 2, "info")], set()),
    "a message that was sent to another queue is looked up there, and is corrupted": (
        [*send(0, 1, queue="r"), *deliver(5, 1)], {"corrupted"}),
    "a message that was seen before it was sent to another queue is a phantom": (
        [*deliver(0, 1), *send(3, 1, queue="r")], {"phantom"}),
    # ------------------------------------------------------------------------------------ corrupted
    "another producer than sent it is corrupted": ([*send(0, 1), *deliver(5, 1, producer=2)], {"corrupted"}),
    "another number than it was sent with is corrupted": (
        [*send(0, 1), *deliver(5, 1, sequence=2)], {"corrupted"}),
    "another body in a store is corrupted": ([*HELD, *kept(80, 1, digest=2), *DONE], {"corrupted"}),
    "the same body in a store is not": (
        [*HELD, *kept(80, 1, digest=1, producer=1, sequence=1), *DONE], set()),
    "a stored body that was cut makes no claim": (
        [*HELD, *kept(80, 1, producer=1, sequence=1), *DONE], set()),
    "a body in a store that cannot be read is corrupted": (
        [*HELD, o(80, -3, "ok", "browse", queue="q", broker="a1", value="main", digest=3, error="unreadable"),
         *DONE], {"corrupted"}),
    "a body in a store that was cut too short to be read makes no claim": (
        [*HELD, o(80, -3, "ok", "browse", queue="q", broker="a1", value="main", error="cut"), *DONE], set()),
    "a message in a store under another group is corrupted": (
        [*HELD, *kept(80, 1, group="h"), *DONE], {"corrupted"}),
    # -------------------------------------------------------------------------------------- aborted
    "a failed send in a store is an aborted delivery": (
        [*send(0, 1, "fail"), *kept(80, 1), *DONE], {"aborted-delivery"}),
    "a send of unknown outcome may be in a store": ([*send(0, 1, "info"), *kept(80, 1), *DONE], set()),
    "a rolled back message in a store is an aborted delivery": (
        [*send(0, 1, transaction=5), *end(3, "abort", 5), *kept(80, 1), *DONE], {"aborted-delivery"}),
    "a delivery before its commit was asked for reads what is not committed": (
        [*send(0, 1, transaction=5), *deliver(3, 1), *end(4, "commit", 5)], {"read-uncommitted"}),
    "a delivery before its commit was answered does not": (
        [*send(0, 1, transaction=5), end(3, "commit", 5)[0], *deliver(4, 1), end(4, "commit", 5)[1]], set()),
    "a delivery though nobody asked for a commit reads what is not committed": (
        [*send(0, 1, transaction=5), *deliver(3, 1)], {"read-uncommitted"}),
    # ------------------------------------------------------------------------------ delivered again
    "a message that two sessions settled was doubly delivered, even while the first ack was under way": (
        [*HELD, answer(6, 1)[0], *deliver(7, 1, 2, redelivered=True), answer(7, 1)[1], *answer(10, 1, 2)],
        {"double-delivery"}),
    "a message that was settled before another session got it, and settled it too, came again and was "
    "not in two hands": (
        [*ACKED, *deliver(9, 1, 2, redelivered=True), *answer(10, 1, 2)], {"duplicate"}),
    "a message whose second ack is not answered may have been given back": (
        [*HELD, answer(6, 1)[0], *deliver(7, 1, 2, redelivered=True), answer(7, 1)[1],
         *answer(10, 1, 2, "info")], set()),
    "a message whose first ack was rolled back is settled once": (
        [*IN_TRANSACTION, *end(8, "abort", 9), *deliver(11, 1, 2, redelivered=True), *answer(12, 1, 2)],
        set()),
    "a delivery after the unsubscribe was answered is late": (
        [*send(0, 1), *left(3, 1), *deliver(6, 1)], {"late-delivery"}),
    "a delivery before the unsubscribe was answered is not late": (
        [*send(0, 1), left(3, 1)[0], *deliver(4, 1), left(4, 1)[1]], set()),
    "a delivery after the connection ended is late": (
        [*send(0, 1), *gone(3, 1), *deliver(6, 1)], {"late-delivery"}),
    "a first delivery that is read after the second is not unflagged": (
        [*joined(0, 1), *send(1, 1), *deliver(5, 1, 2, redelivered=True, delivery_count=2),
         *deliver(6, 1, delivery_count=1)], set()),
    "a delivery to a session that began after the first lacks its mark, whatever its count": (
        [*send(1, 1), *deliver(4, 1, 2, redelivered=True, delivery_count=2), *joined(5, 1),
         *deliver(6, 1, delivery_count=1)],
        {"unflagged-redelivery", "count-fell"}),
    "of two deliveries without a mark one lacks it, in whatever order they were sent": (
        [*joined(0, 1), *send(1, 1), *deliver(5, 1, 2, delivery_count=2), *deliver(6, 1, delivery_count=1)],
        {"unflagged-redelivery"}),
    "a delivery that counts itself as the second lacks its mark": (
        [*joined(0, 1), *send(1, 1), *deliver(5, 1, 2, redelivered=True, delivery_count=2),
         *deliver(6, 1, delivery_count=2)],
        {"unflagged-redelivery"}),
    "a count that falls within a session fell": (
        [*HELD[:2], *deliver(5, 1, delivery_count=2), *answer(6, 1, f="nack"),
         *deliver(9, 1, redelivered=True, delivery_count=1)], {"count-fell"}),
    "a count that falls within a session fell, whatever was answered between": (
        [*HELD[:2], *deliver(5, 1, delivery_count=2), *answer(6, 1, outcome="info", f="nack"),
         *deliver(9, 1, redelivered=True, delivery_count=1)],
        {"count-fell"}),
    "a count that stays within a session did not fall": (
        [*HELD[:2], *deliver(5, 1, delivery_count=2), *answer(6, 1, f="nack"),
         *deliver(9, 1, redelivered=True, delivery_count=2)], set()),
    "a lower count that is read later may have been sent earlier": (
        [*joined(0, 1), *send(1, 1), *deliver(5, 1, 2, redelivered=True, delivery_count=3),
         *deliver(6, 1, redelivered=True, delivery_count=2)], set()),
}  # fmt: skip

BUT_FOR: dict[str, tuple[list[Row], Promises, set[str]]] = {
    "a count that stays after a refusal is stuck where it is promised to grow": (
        [*HELD[:2], *deliver(5, 1, delivery_count=2), *answer(6, 1, f="nack"),
         *deliver(9, 1, redelivered=True, delivery_count=2)],
        Promises(counts="given back"), {"count-stuck"}),
    "a dead letter that was refused as often as it may be is settled": (
        [*REFUSED, *kept(80, 1, "dead-letter"), *DONE], Promises(delivery_attempts=1), set()),
    "a dead letter that was refused less often has died early": (
        [*REFUSED, *kept(80, 1, "dead-letter"), *DONE], Promises(delivery_attempts=2), {"died-early"}),
    "a dead letter whose acks were rolled back as often as they may be is settled": (
        [*IN_TRANSACTION, *end(8, "abort", 9), *kept(80, 1, "dead-letter"), *DONE],
        Promises(delivery_attempts=1), set()),
    "a message that was refused as often as it may be must be among the dead letters": (
        [*REFUSED, *DONE], Promises(delivery_attempts=1), {"lost"}),
    "a message that died is where its broker drops the dead": (
        [*REFUSED, *DONE], Promises(delivery_attempts=1, keeps_dead_letters=False), set()),
    "a message that was given back as often as it may be is where its broker drops the dead": (
        [*HELD, *gone(8, 1), *DONE], GIVEN_BACK, set()),
    "a message that was given back less often, and is nowhere, is lost": (
        [*HELD, *gone(8, 1), *DONE], msgspec.structs.replace(GIVEN_BACK, delivery_attempts=2), {"lost"}),
    "a message that was refused, and then given back, was given back twice": (
        [*REFUSED, *deliver(8, 1, redelivered=True), *gone(10, 1), *DONE],
        msgspec.structs.replace(GIVEN_BACK, delivery_attempts=2), set()),
    "what was given back counts for nothing where refusals alone do": (
        [*HELD, *gone(8, 1), *DONE], msgspec.structs.replace(GIVEN_BACK, attempts="refused"), {"lost"}),
    "a message that was given back as often as it may be must be among the dead letters": (
        [*HELD, *gone(8, 1), *DONE], msgspec.structs.replace(GIVEN_BACK, keeps_dead_letters=True), {"lost"}),
    "a dead letter that was given back as often as it may be is settled": (
        [*HELD, *gone(8, 1), *kept(80, 1, "dead-letter"), *DONE],
        msgspec.structs.replace(GIVEN_BACK, keeps_dead_letters=True), set()),
    "a session that was lost may have held what its client never read": (
        [*send(0, 1), *gone(8, 1, queue="q"), *DONE], GIVEN_BACK, set()),
    "a message that may have died with a session that never read it was not overtaken": (
        [*send(0, 1), *send(2, 2), *gone(8, 1, queue="q"), *deliver(10, 2, 2)], GIVEN_BACK, set()),
    "a message that cannot have died with one session was overtaken": (
        [*send(0, 1), *send(2, 2), *gone(8, 1, queue="q"), *deliver(10, 2, 2)],
        msgspec.structs.replace(GIVEN_BACK, delivery_attempts=2), {"not-linearizable"}),
    "a message that nobody makes a dead letter was overtaken": (
        [*send(0, 1), *send(2, 2), *gone(8, 1, queue="q"), *deliver(10, 2, 2)],
        msgspec.structs.replace(GIVEN_BACK, delivery_attempts=-1), {"not-linearizable"}),
    "a message was overtaken that dies of refusals alone": (
        [*send(0, 1), *send(2, 2), *gone(8, 1, queue="q"), *deliver(10, 2, 2)],
        msgspec.structs.replace(GIVEN_BACK, attempts="refused"), {"not-linearizable"}),
    "a session that left after the send may have held it": (
        [*send(0, 1), *left(8, 1), *DONE], GIVEN_BACK, set()),
    "a session that had left before the send held nothing of it": (
        [*left(0, 1), *send(3, 1), *DONE], GIVEN_BACK, {"lost"}),
    "a session of another queue held nothing of it": (
        [*send(0, 1), *gone(8, 1, queue="p"), *DONE], GIVEN_BACK, {"lost"}),
    "a session that has not ended gave nothing back": (
        [*send(0, 1), *joined(3, 1), *DONE], GIVEN_BACK, {"lost"}),
    "a dead letter that is in the main store, too, is stuck there": (
        [*REFUSED, *kept(79, 1), *kept(80, 1, "dead-letter"), *DONE], Promises(delivery_attempts=1),
        {"stuck"}),
    "a message whose refusal means its death is settled among the dead letters": (
        [*REFUSED, *kept(80, 1, "dead-letter"), *DONE], Promises(nack="dead-letter"), set()),
    "a message whose refusal means its death is lost if it is not there": (
        [*REFUSED, *DONE], Promises(nack="dead-letter"), {"lost"}),
    "a message whose refusal consumes it is settled, though its consumer died": (
        [*REFUSED, *gone(8, 1), *DONE], Promises(nack="consume"), set()),
    "a message whose refusal would consume it, but failed, is lost with its consumer": (
        [*HELD, *answer(6, 1, outcome="fail", f="nack"), *gone(8, 1), *DONE], Promises(nack="consume"),
        {"lost"}),
    "acks that are not promised to last may be forgotten": (
        [*ACKED, *kept(80, 1), *DONE], Promises(durable_acks=False), set()),
    "a broker that takes any ack proves nothing with it": (
        [*HELD, *answer(7, 1, 2)], Promises(refuses_stale_acks=False), set()),
    "even a broker that takes any ack has none to take of what nobody sent": (
        answer(5, 1), Promises(refuses_stale_acks=False), {"phantom"}),
    "a send of a batch is not certain before its commit is": (
        [*send(0, 1, transaction=5), *end(3, "commit", 5, "info"), *DONE], Promises(atomic=False), set()),
    "what was committed is not taken back by a roll-back of what came after it": (
        [*send(0, 1, transaction=5), *end(3, "commit", 5), *end(6, "abort", 5), *deliver(9, 1)], Promises(),
        set()),
    "a send that was answered twice was not refused": (
        [*SENT_OK_AND_REFUSED, *deliver(5, 1)], Promises(), set()),
    "and neither was it where others are sent in transactions": (
        [*SENT_OK_AND_REFUSED, *deliver(5, 1), *send(6, 2, transaction=5), *end(8, "commit", 5),
         *deliver(10, 2)], Promises(), set()),
    "an answer to no send puts nothing into the queue": (
        [send(0, 1)[1], *send(2, 2), *deliver(5, 2), *DONE], Promises(), set()),
    "a broker that takes any ack settles twice for nothing": (
        [*HELD, answer(6, 1)[0], *deliver(7, 1, 2, redelivered=True), answer(7, 1)[1], *answer(10, 1, 2)],
        Promises(refuses_stale_acks=False), set()),
}  # fmt: skip

ALL = {name: (rows, Promises(), expected) for name, (rows, expected) in CASES.items()} | BUT_FOR


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(answer(5, 1), {"phantom"}), ([*HELD, *answer(7, 1, 2)], set())],
    ids=["what nobody sent", "what another session got"],
)
def test_an_ack_without_a_session_is_of_any_that_got_the_message(tmp_path, rows, expected):
    """A history with such a row is refused, and yet no rule may go wrong by it."""
    rows = [{**row, "session": None} if row["f"] == "ack" else row for row in rows]
    assert {i.name for i in agreed(tmp_path, tidy(rows), OPTIONS)} == expected


@pytest.mark.parametrize("case", ALL)
@pytest.mark.slow
def test_both_implementations_say_so(tmp_path, case):
    rows, promises, expected = ALL[case]
    options = msgspec.structs.replace(OPTIONS, broker=promises)
    assert {i.name for i in agreed(tmp_path, tidy(rows), options)} == expected


@pytest.mark.parametrize(
    ("rows", "kind"),
    [([*send(0, 1), *DONE], "never delivered"), ([*HELD, *gone(8, 1), *DONE], "after delivery")],
)
def test_a_loss_says_when_it_happened(rows, kind):
    (lost,) = reference.find(tidy(rows), OPTIONS)
    assert (lost.name, lost.key) == ("lost", kind)
