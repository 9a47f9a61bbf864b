"""What a subscription was skipped for while it existed, and which copies belong together."""

from __future__ import annotations

import msgspec
import pytest
from checker_rows import MS, S, agreed, dense, finished
from topic_histories import ALICE, BOB, NEWS_OF_ALICE, PATIENT, TOPIC, Story, told

from checkers.siblings import is_sibling
from checkers.subscriptions import place_of
from checkers.verdict import Promises

PAST = [5 * MS, 9 * MS]
SKIPPED = {("lost", NEWS_OF_ALICE, 1, "skipped")}
RED = told(selector={"colour": ["red"]})
TEMPORARY = {"queue": "/temp-queue/r"}
FIFO = msgspec.structs.replace(PATIENT, broker=Promises(fifo=True))


def found(tmp_path, story, options=PATIENT):
    return {(i.name, i.queue, i.message, i.key) for i in agreed(tmp_path, dense(story.end().rows), options)}


def role(broker, node_id):
    return {"broker": broker, "node_id": node_id, "role": "live", "time_low": 0, "time_high": 0}


def two(of=TOPIC):
    """Two messages were sent to a subscription that exists."""
    return Story().subscribe(1).send(1, of=of).send(2, of=of)


def overtaken():
    """The second of them alone was read."""
    return two().consume(2, 1)


def served_elsewhere(outcome="ok"):
    """Session 9 asked for another subscription, which was dropped."""
    return Story().subscribe(9, outcome, of=BOB).drop(of=BOB)


INSIDE = {**TOPIC, "transaction": 7}


OTHER_PAIR = {"label": "clock", "links": [], "nodes": ["b1"], "shape": None}
OF_NOBODY = {**TOPIC, "producer": None}
READ_OF_NOBODY = {**ALICE, "producer": None}
BLUE = told(selector={"colour": ["blue"]})


def red(*messages):
    """Session 1 wants what is red, and these messages are."""
    story = Story().subscribe(1, value=RED)
    for message in messages:
        story.send(message, properties={"colour": "red"})
    return story


def meanwhile(story):
    """The rows of a story lie between the request and the answer of the send of message 1."""
    sending = Story().send(1).rows
    whole = Story().subscribe(1)
    for row in (sending[0], *({**row, "process": 3} for row in story.rows), sending[1]):
        whole.rows.append({**row, "index": len(whole.rows), "time": len(whole.rows) * MS})
    return whole


@pytest.mark.parametrize(
    "story",
    [
        overtaken().leave(1).drop(),
        overtaken().drop("info"),
        overtaken().drop(None),
        overtaken().lose(1).drop("info"),
        overtaken().leave(1).subscribe(2, value=RED),
        overtaken().leave(1).subscribe(2, value=RED).leave(2).subscribe(3).consume(2, 3),
        # It was dropped before, and made again.
        Story().subscribe(9).leave(9).drop().subscribe(1).send(1).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(9, value=RED).leave(9).subscribe(1).send(1).send(2).consume(2, 1).leave(1).drop(),
        # A subscribe with another selector that fails changes nothing.
        Story().subscribe(1).send(1).subscribe(2, "fail", value=RED).send(2).consume(2, 1).leave(1).drop(),
        # The later message was read in the session after that in which it was due.
        two().leave(1).subscribe(2).consume(2, 2).leave(2).drop(),
        # Nobody consumed it when it was sent.
        Story().subscribe(1).leave(1).send(1).send(2).subscribe(2).consume(2, 2).leave(2).drop(),
        # Another session came when the later message had been read.
        overtaken().subscribe(2).leave(1).leave(2).drop(),
        # The outcome of the later send does not matter.
        Story().subscribe(1).send(1).send(2, "info").consume(2, 1).leave(1).drop(),
        # One of them was sent twice, the first for certain before the second.
        Story().subscribe(1).send(1).send(1).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, "info").send(1).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1).send(2, "fail").send(2).consume(2, 1).leave(1).drop(),
        # What a failed attempt asked for was never there.
        Story().subscribe(1).send(1, "fail", priority=2).send(1).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, "fail", expires=PAST).send(1).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1).send(2, "fail", expires=PAST).send(2).consume(2, 1).leave(1).drop(),
        # Another session asked for another subscription, and was refused this one.
        served_elsewhere().subscribe(9, "fail").subscribe(1).send(1).send(2).consume(2, 1).drop(),
        # Its session wants only red messages of a queue.
        Story().subscribe(1, of={"queue": "q"}, value=RED).subscribe(1).send(1).send(2).consume(2, 1).drop(),
        # The selector of its session matches both, whatever another subscription wants.
        red(1, 2).consume(2, 1).leave(1).drop(),
        red(1, 2).subscribe(5, of=BOB, value=BLUE).consume(2, 1).leave(1).drop(),
        # The later message was read though its send had failed, or may expire later.
        Story().subscribe(1).send(1).send(2, "fail").consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1).send(2, expires=[S, 2 * S]).consume(2, 1).leave(1).drop(),
        # What could not be read lies in a store: it was not given out.
        overtaken().keep(None).leave(1).drop(),
        # One later message was sent before the commit, another after it.
        Story().subscribe(1).send(1, of=INSIDE).send(2).commit(7).consume(2, 1).send(3).consume(3, 1).drop(),
        Story().subscribe(1).send(1, of=INSIDE).send(3).commit(7).consume(3, 1).send(2).consume(2, 1).drop(),
        # Both have one priority.
        Story().subscribe(1).send(1, priority=7).send(2, priority=7).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, priority=4).send(2).consume(2, 1).leave(1).drop(),
        # The first later message was read before it may have expired, and another after that.
        Story()
        .subscribe(1)
        .send(1, expires=[10 * MS, 9 * S])
        .send(2)
        .send(3)
        .consume(2, 1)
        .consume(3, 1)
        .leave(1)
        .drop(),
        # It cannot have expired, and does not care about clocks.
        Story().subscribe(1).send(1).send(2).set_clock().consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, expires=[S, 2 * S]).send(2).consume(2, 1).set_clock().leave(1).drop(),
        Story().subscribe(1).send(1, expires=[S, 2 * S]).send(2).consume(2, 1).leave(1).drop(),
        # The wrong clock is of another pair.
        Story()
        .add(-2, "info", "role", **role("a1", "n"))
        .add(-2, "info", "role", **role("b1", "m"))
        .subscribe(1)
        .send(1, expires=[S, 2 * S])
        .send(2)
        .add(-1, "invoke", "clock-skew", value=told(**OTHER_PAIR))
        .add(-1, "info", "clock-skew", value=told(**OTHER_PAIR, bit=True))
        .consume(2, 1)
        .drop(),
        # In a transaction, alone or both.
        Story().subscribe(1).send(1, of=INSIDE).commit(7).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, of=INSIDE).send(2, of=INSIDE).commit(7).consume(2, 1).leave(1).drop(),
        # After a fail-over, in a session that was asked for later.
        Story()
        .add(-2, "info", "role", **role("a1", "n"))
        .add(-2, "info", "role", **role("a2", "n"))
        .subscribe(1)
        .send(1)
        .send(2)
        .leave(1)
        .subscribe(2, broker="a2")
        .deliver(2, 2, broker="a2")
        .leave(2)
        .drop(),
        # The session of a broker that is gone has gone with it.
        Story()
        .subscribe(1)
        .lose(1)
        .add(-3, "info", "restart", broker="a1")
        .send(1)
        .send(2)
        .subscribe(2)
        .consume(2, 2)
        .leave(2)
        .drop(),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_what_was_left_out_of_a_subscription_that_ended_is_lost(tmp_path, story):
    assert found(tmp_path, story) >= SKIPPED


@pytest.mark.parametrize(
    "story",
    [
        # Nothing later was read.
        two().leave(1).drop(),
        two().consume(1, 1).leave(1).drop(),
        # It had not been there before the send was asked for, or not for certain.
        Story().send(1).subscribe(1).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1, "info").send(1).send(2).subscribe(3).consume(2, 3).leave(3).drop(),
        Story().subscribe(1).leave(1).drop().send(1).subscribe(2).send(2).consume(2, 2).leave(2).drop(),
        # It ended between the two, or may have.
        Story().subscribe(1).send(1).leave(1).drop().subscribe(2).send(2).consume(2, 2).leave(2).drop(),
        Story().subscribe(1).send(1).drop("info").send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).drop("info").send(1).send(2).consume(2, 1).leave(1).drop(),
        # Another session may have it that asked for another subscription, too, or for any.
        served_elsewhere().subscribe(9).subscribe(1).send(1).send(2).consume(2, 1).drop(),
        served_elsewhere("fail").subscribe(9).subscribe(1).send(1).send(2).consume(2, 1).drop(),
        served_elsewhere().subscribe(9, of={}).subscribe(1).send(1).send(2).consume(2, 1).drop(),
        # It waited when the subscription was made again with another selector.
        Story()
        .subscribe(1)
        .send(1, properties={"colour": "red"})
        .leave(1)
        .subscribe(2, value=RED)
        .send(2, properties={"colour": "red"})
        .consume(2, 2)
        .leave(2)
        .drop(),
        Story()
        .subscribe(1)
        .send(1)
        .subscribe(2, "info", value=RED)
        .send(2)
        .consume(2, 1)
        .leave(1)
        .drop(),
        Story()
        .subscribe(1)
        .send(1)
        .leave(1)
        .subscribe(2, value=RED)
        .leave(2)
        .subscribe(3)
        .send(2)
        .consume(2, 3)
        .leave(3)
        .drop(),
        # A drop of unknown outcome may happen late, and a subscribe that failed made nothing.
        Story().subscribe(9).leave(9).drop("info").subscribe(1).send(1).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1, "fail").send(1).subscribe(2).send(2).consume(2, 2).leave(2).drop(),
        # Somebody may have received it, and was never heard.
        overtaken().add(60, "info", "receive", **TOPIC).leave(1).drop(),
        # Its selector does not match.
        Story()
        .subscribe(1, value=RED)
        .send(1, properties={"colour": "blue"})
        .send(2, properties={"colour": "red"})
        .consume(2, 1)
        .leave(1)
        .drop(),
        # Its session asked for the subscription with another selector, too.
        Story()
        .subscribe(1, value=RED)
        .subscribe(1)
        .send(1)
        .send(2)
        .consume(2, 1)
        .drop(),
        # It is less urgent, or delayed, or may have expired.
        Story().subscribe(1).send(1, priority=2).send(2, priority=7).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, priority=2).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, delay=[5 * MS, 9 * MS]).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, expires=[5 * MS, 9 * MS]).send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1).send(2, expires=[5 * MS, 9 * S]).consume(2, 1).leave(1).drop(),
        # It, or the later one, expires, and a clock is wrong.
        Story().subscribe(1).send(1, expires=[S, 2 * S]).send(2).set_clock().consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1).send(2, expires=[S, 2 * S]).set_clock().consume(2, 1).leave(1).drop(),
        # The later one was delayed.
        Story().subscribe(1).send(1).send(2, delay=[MS, 2 * MS]).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1).send(2).send(3, delay=[MS, 2 * MS]).consume(1, 1).consume(3, 1).drop(),
        # The first in turn was sent before the commit, and another has a lower number.
        Story().subscribe(1).send(2, of=INSIDE).send(3).commit(7).consume(3, 1).send(1).consume(1, 1).drop(),
        # The later one was sent twice while the other was under way.
        meanwhile(Story().send(2, "info").send(2)).consume(2, 1).drop(),
        # The one that was sent after the commit was read when the subscription had ended.
        Story()
        .subscribe(1)
        .send(1, of=INSIDE)
        .send(2)
        .commit(7)
        .consume(2, 1)
        .leave(1)
        .drop()
        .subscribe(2)
        .send(3)
        .consume(3, 2)
        .leave(2)
        .drop(),
        # The later one was read before it was sent.
        Story().subscribe(1).send(1).deliver(2, 1).send(2).leave(1).drop(),
        # Nobody knows whose they are, or in which order they were sent.
        two(of=OF_NOBODY).deliver(2, 1, of=READ_OF_NOBODY).drop(),
        Story().subscribe(1).send(1, of={**TOPIC, "sequence": None}).send(2).consume(2, 1).drop(),
        # No row says to which subscription its session belongs, or it asked for a queue.
        Story().subscribe(9, of={}).send(1).send(2).consume(2, 9),
        Story().subscribe(9).leave(9).subscribe(1, of={"queue": "q"}).send(1).send(2).consume(2, 1).drop(),
        # Another member had it on its way, and is lost, or is there.
        Story().subscribe(1).subscribe(2).send(1).send(2).consume(2, 1).drop(),
        Story().subscribe(1).subscribe(2).send(1).send(2).consume(2, 1).lose(2).leave(1).drop(),
        Story().subscribe(2).lose(2).subscribe(1).send(1).send(2).consume(2, 1).leave(1).drop(),
        two().subscribe(2).consume(2, 1).leave(2).leave(1).drop(),
        two().subscribe(2, "info").consume(2, 1).leave(1).drop(),
        two().deliver(2, 9).consume(2, 1).leave(1).drop(),
        two().subscribe(2, "fail").deliver(2, 2).leave(1).drop(),
        two().subscribe(2, of=BOB).deliver(2, 2).leave(1).drop(),
        # Something came in no session, which may have held it.
        overtaken().add(90, "ok", "deliver", 2, **ALICE, digest=2, producer=1, sequence=2).leave(1).drop(),
        # No row had asked for the session by then.
        Story().subscribe(1).leave(1).send(1).send(2).deliver(2, 2).subscribe(2).leave(2).drop(),
        # It came before, in any way, or was found among the dead.
        overtaken().deliver(1, 1).leave(1).drop(),
        two().deliver(1, 1).add(190, "invoke", "nack", 1, **ALICE, session=1).consume(2, 1).leave(1).drop(),
        # The later message came when the session had been left.
        two().leave(1).deliver(2, 1).drop(),
        two().lose(1).deliver(2, 1).drop(),
        # Its send is not certain.
        Story().subscribe(1).send(1, "info").send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, "fail").send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, of=INSIDE).commit(7, "info").send(2).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1, of=INSIDE).send(2).commit(7).consume(2, 1).leave(1).drop(),
        # One of them was sent twice, and the later one perhaps first.
        Story().subscribe(1).send(1, "info").send(2).send(1).consume(2, 1).leave(1).drop(),
        Story().subscribe(1).send(2, "info").send(1).send(2).consume(2, 1).leave(1).drop(),
        # Another producer, or another group.
        Story().subscribe(1).send(1).send(2, of={**TOPIC, "producer": 2}).deliver(2, 1).leave(1).drop(),
        Story().subscribe(1).send(1).send(2, of={**TOPIC, "group": "h"}).leave(1).drop(),
        # It was shown where it had not been sent.
        overtaken().deliver(1, 9, of={"queue": "q"}).leave(1).drop(),
        # It was sent after the one with the higher number.
        Story().subscribe(1).send(2).send(1).consume(2, 1).leave(1).drop(),
        # Another broker took it.
        Story().subscribe(1).leave(1).send(1, broker="b1").send(2).subscribe(2).consume(2, 2).leave(2).drop(),
        Story().subscribe(1).send(1, broker="b1").send(2).consume(2, 1).leave(1).drop(),
        Story()
        .add(-2, "info", "role", **role("a1", "n"))
        .add(-2, "info", "role", **role("a2", "n"))
        .subscribe(1)
        .send(1, broker="a2")
        .send(2)
        .consume(2, 1)
        .leave(1)
        .drop(),
        # A body that nobody could read may have been it.
        overtaken().add(101, "ok", "deliver", None, **ALICE, session=1, broker="a1").leave(1).drop(),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_what_a_subscription_may_not_have_been_owed_is_not_lost(tmp_path, story):
    assert {name for name, *_ in found(tmp_path, story)}.isdisjoint({"lost", "torn-transaction"})


def test_a_repeated_send_is_owed_since_the_first_that_did_not_fail(tmp_path):
    story = Story().send(1, "fail").subscribe(1).send(1)
    assert found(tmp_path, story) == {("lost", NEWS_OF_ALICE, 1, "never delivered")}
    early = Story().send(1, "info").subscribe(1).send(1)
    (tmp_path / "early").mkdir()
    assert found(tmp_path / "early", early) == set()  # the first may have happened, before anybody subscribed


def test_what_is_owed_to_the_end_is_lost_for_that_alone(tmp_path):
    assert found(tmp_path, overtaken()) == {("lost", NEWS_OF_ALICE, 1, "never delivered")}


@pytest.mark.parametrize(
    ("attempts", "most", "lost"), [("refused", 1, True), ("given back", 1, False), ("given back", -1, True)]
)
def test_what_a_session_gave_back_may_have_died_of_that(tmp_path, attempts, most, lost):
    promises = Promises(attempts=attempts, delivery_attempts=most)
    story = two().leave(1).subscribe(2).consume(2, 2).leave(2).drop()
    options = msgspec.structs.replace(PATIENT, broker=promises)
    assert found(tmp_path, story, options) == (SKIPPED if lost else set())


@pytest.mark.parametrize("change", [{"ordered": False}, {"broker": Promises(groups=False)}])
def test_nothing_is_skipped_where_no_order_is_promised(tmp_path, change):
    assert found(tmp_path, overtaken().leave(1).drop(), msgspec.structs.replace(PATIENT, **change)) == set()


def temporary(*messages):
    story = Story().subscribe(1, of=TEMPORARY)
    for message in messages:
        story.send(message, of=TEMPORARY)
    return story


@pytest.mark.parametrize(
    ("story", "lost"),
    [
        (temporary(1, 2).consume(2, 1, of=TEMPORARY).leave(1, of=TEMPORARY).drop(of=TEMPORARY), True),
        (temporary(1, 2).consume(2, 1, of=TEMPORARY).lose(1, of=TEMPORARY), True),
        (temporary(1, 2).leave(1, of=TEMPORARY).drop(of=TEMPORARY), False),
        (temporary(1, 2).drop("info", of=TEMPORARY).consume(2, 1, of=TEMPORARY), False),
        (Story().add(-2, "info", "role", **role("a1", "n")).add(-2, "info", "role", **role("a2", "n"))
         .subscribe(1, of=TEMPORARY).add(-3, "info", "restart", broker="a1")
         .send(1, of=TEMPORARY, broker="a2").send(2, of=TEMPORARY).subscribe(2, of=TEMPORARY)
         .consume(2, 2, of=TEMPORARY).lose(2, of=TEMPORARY), False),
        (Story().send(1, of=TEMPORARY).subscribe(1, of=TEMPORARY).send(2, of=TEMPORARY)
         .consume(2, 1, of=TEMPORARY).lose(1, of=TEMPORARY), False),
    ],
)  # fmt: skip
def test_a_temporary_queue_is_skipped_for_until_its_owner_leaves(tmp_path, story, lost):
    names = {key for key in found(tmp_path, story) if key[0] == "lost"}
    assert names == ({("lost", "/temp-queue/r", 1, "skipped")} if lost else set())


@pytest.mark.parametrize("delay", [None, [5 * S, 6 * S], [MS, 2 * MS]])
def test_a_reply_that_was_not_due_before_its_owner_left_is_not_lost(tmp_path, delay):
    asked = {} if delay is None else {"delay": delay}
    story = Story().subscribe(1, of=TEMPORARY).send(1, of=TEMPORARY, **asked)
    story.rows += finished(len(story.rows))[:3]
    story.leave(1, of=TEMPORARY).drop(of=TEMPORARY)
    story.rows += finished(len(story.rows))[3:]
    for index, row in enumerate(story.rows):
        row |= {"index": index, "time": index * MS}
    story.end = lambda: story
    lost = {("lost", "/temp-queue/r", 1, "never delivered")}
    assert found(tmp_path, story) == (set() if delay == [5 * S, 6 * S] else lost)


def ungrouped(*rows):
    """Rows without a group."""
    return [{name: value for name, value in row.items() if name != "group"} for row in rows]


@pytest.mark.parametrize(
    ("fifo", "late", "lost"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_without_a_group_order_is_promised_where_a_queue_is_fifo(tmp_path, fifo, late, lost):
    story = Story().subscribe(1)
    if late:  # the first may have come after the second
        mine = {**TOPIC, "digest": 1, "producer": 1, "sequence": 1}
        story.add(1, "invoke", "send", 1, **mine).send(2).add(1, "ok", "send", 1, broker="a1", **mine)
    else:
        story.send(1).send(2, of={**TOPIC, "producer": 2, "sequence": 0})
    story.deliver(2, 1, of={**ALICE, **({} if late else {"producer": 2, "sequence": 0})}).leave(1).drop()
    story.rows = ungrouped(*story.rows)
    assert found(tmp_path, story, FIFO if fifo else PATIENT) == (SKIPPED if lost else set())


def test_without_a_group_the_producer_does_not_matter(tmp_path):
    story = two(of=OF_NOBODY).deliver(2, 1, of=READ_OF_NOBODY).leave(1).drop()
    story.rows = ungrouped(*story.rows)
    assert found(tmp_path, story, FIFO) == SKIPPED


@pytest.mark.parametrize("fifo", [True, False])
def test_without_a_group_no_promise_of_groups_matters(tmp_path, fifo):
    story = two().deliver(2, 1).leave(1).drop()
    story.rows = ungrouped(*story.rows)
    options = msgspec.structs.replace(PATIENT, broker=Promises(fifo=fifo, groups=not fifo))
    assert found(tmp_path, story, options) == (SKIPPED if fifo else set())


def test_each_of_two_topics_may_skip_a_message_without_a_group(tmp_path):
    story = two().consume(2, 1)
    sport = {"queue": "/topic/sport"}
    of_sport = {**sport, "subscription": "alice"}
    story.subscribe(3, of=of_sport).send(3, of=sport).send(4, of=sport).consume(4, 3, of=of_sport)
    story.leave(1).leave(3, of=of_sport).drop().drop(of=of_sport)
    story.rows = ungrouped(*story.rows)
    also = {("lost", place_of("/topic/sport", "alice"), 3, "skipped")}
    assert found(tmp_path, story, FIFO) == SKIPPED | also


# ------------------------------------------------------------------------------------------- copies

TORN = {("torn-transaction", NEWS_OF_ALICE, 1, "7")}


def committed(outcome, sent="ok"):
    """One message was sent to two subscriptions in a transaction, and one got it."""
    story = Story().subscribe(1).subscribe(2, of=BOB).send(1, sent, of=INSIDE).commit(7, outcome)
    return story.consume(1, 2, of=BOB)


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_a_transaction_is_torn_between_two_subscriptions(tmp_path, outcome):
    lost = {("lost", NEWS_OF_ALICE, 1, "never delivered")} if outcome == "ok" else set()
    assert found(tmp_path, committed(outcome)) == TORN | lost


@pytest.mark.parametrize(
    "story",
    [
        committed("info").consume(1, 1),
        committed("info").deliver(1, 9, of={"queue": "q"}),
        committed("info").keep(1),
        committed("info").drop(),
        committed("info").drop("info"),
        committed("info", sent="info"),
        committed("info").leave(1).subscribe(3, value=RED),
        Story().subscribe(2, of=BOB).send(1, of=INSIDE).commit(7, "info").consume(1, 2, of=BOB).subscribe(1),
        Story().subscribe(1, "info").subscribe(2, of=BOB).send(1, of=INSIDE).commit(7, "info")
        .consume(1, 2, of=BOB),
        Story().subscribe(1, broker="b1").subscribe(2, of=BOB).send(1, of=INSIDE).commit(7, "info")
        .consume(1, 2, of=BOB),
        Story().subscribe(1, value=RED).subscribe(2, of=BOB).send(1, of=INSIDE).commit(7, "info")
        .consume(1, 2, of=BOB),
        Story().subscribe(1).subscribe(2, of=BOB).send(1, of=INSIDE, expires=[9, 9 * S]).commit(7, "info")
        .consume(1, 2, of=BOB),
        Story().subscribe(1).subscribe(2, of=BOB).send(1, of=INSIDE).commit(7, "info"),
    ],
)  # fmt: skip
def test_a_transaction_is_whole_where_a_subscription_may_have_got_its_copy(tmp_path, story):
    assert {name for name, *_ in found(tmp_path, story)} <= {"corrupted"}


def test_a_transaction_is_torn_where_a_subscription_that_ended_was_skipped(tmp_path):
    story = committed("info").send(2).consume(2, 1).leave(1).drop()
    torn = {key for key in found(tmp_path, story) if key[0] != "lost"}
    assert torn == TORN
    late = Story().subscribe(1).subscribe(2, of=BOB).send(1, of=INSIDE).commit(7, "info").send(2)
    late.consume(1, 2, of=BOB).consume(2, 1).consume(2, 2, of=BOB).leave(1).drop()
    failed = Story().subscribe(1).subscribe(2, of=BOB).send(1, "fail", of=INSIDE).send(1, of=INSIDE)
    failed.send(3, of=INSIDE).commit(7, "info").consume(1, 2, of=BOB).consume(3, 2, of=BOB)
    failed.consume(3, 1).send(2).consume(2, 1).leave(1).drop()
    (tmp_path / "failed").mkdir()
    assert TORN.isdisjoint(found(tmp_path / "failed", failed))
    (tmp_path / "late").mkdir()
    assert found(tmp_path / "late", late) == set()  # the commit may have happened after the second send


def test_a_transaction_is_torn_where_a_subscription_got_its_second_message_alone(tmp_path):
    story = Story().subscribe(1).send(1, of=INSIDE).send(2, of=INSIDE).commit(7, "info")
    story.consume(2, 1).leave(1).drop()
    assert found(tmp_path, story) == TORN


NOT_COPIED = {("lost", NEWS_OF_ALICE, 1, "not copied")}


def unknown(outcome="info", **asked):
    """One message of unknown outcome was sent to two subscriptions, and one got it."""
    story = Story().subscribe(1).subscribe(2, of=BOB).send(1, outcome, **asked)
    return story.consume(1, 2, of=BOB)


@pytest.mark.parametrize(
    "story",
    [
        unknown(),
        unknown(None),
        Story().subscribe(1).subscribe(2, of=BOB).send(1, "info").keep(1, of=BOB),
        Story().subscribe(1).subscribe(2, of=BOB).send(1, "info").send(1, "fail").consume(1, 2, of=BOB),
    ],
)  # fmt: skip
def test_a_send_of_unknown_outcome_is_copied_to_all_subscriptions_or_none(tmp_path, story):
    lost = {key for key in found(tmp_path, story) if key[0] == "lost"}
    assert lost == NOT_COPIED


@pytest.mark.parametrize(
    "story",
    [
        unknown().consume(1, 1),
        unknown().deliver(1, 1),
        unknown().add(101, "invoke", "ack", 1, **ALICE, session=1),
        unknown("fail"),
        unknown().add(60, "info", "receive", **TOPIC),
        # It was shown elsewhere, where it had not been sent, or before it was sent.
        unknown().deliver(1, 9, of={"queue": "q"}),
        Story().subscribe(1).subscribe(2, of=BOB).deliver(1, 2, of=BOB).send(1, "info"),
        # Brokers of two nodes serve one of the subscriptions.
        Story().subscribe(1).leave(1).subscribe(3, broker="b1").subscribe(2, of=BOB).send(1, "info")
        .consume(1, 2, of=BOB),
        Story().subscribe(1).leave(1).subscribe(3, broker="b1").subscribe(2, of=BOB, broker="b1")
        .send(1, "info").deliver(1, 2, of=BOB, broker="b1"),
        unknown().keep(1),
        unknown().drop(),
        unknown().drop("info"),
        unknown().leave(1).subscribe(3, value=RED),
        unknown(expires=[9, 9 * S]),
        Story().subscribe(2, of=BOB).send(1, "info").subscribe(1).consume(1, 2, of=BOB),
        Story().subscribe(1, "info").subscribe(2, of=BOB).send(1, "info").consume(1, 2, of=BOB),
        Story().subscribe(1, value=RED).subscribe(2, of=BOB).send(1, "info").consume(1, 2, of=BOB),
        Story().subscribe(1, broker="b1").subscribe(2, of=BOB).send(1, "info").consume(1, 2, of=BOB),
        Story().subscribe(1).subscribe(2, of=BOB).send(1, "info"),
    ],
)  # fmt: skip
def test_a_subscription_may_have_got_its_copy_of_a_send_of_unknown_outcome(tmp_path, story):
    assert {name for name, *_ in found(tmp_path, story)}.isdisjoint({"lost"})


def test_a_queue_is_no_sibling_of_a_subscription():
    alice, bob, queue = ((0, place, "g") for place in (NEWS_OF_ALICE, place_of("/topic/news", "bob"), "q"))
    assert is_sibling(alice, bob)
    assert not is_sibling(alice, (0, place_of("/topic/other", "bob"), "g"))
    assert not is_sibling(alice, (0, bob[1], "h"))
    assert not any(is_sibling(*pair) for pair in ((alice, queue), (queue, alice), (queue, queue)))


@pytest.mark.parametrize(
    ("attempts", "kept", "lost"),
    [(1, False, set()), (2, False, NOT_COPIED), (-1, False, NOT_COPIED), (1, True, NOT_COPIED)],
)
def test_a_copy_may_have_died_with_a_session_that_never_read_it(tmp_path, attempts, kept, lost):
    promises = Promises(delivery_attempts=attempts, attempts="given back", keeps_dead_letters=kept)
    options = msgspec.structs.replace(PATIENT, broker=promises)
    assert found(tmp_path, unknown().lose(1), options) == lost


def test_sends_that_are_not_atomic_may_be_copied_in_part(tmp_path):
    options = msgspec.structs.replace(PATIENT, broker=Promises(atomic=False))
    assert found(tmp_path, unknown(), options) == set()


def test_a_subscription_that_was_asked_for_before_its_drop_was_answered_is_owed_nothing(tmp_path):
    story = Story().subscribe(1).add(200, "invoke", "drop", **ALICE)
    story.add(103, "invoke", "subscribe", session=3, **ALICE).add(200, "ok", "drop", **ALICE)
    story.add(103, "ok", "subscribe", session=3, broker="a1", **ALICE)
    assert found(tmp_path, story.send(1)) == set()  # the drop may have come after the subscribe
