"""What brokers believe while there is load: each change once, with the span in which it lies."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from msgspec import structs
from stateful.virtual_loop import VirtualLoop

from checkers.schema import MONITOR
from harness.history.rows import MemoryRecorder
from harness.interface import Address, Schedule, TestSpec
from harness.report.narrative.cluster_state import Standing
from harness.report.narrative.sentences import phrase
from harness.run import view_changes
from harness.run.simulate import simulate

SILENT = TimeoutError()


class Cluster:
    """Brokers that answer ``answers`` in turn, and take ``took_s`` for each; roles may change."""

    compared_views = ()

    def __init__(self, took_s=0.0, **answers):
        self.took_s = took_s
        self.answers = {name: list(some) for name, some in answers.items()}
        self.asked = dict.fromkeys(answers, 0)
        self.roles = dict.fromkeys(answers, "live")
        self.system = self
        self.brokers = [SimpleNamespace(name=name) for name in answers]

    def admin(self, node):
        return Address(node, 1)

    async def views(self, admin):
        some = self.answers[admin.host]
        answer = some[min(self.asked[admin.host], len(some) - 1)]
        self.asked[admin.host] += 1
        await asyncio.sleep(self.took_s)
        if isinstance(answer, Exception):
            raise answer
        return answer


def watch(cluster, seconds=10.0):
    """The rows, as (broker, kind, key, value, the seconds between which the change lies)."""
    loop = VirtualLoop()
    recorder = MemoryRecorder(lambda: round(loop.time() * 1e9))

    async def scenario():
        watching = asyncio.create_task(view_changes.watch(cluster, lambda: cluster.roles, recorder))
        await asyncio.sleep(seconds)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    try:
        loop.run(scenario())
    finally:
        loop.discard()
    found = []
    for row in recorder.dicts():
        value = json.loads(row["value"])
        span = tuple(round(row[name] / 1e9, 1) for name in ("time_low", "time_high"))
        found.append((row["broker"], value["kind"], value["key"], value["value"], span))
    return found


def members(**known):
    return {"members": known}


def test_a_change_lies_between_the_last_question_with_the_old_answer_and_the_first_new_answer():
    cluster = Cluster(0.2, a1=[members(n="b1 x"), members(n="b1 x"), members(n="b2 y"), members()])
    assert watch(cluster) == [
        ("a1", "members", "n", "b1 x", (0.0, 0.2)),
        ("a1", "members", "n", "b2 y", (1.2, 2.6)),
        ("a1", "members", "n", None, (2.4, 3.8)),
    ]


def test_a_broker_that_is_silent_or_not_live_claims_nothing_meanwhile():
    cluster = Cluster(a1=[members(n="b1 x"), SILENT, SILENT, members(n="b2 y")])
    assert watch(cluster) == [
        ("a1", "members", "n", "b1 x", (0.0, 0.0)),
        ("a1", "members", "n", "b2 y", (0.0, 3.0)),
    ]
    cluster.roles["a1"] = "unreachable"
    cluster.asked["a1"] = 0
    assert watch(cluster) == []
    assert cluster.asked["a1"] == 0


def test_a_kind_that_an_answer_leaves_out_did_not_change():
    both = {"members": {"n": "b1 x"}, "topology": {"n": "b1 x"}}
    cluster = Cluster(a1=[both, members(n="b1 x"), {"members": {"n": "b1 x"}, "topology": {}}])
    assert watch(cluster) == [
        ("a1", "members", "n", "b1 x", (0.0, 0.0)),
        ("a1", "topology", "n", "b1 x", (0.0, 0.0)),
        ("a1", "topology", "n", None, (0.0, 2.0)),
    ]


def test_a_broker_that_does_not_answer_delays_no_other():
    cluster = Cluster(a1=[members(n="b1 x"), members()], b1=[members(n="a1 x")])
    answer = cluster.views

    async def views(admin):
        if admin.host == "b1":
            await asyncio.sleep(3600)
        return await answer(admin)

    cluster.views = views
    assert watch(cluster) == [
        ("a1", "members", "n", "b1 x", (0.0, 0.0)),
        ("a1", "members", "n", None, (0.0, 1.0)),
    ]


@pytest.mark.parametrize(("value", "belief"), [("b1 h:2", 'answers "b1 h:2"'), (None, "does not know it")])
def test_a_change_in_the_story_of_a_finding_says_what_the_broker_believes(value, belief):
    view = json.dumps({"kind": "members", "key": "0123456789", "value": value})
    row = {"index": 0, "time": 3, "process": MONITOR, "type": "info", "f": "view-change", "broker": "a1"}
    row |= {"time_low": 1_000_000_000, "time_high": 2_500_000_000, "value": view}
    label, sentence = phrase((row,), None, Standing([row], 0))
    assert label == "members 01234567"
    assert sentence == (
        f"Asked about members 01234567, a1 {belief} from here on (the change lies between 1.000 s and "
        "2.500 s)."
    )


MULTICAST = {
    "cluster.static-connectors": [],
    "cluster.discovery-group-ref": "lan",
    "broadcast-groups.lan.group-address": "231.7.7.7",
    "broadcast-groups.lan.group-port": 9876,
    "discovery-groups.lan.group-address": "231.7.7.7",
    "discovery-groups.lan.group-port": 9876,
}


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, {"members", "topology"}),
        ({"properties": {"*": MULTICAST}}, {"members", "topology", "discovery"}),
        ({"chain": True, "pairs": 3}, {"neighbours"}),
        ({"policy": "conventional"}, {"neighbours"}),
        (
            {"policy": "conventional", "master": "a1", "workload": "subscriptions", "churn": 4.0},
            {"neighbours", "subscriptions"},
        ),
    ],
    ids=["symmetric", "discovery", "chain", "conventional", "change record"],
)
def test_each_kind_of_view_of_a_cluster_is_recorded_under_load_if_it_is_asked_for(fields, kinds, monkeypatch):
    spec = TestSpec(**{"name": "views", "policy": "standalone", "pairs": 2, "time_limit_s": 4.0} | fields)
    watched = []
    ask = view_changes._watch

    def watch(name, *rest):
        watched.append(name)
        return ask(name, *rest)

    monkeypatch.setattr(view_changes, "_watch", watch)
    assert recorded_kinds(spec) == set()
    assert not watched, "a broker is asked although nobody wants its views"
    assert recorded_kinds(structs.replace(spec, watch_views=True)) == kinds
    assert watched == [f"{pair}1" for pair in "abc"[: spec.pairs]]


def recorded_kinds(spec):
    rows = simulate(spec, Schedule(faults=()), judge=False).rows
    return {json.loads(row["value"])["kind"] for row in rows if row["f"] == "view-change"}
