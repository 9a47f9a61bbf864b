"""Queues that an administrator deletes: what they are owed, what comes back, restored records."""

from __future__ import annotations

import checker_rows
import pytest
from checker_rows import agreed, dense, finished, o, table
from topic_histories import PATIENT, told

from checkers import breakage
from checkers.schema import MONITOR, NEMESIS

Q = {"queue": "q", "group": None}


class Story(checker_rows.Story):
    """A story of one queue; ``broker`` is where an operation goes."""

    def administer(self, f, outcome="ok", broker="a1", process=200, queue="q"):
        self.add(process, "invoke", f, queue=queue)
        answered = broker if outcome == "ok" else None
        return self.add(process, outcome, f, queue=queue, broker=answered) if outcome else self

    def delete(self, outcome="ok", **where):
        return self.administer("delete", outcome, **where)

    def create(self, outcome="ok", **where):
        return self.administer("create", outcome, **where)

    def send(self, message, outcome="ok", broker="a1", **columns):
        mine = {"digest": message, "producer": 1, "sequence": message, **columns}
        self.add(1, "invoke", "send", message, **mine)
        return self.add(1, outcome, "send", message, broker=broker, **mine) if outcome else self

    def subscribe(self, session, broker="a1"):
        self.add(100 + session, "invoke", "subscribe", queue="q", session=session)
        return self.add(100 + session, "ok", "subscribe", queue="q", session=session, broker=broker)

    def consume(self, message, session, broker="a1", ack="ok", **columns):
        mine = {"digest": message, "producer": 1, "sequence": message, "session": session, **columns}
        self.add(150 + session, "ok", "deliver", message, broker=broker, redelivered=False, **mine)
        self.add(100 + session, "invoke", "ack", message, session=session, **columns)
        if ack:
            self.add(100 + session, ack, "ack", message, session=session, broker=broker, **columns)
        return self

    def keep(self, message, store="main", broker="a1"):
        mine = {"digest": message, "producer": 1, "sequence": message}
        return self.add(-3, "ok", "browse", message, broker=broker, value=store, **mine)

    def role(self, broker, role):
        at = len(self.rows) * checker_rows.MS
        named = None if role in ("stopped", "suspended") else f"node {broker}"
        return self.add(
            MONITOR, "info", "role", broker=broker, node_id=named, role=role, time_low=at, time_high=at
        )

    def fault(self, kind, label, healed=True, **value):
        told_of = told(label=label, bit=True, observed={}, **value)
        self.add(NEMESIS, "invoke", kind, value=told_of)
        self.add(NEMESIS, "info", kind, value=told_of)
        return self.heal(kind, label) if healed else self

    def heal(self, kind, label):
        told_of = told(label=label, bit=True, observed={})
        self.add(NEMESIS, "invoke", f"heal:{kind}", value=told_of)
        return self.add(NEMESIS, "info", f"heal:{kind}", value=told_of)

    def drain(self):
        return self.add(-3, "info", "phase", value="drain")

    def end(self):
        brokers = {row["broker"] for row in self.rows if "broker" in row}
        drained = any(row.get("value") == "drain" for row in self.rows)
        ending = finished(len(self.rows), read=sorted(brokers or {"a1"}))
        self.rows += [row for row in ending if not (drained and row.get("value") == "drain")]
        return self


def found(tmp_path, story, options=PATIENT):
    rows = dense(story.end().rows)
    own = tmp_path / f"{len([*tmp_path.iterdir()])}"
    return {(i.name, i.message, i.key) for i in agreed(own, rows, options)}


LOST = {("lost", 1, "never delivered")}
BACK = {("resurrected", 1, None)}


@pytest.mark.parametrize(
    "story",
    [
        Story().send(1).delete(),
        Story().send(1).delete("info"),
        Story().send(1).delete(None),
        Story().delete("info").send(1),
        Story().delete(None).send(1),
        Story().delete("info").create().delete().send(1),
        Story().add(1, "invoke", "send", 1, producer=1, sequence=1, digest=1).delete()
        .add(1, "ok", "send", 1, producer=1, sequence=1, digest=1, broker="a1"),
        Story().send(1).create().delete(),
    ],
)  # fmt: skip
def test_what_a_delete_may_have_taken_is_not_owed(tmp_path, story):
    assert found(tmp_path, story) == set()


@pytest.mark.parametrize(
    "story",
    [
        Story().send(1),
        Story().create().send(1),
        Story().send(1).create("info"),
        Story().delete("fail").send(1),
        Story().send(1).delete("fail"),
        Story().delete().send(1),
        Story().delete().create().send(1),
        Story().delete().create().delete().send(1),
        Story().send(1).delete(queue="another"),
    ],
)
def test_what_came_after_every_delete_is_owed(tmp_path, story):
    assert found(tmp_path, story) == LOST


def test_what_comes_back_after_a_delete_is_resurrected(tmp_path):
    assert found(tmp_path, Story().send(1).delete().subscribe(1).consume(1, 1)) == BACK
    assert found(tmp_path, Story().send(1).delete().create().subscribe(1).consume(1, 1)) == BACK
    assert found(tmp_path, Story().send(1).subscribe(1).delete().consume(1, 1)) == set()
    assert found(tmp_path, Story().delete().send(1).subscribe(1).consume(1, 1)) == set()
    assert found(tmp_path, Story().send(1).delete("info").subscribe(1).consume(1, 1)) == set()
    assert found(tmp_path, Story().send(1).delete("fail").subscribe(1).consume(1, 1)) == set()


def test_a_send_under_way_may_begin_the_queue_anew(tmp_path):
    story = Story().send(1, None).add(200, "invoke", "delete", queue="q")
    story.add(1, "ok", "send", 1, producer=1, sequence=1, digest=1, broker="a1")
    story.add(200, "ok", "delete", queue="q", broker="a1")
    assert found(tmp_path, story.subscribe(1).consume(1, 1)) == set()


def test_a_main_store_must_not_have_what_was_deleted(tmp_path):
    assert found(tmp_path, Story().send(1).delete().keep(1)) == BACK
    assert found(tmp_path, Story().send(1).delete().keep(1, "dead-letter")) == set()
    assert found(tmp_path, Story().send(1).delete().keep(1, "expired")) == set()
    assert ("stuck", 1, "never delivered") in found(tmp_path, Story().delete().send(1).keep(1))


def two_brokers():
    return Story().role("a1", "live").role("b1", "live")


def cut(story):
    """Cut b1 off, and leave it so."""
    return story.fault("partition", "cut", healed=False, links=["a1->b1", "b1->a1"], nodes=[])


@pytest.mark.parametrize("at", ["a1", "b1"])
def test_a_broker_that_can_be_reached_knows_of_a_delete(tmp_path, at):
    assert found(tmp_path, two_brokers().delete().send(1, broker=at)) == LOST
    story = two_brokers().send(1, broker=at).delete().subscribe(1, broker=at)
    assert found(tmp_path, story.consume(1, 1, broker=at)) == BACK


def test_a_broker_that_is_cut_off_may_learn_later(tmp_path):
    assert found(tmp_path, cut(two_brokers()).delete().send(1, broker="b1")) == set()
    assert found(tmp_path, cut(two_brokers()).delete().send(1)) == LOST
    story = cut(two_brokers().send(1, broker="b1")).delete().subscribe(1, broker="b1")
    assert found(tmp_path, story.consume(1, 1, broker="b1")) == set()


def test_the_broker_that_took_a_message_must_know_too(tmp_path):
    story = cut(two_brokers().send(1, broker="b1")).delete().subscribe(1)
    assert found(tmp_path, story.consume(1, 1)) == set()


def test_a_delete_that_came_later_makes_earlier_ones_known(tmp_path):
    story = cut(two_brokers()).delete().heal("partition", "cut")
    soon = PATIENT.__class__(unavailable_bound_s=1000, recovery_bound_s=0.001)
    later = len(story.rows)
    story.add(-3, "info", "restart", broker="z9").add(-3, "info", "restart", broker="z9")
    assert later < len(story.rows)
    assert found(tmp_path, story.send(1, broker="b1"), soon) == set()
    story = cut(two_brokers()).delete().heal("partition", "cut")
    story.add(-3, "info", "restart", broker="z9").add(-3, "info", "restart", broker="z9")
    assert found(tmp_path, story.create().delete().send(1, broker="b1"), soon) == LOST


def test_a_broker_that_starts_afterwards_knows(tmp_path):
    story = cut(two_brokers().send(1, broker="b1")).role("b1", "stopped").delete()
    story.role("b1", "stopped").role("b1", "live").subscribe(1, broker="b1")
    assert found(tmp_path, story.consume(1, 1, broker="b1")) == BACK
    story = cut(two_brokers().send(1, broker="b1")).role("b1", "stopped").role("b1", "live").delete()
    assert found(tmp_path, story.subscribe(1, broker="b1").consume(1, 1, broker="b1")) == set()
    story = cut(two_brokers().send(1, broker="b1")).role("b1", "unreachable").delete().role("b1", "live")
    assert found(tmp_path, story.subscribe(1, broker="b1").consume(1, 1, broker="b1")) == set()


def test_in_the_drain_all_brokers_know(tmp_path):
    story = cut(two_brokers().send(1, broker="b1")).delete().drain().subscribe(1, broker="b1")
    assert found(tmp_path, story.consume(1, 1, broker="b1")) == BACK
    story = cut(two_brokers().send(1, broker="b1")).delete()
    assert found(tmp_path, story.keep(1, broker="b1")) == set()
    assert (
        found(tmp_path, cut(two_brokers().send(1, broker="b1")).delete().drain().keep(1, broker="b1")) == BACK
    )


RESTORE = {"kind": "administer", "label": "r", "options": {"command": "restore"}}


@pytest.mark.parametrize("restore", [RESTORE, {"kind": "restore-record", "label": "r"}])
def test_a_restored_record_leaves_changes_in_doubt(tmp_path, restore):
    assert found(tmp_path, Story().delete().create().fault(**restore).send(1)) == LOST
    assert found(tmp_path, Story().delete().fault(**restore).create().send(1)) == LOST
    kind, label = restore["kind"], restore["label"]
    for change in ("create", "delete"):
        story = Story().fault(**restore, healed=False).administer(change).heal(kind, label)
        assert found(tmp_path, story.send(1)) == set()
        story = Story().fault(**restore, healed=False).administer(change, "fail").heal(kind, label)
        assert found(tmp_path, story.send(1)) == LOST
        story = Story().add(200, "invoke", change, queue="q").fault(**restore)
        assert found(tmp_path, story.add(200, "ok", change, queue="q", broker="a1").send(1)) == set()
    story = Story().send(1).fault(**restore, healed=False).delete().heal(kind, label)
    assert found(tmp_path, story.subscribe(1).consume(1, 1)) == set()
    story = Story().send(1).delete().fault(**restore)
    assert found(tmp_path, story.subscribe(1).consume(1, 1)) == BACK
    story = Story().fault(**restore, healed=False).create().send(1)
    assert found(tmp_path, story) == set()


@pytest.mark.parametrize("command", [None, "compact"])
def test_other_commands_leave_nothing_in_doubt(tmp_path, command):
    options = {"command": command} if command else {}
    story = Story().fault("administer", "r", healed=False, options=options).create().heal("administer", "r")
    assert found(tmp_path, story.send(1)) == LOST


@pytest.mark.parametrize("f", ["create", "delete"])
def test_a_change_of_a_queue_names_a_queue_that_lasts(f):
    for queue, cause in ((None, "queue"), ("/topic/t", "of no queue"), ("/temp-queue/t", "of no queue")):
        rows = table([o(0, 200, "invoke", f, queue=queue)])
        look, _ = breakage.of_control(rows, 1)
        assert look.broken is not None
        assert cause in look.broken.cause
    rows = table([o(0, 200, "invoke", f, queue="q"), o(1, 200, "ok", f, queue="r", broker="a1")])
    assert breakage.of_control(rows, 1)[0].broken is not None
    rows = table([o(0, 200, "invoke", f, queue="q"), o(1, 200, "ok", f, queue="q", broker="a1")])
    assert breakage.of_control(rows, 1)[0].broken is None
