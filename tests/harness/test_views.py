"""Asking brokers what they take for true: until they agree, or for as long as they may take.

And what the rows then say.
"""

import asyncio
import itertools
import json
from types import SimpleNamespace

import pytest

from checkers import reference
from harness.history.rows import MemoryRecorder
from harness.interface import Address, Fault, Mirrored, Schedule, Status, TestSpec
from harness.run import views
from harness.run.compose import compose

LONG_S, OVER_S = 600.0, -1.0


class Cluster:
    """Brokers whose answer to each question is known.

    The first, the second, then the last for ever; an exception is raised.
    """

    compared_views = ("members", "topology", "groups", "destinations")

    def __init__(self, **answers):
        self.claims = {}
        self.may_undo_changes = False
        self.workload = self
        self.answers = {name: list(some) for name, some in answers.items()}
        self.asked = dict.fromkeys(answers, 0)
        self.system = self.environment = self
        self.nodes = [SimpleNamespace(name=name) for name in answers]

    def resolve(self, source, node, port):
        assert (source, port) == ("admin", "admin")
        return Address(node, 1)

    def admin(self, node):
        return self.resolve("admin", node, "admin")

    def answered_queues(self):
        return self.claims

    async def views(self, admin):
        some = self.answers[admin.host]
        answer = some[min(self.asked[admin.host], len(some) - 1)]
        self.asked[admin.host] += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(views, "AGAIN_S", 0.0)


def look(cluster, patience_s, roles=None):
    """The rows, as (broker, kind, key, value, whether it was given over a span), those without
    an answer as (broker, error).
    """
    ticks = itertools.count()
    recorder = MemoryRecorder(lambda: next(ticks))
    roles = roles or dict.fromkeys(cluster.answers, "live")
    asyncio.run(views.look(cluster, lambda: roles, recorder, patience_s))
    return recorder.dicts()


def told(rows):
    found = []
    for row in rows:
        if row["type"] != "ok":
            found.append((row["broker"], row["error"]))
            continue
        value = json.loads(row["value"])
        spans = row["time_low"] < row["time_high"]
        found.append((row["broker"], value["kind"], value["key"], value["value"], spans))
    return found


def members(**known):
    return {"members": known}


def diverged(rows):
    return [found.key for found in reference.find(rows) if found.name == "diverged"]


def status(name, role, node_id):
    return Status(name=name, node_id=node_id, role=role, epoch=1)


def test_two_lives_under_one_node_id_will_not_agree():
    two = [status("a1", "live", "n"), status("a2", "live", "n")]
    assert views.hopeless(two)
    assert not views.hopeless([status("a1", "live", "n"), status("a2", "backup", "n")])
    assert not views.hopeless([status("a1", "live", "n"), status("b1", "live", "m")])
    assert not views.hopeless([status("a1", "live", None), status("a2", "live", None)])


def test_brokers_that_agree_are_asked_once():
    cluster = Cluster(a1=[members(n="a1")], b1=[members(n="a1")])
    rows = look(cluster, LONG_S)
    assert told(rows) == [("a1", "members", "n", "a1", False), ("b1", "members", "n", "a1", False)]
    assert cluster.asked == {"a1": 1, "b1": 1}
    assert diverged(rows) == []


def of_queues(**known):
    return {"destinations": known}


@pytest.mark.parametrize(
    ("answer", "claims", "accused"),
    [
        (of_queues(q="3"), {"q": True}, []),
        (of_queues(), {"q": False}, []),
        (of_queues(r="1"), {"q": True}, ["queue q"]),
        (of_queues(q="3"), {"q": False}, ["queue q"]),
        (of_queues(q="3"), {}, []),
        (members(n="a1"), {"q": True}, []),
    ],
)
def test_brokers_have_the_queues_that_an_administrator_was_told_of(answer, claims, accused):
    cluster = Cluster(a1=[answer], b1=[answer])
    cluster.claims = claims
    assert diverged(look(cluster, 0.0)) == accused


def test_what_a_fault_may_undo_is_not_expected_of_brokers():
    cluster = Cluster(a1=[of_queues()], b1=[of_queues()])
    cluster.claims = {"q": True}
    cluster.may_undo_changes = True
    assert diverged(look(cluster, 0.0)) == []
    cluster = Cluster(a1=[of_queues()], b1=[of_queues(q="3")])
    cluster.may_undo_changes = True
    assert diverged(look(cluster, 0.0)) == ["destinations q"]


@pytest.mark.parametrize(("kind", "undoes"), [("restore-record", True), ("kill", False)])
def test_a_test_knows_whether_its_faults_may_undo_changes(kind, undoes):
    schedule = Schedule(faults=(Fault(kind=kind, start_s=1.0, duration_s=1.0),))
    spec = TestSpec(name="test", policy="conventional", environment="simulation")
    assert compose(spec, schedule).may_undo_changes is undoes


def test_brokers_are_asked_until_they_have_the_queues_that_were_made():
    cluster = Cluster(a1=[of_queues(), of_queues(q="3")], b1=[of_queues(), of_queues(q="3")])
    cluster.claims = {"q": True}
    assert diverged(look(cluster, LONG_S)) == []
    assert cluster.asked == {"a1": 2, "b1": 2}


def test_brokers_that_will_agree_are_asked_until_they_do():
    cluster = Cluster(a1=[members(n="a1")], b1=[members(n="a2"), members(), members(n="a1")])
    rows = look(cluster, LONG_S)
    assert cluster.asked == {"a1": 3, "b1": 3}
    assert {row[3] for row in told(rows)} == {"a1"}
    assert diverged(rows) == []


def test_brokers_that_do_not_agree_have_said_so_more_than_once_however_little_time_is_left():
    cluster = Cluster(a1=[members(n="a1")], b1=[members(n="a2")])
    rows = look(cluster, OVER_S)
    assert told(rows) == [("a1", "members", "n", "a1", True), ("b1", "members", "n", "a2", True)]
    assert diverged(rows) == ["members n"]


def test_what_a_broker_knows_nothing_of_is_a_row_too():
    cluster = Cluster(a1=[members(n="a1", m="b1")], b1=[members(m="b1")])
    rows = look(cluster, OVER_S)
    assert ("b1", "members", "n", None, True) in told(rows)
    assert diverged(rows) == ["members n"]


def test_a_broker_that_says_something_else_each_time_claims_nothing():
    cluster = Cluster(a1=[members(n="a1")], b1=[members(n="a2"), members(n="a3")])
    rows = look(cluster, OVER_S)
    assert ("b1", "members", "n", "a3", False) in told(rows)
    assert diverged(rows) == []


def test_a_kind_that_a_broker_does_not_tell_of_is_none_it_lacks():
    cluster = Cluster(a1=[{"members": {"n": "a1"}, "groups": {"g": "a1"}}], b1=[members(n="a1")])
    rows = look(cluster, OVER_S)
    assert [row[:2] for row in told(rows)] == [("a1", "groups"), ("a1", "members"), ("b1", "members")]
    assert diverged(rows) == []


def test_a_broker_that_cannot_be_asked_says_nothing_and_is_named():
    cluster = Cluster(a1=[members(n="a1")], b1=[ConnectionRefusedError("nobody listens")])
    rows = look(cluster, LONG_S)
    assert told(rows) == [("a1", "members", "n", "a1", True), ("b1", "nobody listens")]
    assert cluster.asked == {"a1": views.TRIES, "b1": views.TRIES}


def test_a_broker_that_cannot_be_asked_at_first_hides_no_disagreement():
    cluster = Cluster(a1=[members(n="a1")], b1=[ConnectionResetError("busy"), members(n="a2")])
    rows = look(cluster, 0.05)
    assert diverged(rows) == ["members n"]


def test_only_live_brokers_are_asked():
    cluster = Cluster(a1=[members(n="a1")], a2=[AssertionError("a backup need not agree")])
    look(cluster, LONG_S, {"a1": "live", "a2": "backup"})
    assert cluster.asked == {"a1": 1, "a2": 0}


class Keepers(Cluster):
    """Brokers that have subscriptions, and clients that were answered something of them."""

    def __init__(self, claims, **answers):
        super().__init__(**answers)
        self.workload = SimpleNamespace(answered=lambda: claims)
        self.pairs = {}
        for node in self.nodes:
            self.pairs.setdefault(node.name[0], []).append(node)

    subscriptions = Cluster.views


TOPIC = "/topic/t"


def recall(claims, roles=None, patience_s=0.0, **answers):
    ticks = itertools.count()
    recorder = MemoryRecorder(lambda: next(ticks))
    cluster = Keepers({(TOPIC, name): there for name, there in claims.items()}, **answers)
    roles = roles or dict.fromkeys(answers, "live")
    asyncio.run(views.recall(cluster, lambda: roles, recorder, patience_s))
    return recorder.dicts()


def keeps(*names):
    return {(TOPIC, name) for name in names}


def test_a_subscription_that_clients_made_and_no_broker_has_has_diverged():
    rows = recall({"s": True}, a1=[keeps()], b1=[keeps("other")])
    assert diverged(rows) == ["subscription /topic/t > s"]
    assert diverged(recall({"s": True}, a1=[keeps()], b1=[keeps("s")])) == []


def test_a_subscription_that_clients_dropped_and_a_broker_has_has_diverged():
    assert diverged(recall({"s": False}, a1=[keeps("s")], b1=[keeps()])) == ["subscription /topic/t > s"]
    assert diverged(recall({"s": False}, a1=[keeps()], b1=[keeps("other")])) == []


def test_a_broker_that_gets_the_change_of_a_subscription_within_the_time_has_not_diverged():
    late = [keeps("s"), keeps("s"), keeps("s"), keeps()]
    assert diverged(recall({"s": False}, patience_s=10, a1=late)) == []
    assert diverged(recall({"s": False}, a1=late)) == ["subscription /topic/t > s"]
    late = [keeps(), keeps(), keeps("s")]
    assert diverged(recall({"s": True}, patience_s=10, a1=late)) == []
    assert diverged(recall({"s": True}, a1=late)) == ["subscription /topic/t > s"]


def test_of_what_nobody_knows_for_certain_nothing_is_said():
    assert recall({}, a1=[keeps("s")]) == []
    assert diverged(recall({"s": True}, a1=[keeps(), keeps("s")])) == []
    assert diverged(recall({"s": False}, a1=[keeps("s"), keeps()])) == []
    assert recall({"s": True}, a1=[OSError("busy")], b1=[keeps()]) == []
    assert recall({"s": True}, {"a1": "starting", "b1": "live"}, a1=[keeps()], b1=[keeps()]) == []


def test_systems_that_cannot_tell_of_subscriptions_are_not_asked():
    cluster = Cluster(a1=[keeps()])
    cluster.workload = SimpleNamespace(answered=lambda: {(TOPIC, "s"): True})
    recorder = MemoryRecorder(lambda: 0)
    asyncio.run(views.recall(cluster, lambda: {"a1": "live"}, recorder, 0.0))
    assert recorder.dicts() == []
    assert cluster.asked == {"a1": 0}


class Recorders(Cluster):
    """Brokers that have a record of changes in common, of which a1 is the master, or nobody is."""

    def __init__(self, master="a1", **positions):
        super().__init__(**positions)
        for node in self.nodes:
            node.master = node.name == master

    record_position = Cluster.views


def caught_up(cluster, patience_s=LONG_S, roles=None):
    """Return how often each broker was asked before the wait was over."""
    roles = roles or dict.fromkeys(cluster.answers, "live")
    asyncio.run(views.catch_up(cluster, lambda: roles, patience_s))
    return cluster.asked


def test_a_member_that_is_behind_the_record_is_waited_for():
    assert caught_up(Recorders(a1=["r 7"], b1=["r 7"])) == {"a1": 1, "b1": 1}
    assert caught_up(Recorders(a1=["r 7"], b1=["r 5", OSError("busy"), "r 7"])) == {"a1": 3, "b1": 3}


def test_a_member_that_stays_behind_is_waited_for_as_long_as_it_may_take():
    assert caught_up(Recorders(a1=["r 7"], b1=["r 5"]), OVER_S) == {"a1": 1, "b1": 1}


def test_only_live_brokers_of_a_cluster_with_a_master_are_asked_for_the_record():
    roles = {"a1": "live", "b1": "suspended"}
    assert caught_up(Recorders(a1=["r 7"], b1=["r 5"]), roles=roles) == {"a1": 1, "b1": 0}
    assert caught_up(Recorders(None, a1=[None], b1=["r 5"])) == {"a1": 0, "b1": 0}


class Mirrors(Keepers):
    """Pairs of which live and backup say what they hold."""

    contents = Cluster.views
    mirrored = ("replication",)


def compare(roles=None, **answers):
    ticks = itertools.count()
    recorder = MemoryRecorder(lambda: next(ticks))
    cluster = Mirrors({}, **answers)
    roles = roles or {name: "live" if name.endswith("1") else "backup" for name in answers}
    asyncio.run(views.compare(cluster, lambda: roles, recorder))
    return recorder.dicts()


def holding(last, **contents):
    return Mirrored(last, contents)


def test_a_live_and_its_backup_that_hold_the_same_have_not_diverged():
    rows = compare(a1=[holding(7, q="2 messages")], a2=[holding(7, q="2 messages")])
    assert [row[:4] for row in told(rows)] == [
        (name, "destination", "q of pair a", "2 messages") for name in ("a1", "a2")
    ]
    assert diverged(rows) == []


def test_a_backup_that_lacks_a_message_of_its_live_after_the_same_change_has_diverged():
    rows = compare(a1=[holding(7, q="2 messages")], a2=[holding(7, q="1 message")])
    assert diverged(rows) == ["destination q of pair a"]
    rows = compare(a1=[holding(7)], a2=[holding(7, q="1 message")])
    assert diverged(rows) == ["destination q of pair a"]
    assert told(rows)[0][3] == "nothing"


def test_a_backup_that_is_behind_or_catches_up_has_not_diverged():
    assert compare(a1=[holding(8, q="2 messages")], a2=[holding(7, q="1 message")]) == []
    rows = compare(a1=[holding(8, q="2")], a2=[holding(8, q="1"), holding(8, q="2")])
    assert diverged(rows) == []


def test_nothing_is_compared_where_one_does_not_answer_or_is_no_backup():
    one, other = holding(7, q="2 messages"), holding(7)
    assert compare(a1=[one], a2=[OSError("not up to date")]) == []
    assert compare({"a1": "live", "a2": "synchronizing"}, a1=[one], a2=[other]) == []
    assert compare({"a1": "live", "a2": "live"}, a1=[one], a2=[other]) == []


def test_two_pairs_have_queues_of_one_name_that_need_not_agree():
    rows = compare(
        a1=[holding(7, q="2")], a2=[holding(7, q="2")], b1=[holding(9, q="1")], b2=[holding(9, q="1")]
    )
    assert len(rows) == 4
    assert diverged(rows) == []


def test_brokers_need_not_agree_on_a_kind_of_view_that_is_not_compared():
    both = {"a1": [{**members(n="b1 x"), "discovery": {"b1:1": "n"}}], "b1": [members(n="b1 x")]}
    rows = told(look(Cluster(**both), LONG_S))
    assert {kind for _, kind, *_ in rows} == {"members"}
