"""A campaign misses what could have happened and did not, and nothing that its brokers and
faults cannot do.
"""

import pytest

from harness.history import coverage
from harness.interface import Fault, Schedule, TestSpec
from harness.run.simulate import simulate
from harness.systems import registry
from harness.systems.own.events import EVENTS

REPLICATION_ALONE = {"vote", "sync", "failback", "failover"}


def possible(policy, kinds, workload="groups", **properties):
    spec = TestSpec(name="t", policy=policy, properties=properties)
    system = registry.of(spec)
    traits = system.policies[policy].traits
    return coverage.possible(system.plan(spec), kinds, workload, system.events, traits)


def families(names):
    return {name.split("/")[0] for name in names}


@pytest.mark.parametrize(
    ("names", "has"),
    [
        (possible("replication", ["kill"]), {*REPLICATION_ALONE, "replication", "journal", "group"}),
        (possible("shared-store", ["kill"]), {"lock", "journal"}),
        (possible("shared-store", ["kill"], store={"type": "database"}), {"lock", "database"}),
        (possible("ha-database", ["kill"]), {"member", "database"}),
        (possible("multi-instance", ["kill"]), {"lock", "instance", "journal"}),
        (possible("standalone", ["kill"], "queue"), {"journal", "redistribution"}),
        (
            possible("conventional", ["kill"]),
            {"change", "consumer", "master", "home", "journal", "list"},
        ),
    ],
)
def test_what_a_cluster_cannot_do_is_not_missed_in_it(names, has):
    always = {
        "broker",
        "client",
        "cluster",
        "delivery",
        "role",
        "harness",
        "browse",
        "fault",
        "group",
        "replication",
    }
    assert has <= families(names)
    assert families(names) <= has | always


ROLES = {"slave": {"replication"}, "instance": {"locks", "instances"}, "member": {"members"}}
"""The traits that events need of a cluster in which brokers have such a role."""


@pytest.mark.parametrize(
    ("name", "policy"),
    [(name, policy) for name in registry.names() for policy in registry.get(name).policies],
)
def test_each_policy_has_the_traits_of_its_brokers(name, policy):
    system = registry.get(name)
    for variant in ({}, *system.policies[policy].variants):
        nodes = system.plan(TestSpec(name="t", system=name, policy=policy, properties=variant))
        expected = {trait for node in nodes for trait in ROLES.get(node.configured, ())}
        if name == "own":
            expected |= {"conventional": {"homes"}, "standalone": {"forwarding"}}.get(policy, set())
        if "replication" in expected and any(node.store or node.database for node in nodes):
            expected = {"locks", "shared-store"}
        assert {*system.policies[policy].traits} == expected


def test_what_no_fault_of_a_search_can_bring_about_is_not_missed_in_it():
    assert "journal/damage-noticed" in possible("standalone", ["disk-corrupt"])
    assert "journal/damage-noticed" not in possible("standalone", ["kill"])
    assert "failover/handed-over" in possible("replication", ["kill", "stop"])
    assert "failover/handed-over" not in possible("replication", ["kill"])
    assert {name for name in possible("standalone", ["kill", "stop"]) if name.startswith("fault/")} == {
        "fault/kill",
        "fault/stop",
    }


@pytest.mark.parametrize(
    ("policy", "kind", "seen"),
    [
        ("shared-store", "kill", "lock/waited"),
        ("ha-database", "kill", "member/taken-over"),
        ("multi-instance", "switch-over", "instance/switched-over"),
    ],
)
def test_whatever_happens_was_held_to_be_possible(policy, kind, seen):
    spec = TestSpec(name="t", policy=policy, pairs=2, rate=40.0, time_limit_s=6.0)
    fault = Fault(kind=kind, start_s=1.0, duration_s=4.0, target="a1")
    run = simulate(spec, Schedule(faults=(fault,)), judge=False)
    assert run.coverage[seen] > 0
    assert set(run.coverage) & set(coverage.meanings(EVENTS)) <= possible(policy, [kind])


def row(f, *, broker, message, type_="ok", subscription=None):
    return {
        "process": 1,
        "f": f,
        "type": type_,
        "broker": broker,
        "message": message,
        "queue": "q",
        "group": None,
        "session": 1,
        "redelivered": False,
        "error": None,
        "subscription": subscription,
    }


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([row("deliver", broker="a1", message=1)], set()),
        ([row("deliver", broker="b1", message=1)], {"delivery/elsewhere"}),
        (
            [row("deliver", broker="a1", message=1), row("deliver", broker="b1", message=1)],
            {"delivery/elsewhere", "delivery/repeated", "delivery/moved"},
        ),
        ([row("deliver", broker="a1", message=1)] * 2, {"delivery/repeated"}),
        ([row("deliver", broker="a1", message=1, subscription=name) for name in "xy"], set()),
        ([row("deliver", broker="b1", message=2)], set()),
    ],
)
def test_where_a_message_was_taken_and_delivered_is_counted(rows, seen):
    sent = row("send", broker="a1", message=1)
    assert set(coverage.count([sent, *rows], {}, {})) == seen
