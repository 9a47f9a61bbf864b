"""Temporary queues: what is owed to them, and what shows that one outlived its owner."""

from __future__ import annotations

import itertools
import json
import random

import checker_rows
import pytest
from checker_rows import MS, agreed, dense, o, phase, table
from damaged import DAMAGE, damage

from checkers import breakage, judge
from checkers.source import HereSource, TablePart
from checkers.verdict import CheckOptions

REPLIES = "/temp-queue/r0"
PATIENT = CheckOptions(unavailable_bound_s=1000, recovery_bound_s=1000)


class Story(checker_rows.Story):
    """Of a temporary queue that is owned by connection 1."""

    def __init__(self):
        super().__init__()
        self.process = 200

    def add(self, process, type_, f, message=None, **columns):
        mine = {} if f in ("phase", "role", "kill") else {"queue": REPLIES}
        return super().add(process, type_, f, message, **{**mine, **columns})

    def subscribe(self, session=1, connection=1, outcome="ok", **of):
        mine = {"session": session, "connection": connection, **of}
        self.add(100 + session, "invoke", "subscribe", **mine)
        return self.add(100 + session, outcome, "subscribe", broker="a1", **mine)

    def send(self, message, outcome="ok", broker="a1", **of):
        mine = {"digest": message, "producer": 1, "sequence": message, **of}
        self.add(1, "invoke", "send", message, **mine)
        return self.add(1, outcome, "send", message, broker=broker, **mine)

    def deliver(self, message, session=1, connection=1, **of):
        told = {"session": session, "connection": connection, "broker": "a1", "redelivered": False, **of}
        return self.add(
            100 + session, "ok", "deliver", message, digest=message, producer=1, sequence=message, **told
        )

    def consume(self, message, session=1):
        self.deliver(message, session)
        mine = {"session": session, "producer": 1, "sequence": message}
        self.add(100 + session, "invoke", "ack", message, **mine)
        return self.add(100 + session, "ok", "ack", message, broker="a1", **mine)

    def refuse(self, message, session=1):
        """Its ack fails: the broker has it again."""
        self.deliver(message, session)
        mine = {"session": session, "producer": 1, "sequence": message}
        self.add(100 + session, "invoke", "ack", message, **mine)
        return self.add(100 + session, "fail", "ack", message, broker="a1", **mine)

    def unsubscribe(self, session=1):
        mine = {"session": session, "connection": 1}
        self.add(100 + session, "invoke", "unsubscribe", **mine)
        return self.add(100 + session, "ok", "unsubscribe", broker="a1", **mine)

    def drop(self, outcome="ok", lost=False, **of):
        if lost:
            self.add(100, "info", "disconnect", session=1, connection=1, broker="a1", **of)
        self.add(self.process, "invoke", "drop", connection=1, **of)
        if outcome:
            self.add(self.process, outcome, "drop", connection=1, **of)
        self.process += outcome in ("info", None)
        return self

    def keep(self, message, **of):
        mine = {"broker": "a1", "value": "main", "producer": 1, "sequence": message, "digest": message}
        return self.add(-3, "ok", "browse", message, **{**mine, "group": "g", **of})

    def kill(self, broker="a1", seen="gone"):
        told = {"label": f"kill-{len(self.rows)}"}
        self.add(-1, "invoke", "kill", value=json.dumps(told))
        value = json.dumps({**told, "bit": True, "observed": {broker: seen}})
        return self.add(-1, "info", "kill", value=value)

    def phase(self, *values):
        for value in values:
            self.rows.append(phase(len(self.rows), value))
        return self

    def drain(self):
        return self.phase("heal", "recovered", "drain")

    def end(self):
        drained = any(row.get("value") == "drain" for row in self.rows)
        (self if drained else self.drain()).phase("browse")
        for broker in ("a1", "a2", "b1"):
            self.rows.append(o(len(self.rows), -3, "ok", "browse", broker=broker))
        return self.phase("end")


@pytest.fixture
def found(tmp_path):
    """What both implementations find in a story, by name, message and key."""
    count = itertools.count()

    def find(story):
        place = tmp_path / str(next(count))
        place.mkdir()
        return {(i.name, i.message, i.key) for i in agreed(place, dense(story.end().rows), PATIENT)}

    return find


LOST = {("lost", 1, "never delivered")}


def test_a_reply_that_never_came_while_its_queue_lived_is_lost(found):
    assert found(Story().subscribe().send(1).drain().drop()) == LOST
    assert found(Story().subscribe().send(1)) == LOST
    assert found(Story().subscribe().send(1).subscribe(2).drain().drop()) == LOST


def test_one_process_may_leave_two_sessions_at_once(found):
    story = Story().subscribe().subscribe(2).send(1).drain()
    for type_ in ("invoke", "ok"):
        for session in (1, 2):
            story.add(100, type_, "unsubscribe", session=session, broker="a1")
    assert found(story.drop()) == LOST


def test_a_reply_that_came_is_owed_no_more(found):
    assert found(Story().subscribe().send(1).consume(1).drain().drop()) == set()


@pytest.mark.parametrize(
    "story",
    [
        Story().subscribe().send(1).deliver(1).drain().drop(lost=True),
        Story().subscribe().send(1).drain().deliver(1).unsubscribe().drop(),
        Story().subscribe().send(1).refuse(1).deliver(1, redelivered=True).drain().drop(lost=True),
    ],
)
def test_what_its_owner_held_to_the_end_was_not_given_back(found, story):
    assert found(story) == set()


@pytest.mark.parametrize(
    "story",
    [
        Story().subscribe().send(1).refuse(1).drain().drop(lost=True),
        Story().subscribe().send(1).refuse(1).drain().unsubscribe().drop(),
    ],
)
def test_what_was_given_back_while_its_queue_lived_and_came_no_more_is_lost(found, story):
    assert found(story) == {("lost", 1, "after delivery")}


def test_what_a_session_of_a_lasting_queue_held_to_its_end_was_given_back(found):
    lasting = Story().subscribe().send(1).deliver(1).drain().unsubscribe()
    for row in lasting.rows:
        if row.get("queue") == REPLIES:
            row["queue"] = "q"
    assert found(lasting) == {("lost", 1, "after delivery")}


@pytest.mark.parametrize("outcome", ["ok", "info", None])
def test_nothing_is_owed_to_a_queue_that_may_have_ended_before_the_drain(found, outcome):
    assert found(Story().subscribe().send(1).drop(outcome)) == set()
    assert found(Story().subscribe().send(1).phase("heal").drop(outcome).phase("recovered", "drain")) == set()


@pytest.mark.parametrize("first", ["drop", "unsubscribe"])
def test_nothing_is_owed_where_an_end_without_an_answer_is_asked_for_again(found, first):
    """The first may have happened before the drain, whatever became of the second."""
    mine = {"connection": 1, "session": 1}
    story = Story().subscribe().send(1).add(300, "invoke", first, **mine).drain()
    assert found(story.add(300, "invoke", first, **mine).add(300, "ok", first, **mine)) == set()
    only = Story().subscribe().send(1).drain().add(300, "invoke", first, **mine)
    assert found(only.add(300, "ok", first, **mine)) == LOST


def test_a_drop_that_failed_ends_nothing(found):
    assert found(Story().subscribe().send(1).drop("fail")) == LOST


def test_nothing_is_owed_where_the_connection_was_lost_in_the_drain(found):
    assert found(Story().subscribe().send(1).drain().drop("info", lost=True)) == set()
    assert found(Story().subscribe().send(1).drain().drop(None, lost=True)) == set()


def test_nothing_is_owed_where_a_session_was_lost_before_the_drain(found):
    lost = Story().subscribe().send(1).add(101, "info", "disconnect", session=1, broker="a1")
    assert found(lost) == set()


def test_what_was_sent_before_it_was_there_is_not_owed(found):
    assert found(Story().send(1).subscribe()) == set()
    assert found(Story().subscribe(outcome="info").send(1)) == set()


def test_what_another_broker_took_is_not_owed(found):
    assert found(Story().subscribe().send(1, broker="a2")) == set()


def test_what_is_in_a_store_after_its_queue_ended_is_resurrected(found):
    story = Story().subscribe().send(1).drop().drain().keep(1)
    assert found(story) == {("resurrected", 1, None)}


@pytest.mark.parametrize(
    "story",
    [
        Story().subscribe().send(1).keep(1).drop(),
        Story().subscribe().send(1).keep(1).kill().drop("info", lost=True),
        Story().subscribe().send(1).drop().drain().keep(1, value="store-and-forward"),
    ],
)
def test_what_was_in_a_store_before_its_queue_ended_or_waits_to_be_forwarded_is_not(found, story):
    assert found(story) == set()


def test_a_connection_that_was_lost_may_have_left_its_queue(found):
    assert found(Story().subscribe().send(1).drop("info").drain().keep(1)) == set()


def test_a_process_that_was_ended_took_its_connections_with_it(found):
    story = Story().subscribe().send(1).kill().drop("info", lost=True).drain().keep(1)
    assert found(story) == {("resurrected", 1, None)}
    story = Story().kill().subscribe().send(1).kill().drop("info", lost=True).drain().keep(1)
    assert found(story) == {("resurrected", 1, None)}


def test_faults_that_overlap_are_told_apart_by_their_labels(found):
    story = Story().subscribe().send(1).add(-1, "invoke", "heal-all").add(-1, "info", "heal-all")
    for name in "AB":
        story.add(-1, "invoke", "kill", value=json.dumps({"label": name}))
    for name, broker in (("A", "a2"), ("B", "a1")):
        value = json.dumps({"label": name, "bit": True, "observed": {broker: "gone"}})
        story.add(-1, "info", "kill", value=value)
    assert found(story.drop("info", lost=True).drain().keep(1)) == {("resurrected", 1, None)}


@pytest.mark.parametrize(
    "story",
    [
        Story().subscribe().send(1).kill("a2").drain().keep(1),
        Story().subscribe().send(1).kill(seen="running").drain().keep(1),
        Story().subscribe().kill().send(1).drain().keep(1),
        Story().kill().subscribe().send(1).drop("info").drain().keep(1),
        Story().subscribe().send(1, broker="a2").kill().drain().keep(1),
        Story().subscribe().send(1, "info").kill().drain().keep(1),
        Story().subscribe(outcome="info").send(1).kill().drain().keep(1),
    ],
)
def test_what_may_have_come_later_or_elsewhere_proves_nothing(found, story):
    assert not {name for name, _, _ in found(story)} & {"resurrected"}


def test_what_was_sent_as_its_queue_ended_may_have_made_another(found):
    story = Story().subscribe()
    story.add(200, "invoke", "drop").send(1).add(200, "ok", "drop").drain().keep(1)
    assert found(story) == set()


def test_what_was_sent_again_after_its_queue_ended_may_have_made_another(found):
    assert found(Story().subscribe().send(1).drop().send(1).drain().keep(1)) == set()


def test_what_was_sent_again_before_its_queue_ended_is_resurrected(found):
    story = Story().subscribe().send(1).send(1).drop().drain().keep(1)
    assert found(story) == {("resurrected", 1, None)}


def test_what_failed_before_its_queue_was_there_and_was_sent_again_is_owed(found):
    story = Story().send(1, "fail").subscribe().send(1).drain()
    assert found(story) == LOST


def test_who_is_not_its_owner_may_get_nothing_of_it(found):
    story = Story().subscribe().send(1).deliver(1, session=2, connection=2).drain()
    assert ("not-subscribed", 1, "another connection's") in found(story)


@pytest.mark.parametrize(
    "story",
    [
        Story().subscribe().send(1).deliver(1).drain(),
        Story().subscribe().send(1).deliver(1, connection=None).drain(),
        Story().subscribe(connection=None).send(1).deliver(1).drain(),
        Story().subscribe().deliver(None, session=2, connection=2, error="cut").drain(),
    ],
)
def test_who_may_be_its_owner_may_get_all_that_can_be_read(found, story):
    assert "not-subscribed" not in {name for name, _, _ in found(story)}


def test_only_what_does_not_last_is_dropped():
    row = o(0, 1, "invoke", "drop", queue="q")
    assert "a drop of what lasts" in str(breakage.of_control(table([row]), 1)[0].broken)
    row = o(0, 1, "invoke", "drop", queue=REPLIES)
    assert breakage.of_control(table([row]), 1)[0].broken is None


SHOWN = {
    "lost": (Story().subscribe().send(1).drain().drop(), "was never delivered"),
    "resurrected": (Story().subscribe().send(1).drop().drain().keep(1), "its temporary queue ended"),
    "not-subscribed": (
        Story().subscribe().send(1).deliver(1, session=2, connection=2),
        "on connection 2, which does not own that temporary queue",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_witness_of_a_temporary_queue_shows_whose_it_is(name):
    story, words = SHOWN[name]
    finding = judged(story, name)
    assert words in finding.sentence
    assert "subscribe" in {r["f"] for r in finding.witness.rows} or name == "resurrected"


def test_the_witness_of_what_outlived_its_broker_shows_its_end():
    story = Story().subscribe().send(1).kill().drop("info", lost=True).drain().keep(1)
    finding = judged(story, "resurrected")
    assert "ended with its broker, which was gone at 0.005 s" in finding.sentence
    assert {r["f"] for r in finding.witness.rows} >= {"subscribe", "kill", "send", "browse"}


def judged(story, name):
    rows = dense(story.end().rows)
    carried = [r for r in rows if r.get("message") is not None]
    control = [r for r in rows if r.get("message") is None]
    source = HereSource([TablePart(0, table(carried))], table(control), len(rows) * MS, len(rows))
    return next(one for one in judge.judge(source, PATIENT).findings if one.name == name)


def drawn(seed):
    """A correct broker with temporary queues of two owners, and replies that come or do not."""
    chance = random.Random(seed)
    story = Story()
    names = [{"queue": f"/temp-queue/r{n}"} for n in range(3)]
    there, message = {}, 0
    for _ in range(chance.randint(4, 22)):
        number = chance.randrange(3)
        of, what = names[number], chance.random()
        if number not in there:
            there[number] = []
            story.subscribe(number, number, chance.choice(["ok", "ok", "ok", "info"]), **of)
        elif what < 0.5:
            message += 1
            outcome = chance.choice(["ok", "ok", "ok", "info", "fail"])
            story.send(message, outcome, chance.choice(["a1", "a1", "a1", "a2"]), **of)
            there[number].append(message)
        elif what < 0.8 and there[number]:
            whose = number if chance.random() < 0.8 else 1
            story.deliver(there[number].pop(0), whose, whose, **of)
        elif what < 0.9:
            story.drop(chance.choice(["ok", "ok", "info", "fail", None]), chance.random() < 0.3, **of)
        elif what < 0.92:
            story.kill(chance.choice(["a1", "a2"]), chance.choice(["gone", "gone", "running"]))
        elif what < 0.96 and message:
            story.keep(chance.randint(1, message), **of)
    if chance.random() < 0.5:
        story.drain().drop(chance.choice(["ok", "info"]), chance.random() < 0.3, **chance.choice(names))
    if chance.random() < 0.5 and message:
        story.keep(chance.randint(1, message), **chance.choice(names))
    return dense(story.end().rows)


@pytest.mark.slow
@pytest.mark.in_turn
def test_both_implementations_find_the_same_in_damaged_histories_with_temporary_queues(tmp_path):
    """It takes some 10 s."""
    kinds = set()
    for seed in range(50):
        chance = random.Random(seed)
        edits = [
            (chance.choice(sorted(DAMAGE)), chance.randrange(10_000)) for _ in range(chance.randint(0, 4))
        ]
        place = tmp_path / str(seed)
        place.mkdir()
        kinds |= {(i.name, i.key) for i in agreed(place, damage(drawn(seed), edits), PATIENT)}
    assert {("not-subscribed", "another connection's"), ("lost", "never delivered")} <= kinds
    assert ("resurrected", None) in kinds
