"""Workload ``destinations`` in a simulated cluster: what it does, and that it is written down."""

import asyncio
import random

import pytest
from stomp_doubles import make_context, well_formed

from checkers.schema import COLUMNS, json_object
from harness.history import spec as specs
from harness.interface import CommandRefusedError, Fault, Schedule, UsageError
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems.own.dialect import DIALECT
from harness.systems.own.system import OwnSystem
from workloads.destinations import Administrator, ManagedQueue

pytestmark = pytest.mark.slow  # most look at a run, which takes two seconds

GIVEN = {
    "policy": "conventional", "pairs": 3, "master": "a1", "workload": "destinations", "time_limit_s": 12.0,
    "rate": 60.0, "producers": 3, "consumers": 6, "seed": 3, "churn": 2.0,
}  # fmt: skip


def run(*faults, **changes):
    ran = simulate(specs.build({**GIVEN, **changes}), Schedule(faults=faults))
    assert ran.valid is True, (ran.grave, ran.trouble)
    return [{name: row[name] for name in COLUMNS} for row in ran.rows]


@pytest.fixture(scope="module")
def rows():
    return run()


def of(rows, f, type="ok"):  # noqa: A002 - the history's own name for it
    return [row for row in rows if (row["f"], row["type"]) == (f, type)]


def test_queues_are_made_deleted_and_made_again_at_all_brokers(rows):
    well_formed([row for row in rows if row["process"] >= 0])
    for queue in ("q0", "q1", "q2"):
        changes = [row["f"] for row in rows if row["queue"] == queue and row["f"] in ("create", "delete")]
        assert changes.count("create") >= 4, queue
    assert {row["broker"] for row in of(rows, "delete")} == {"a1", "b1", "c1"}
    assert {row["broker"] for row in of(rows, "create")} == {"a1", "b1", "c1"}


def test_deletions_take_messages_with_them_and_end_consumers(rows):
    sent = {row["message"] for row in of(rows, "send")}
    got = {row["message"] for row in of(rows, "deliver")}
    assert len(sent) > 300
    assert sent - got
    assert of(rows, "disconnect", "info")


def test_brokers_are_compared_with_what_the_administrator_was_answered(rows):
    views = [json_object(row["value"]) for row in rows if row["f"] == "view" and row["type"] == "ok"]
    told = [row["broker"] for row in rows if row["f"] == "view" and '"queue"' in (row["value"] or "")]
    assert {"clients", "a1", "b1", "c1"} == set(told)
    assert {view["value"] for view in views if view["kind"] == "queue"} <= {"there", "gone"}


def test_after_a_deletion_of_unknown_outcome_clients_go_on_with_another_queue(monkeypatch):
    given = "harness.systems.own.system.OwnSystem.administer"
    administer, deleted = OwnSystem.administer, []

    async def lose_the_first_answer(self, admin, command, arguments):
        answer = await administer(self, admin, command, arguments)
        if command == "delete":
            deleted.append(arguments["queue"])
            if len(deleted) == 1:
                raise OSError("the answer is lost")
        return answer

    monkeypatch.setattr(given, lose_the_first_answer)
    rows = run()
    former = deleted[0]
    unknown = next(row for row in rows if row["f"] == "delete" and row["type"] == "info")
    assert unknown["queue"] == former
    later = [row for row in rows if row["index"] > unknown["index"]]
    assert not [row for row in later if row["f"] in ("create", "delete") and row["queue"] == former]
    for f in ("send", "deliver", "create", "delete"):
        assert [row for row in of(later, f) if row["queue"] == f"{former}-1"], f


def test_elsewhere_each_queue_is_at_home_with_a_pair():
    rows = run(policy="standalone", master="", pairs=2)
    homes = {}
    for row in rows:
        if row["f"] in ("create", "delete", "send", "deliver") and row["type"] == "ok":
            homes.setdefault(row["queue"], set()).add(row["broker"])
    assert homes == {"q0": {"a1"}, "q1": {"b1"}}


def test_what_is_deleted_while_a_broker_is_down_stays_deleted():
    rows = run(Fault(kind="kill", target="c1", start_s=3.0, duration_s=4.0))
    down = next(row for row in rows if row["f"] == "kill" and row["type"] == "info")
    up = next(row for row in rows if row["f"] == "heal:kill" and row["type"] == "invoke")
    assert [row for row in of(rows, "delete") if down["index"] < row["index"] < up["index"]]


def test_brokers_that_delete_only_what_they_have_lack_the_workload():
    with pytest.raises(
        UsageError, match="--workload destinations: with policy ha-database brokers of system"
    ):
        compose(specs.build({"policy": "ha-database", "workload": "destinations"}))
    with pytest.raises(UsageError, match="have no commands that create and delete queues"):
        compose(specs.build({"system": "rabbitmq", "policy": "quorum-queues", "workload": "destinations"}))
    assert (
        "destinations"
        not in compose(specs.build({"policy": "ha-database", "workload": "mixed"})).spec.workload
    )


@pytest.mark.parametrize(
    ("answer", "type_", "there"),
    [
        ({}, "ok", True),
        (CommandRefusedError("no"), "fail", None),
        (ConnectionRefusedError("nobody listens"), "fail", None),
        (ConnectionResetError("gone"), "info", None),
        (TimeoutError(), "info", None),
    ],
)
def test_only_what_was_certainly_refused_has_failed(answer, type_, there):
    async def administer(node, command, arguments):
        assert (node, command, arguments) == ("a1", "create", {"queue": "q"})
        if isinstance(answer, Exception):
            raise answer
        return answer

    context = make_context({"a1": None}, dialect=DIALECT)
    context.administer = administer
    queue = ManagedQueue("q", None)
    administrator = Administrator(context, random.Random(1))
    assert asyncio.run(administrator.request("create", queue)) == (type_ == "ok")
    assert [row["type"] for row in context.recorder.rows] == ["invoke", type_]
    assert queue.there is there
    assert queue.doubtful == (type_ == "info")
