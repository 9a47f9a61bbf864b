"""The nemesis ``restore-record`` on a cluster on virtual time, and on brokers of ours."""

import re

import msgspec
import pytest
from virtual_cluster import Cluster, run_virtually

from harness.interface import DatabasePlan, Fault, Schedule, TestSpec
from harness.run.simulate import simulate
from nemesis import conductor, registry

CAUGHT_UP = re.compile(r"record of master broker \S+ is applied up to change (\d+)")
BACKUP = {"record": {"head": ["i"], "changes": []}}


def conventional(**fields):
    cluster = Cluster(backups=False, **fields)
    cluster.context.nodes = cluster.nodes = tuple(
        msgspec.structs.replace(node, commands=("backup-record",), master=node.name == "b1")
        for node in cluster.nodes
    )
    cluster.answers = {"backup-record": lambda node, arguments: BACKUP}
    return cluster


def conduct(cluster, *others, **options):
    async def main():
        fault = Fault(kind="restore-record", start_s=2, duration_s=6, options=options)
        await conductor.run(Schedule(faults=(fault, *others)), cluster.context)

    run_virtually(main())
    return cluster


@pytest.mark.parametrize(("by", "age_s"), [("stop", 1.0), ("kill", 0.5)])
def test_the_record_is_backed_up_then_all_brokers_end_and_it_is_restored_before_they_start(by, age_s):
    options = {} if by == "stop" else {"by": by, "age-s": age_s}
    cluster = conduct(conventional(), **options)
    calls = cluster.environment.calls
    assert calls[0] == (2, "backup-record", "b1", {})
    assert [call for call in calls if call[1] == by] == [(2 + age_s, by, name) for name in ("a1", "b1", "c1")]
    [restored] = cluster.environment.done("restore")
    assert restored[2:] == ("b1", BACKUP)
    assert cluster.environment.done("start") == [(8, "start", name) for name in ("a1", "b1", "c1")]
    assert calls.index(restored) < calls.index((8, "start", "a1"))
    at_s, value, _ = cluster.recorder.only("restore-record", "invoke")
    assert (at_s, value["target"]) == (2, "a1, b1, c1")
    assert cluster.recorder.only("restore-record")[1]["bit"] is True
    assert cluster.recorder.only("heal:restore-record")[1]["bit"] is True


def test_without_a_backup_no_broker_is_stopped_and_the_row_says_why():
    cluster = conventional()
    cluster.environment.fails["backup-record"] = OSError("connection refused")
    _, value, error = conduct(cluster).recorder.only("restore-record")
    assert (value["bit"], error) == (False, "b1 did not do backup-record: connection refused")
    assert cluster.environment.done("stop", "kill", "restore", "start") == []


def test_a_broker_that_another_fault_keeps_down_stays_down():
    other = Fault(kind="kill", start_s=1, duration_s=12, target="a1")
    cluster = conduct(conventional(), other)
    assert cluster.environment.done("start") == [(8, "start", "b1"), (8, "start", "c1"), (13, "start", "a1")]


def test_a_cluster_without_a_record_in_files_is_refused_by_name():
    kind = registry.get("restore-record")
    nodes = conventional().nodes
    assert kind.lacks(nodes) == ""
    without_master = [msgspec.structs.replace(node, master=False) for node in nodes]
    assert "use --policy conventional --master a1" in kind.lacks(without_master)
    in_database = [msgspec.structs.replace(node, database=DatabasePlan()) for node in nodes]
    assert "is in a database" in kind.lacks(in_database)


@pytest.mark.parametrize("by", ["stop", "kill"])
def test_what_was_made_after_the_backup_is_undone_at_all_brokers(by):
    spec = TestSpec(
        name="restored", environment="simulation", policy="conventional", pairs=3, master="a1", rate=40.0,
        workload="subscriptions", queues=2, churn=4.0, producers=3, consumers=3, time_limit_s=16.0, seed=3,
    )  # fmt: skip
    fault = Fault(kind="restore-record", start_s=5.0, duration_s=4.0, options={"by": by, "age-s": 2.0})
    result = simulate(spec, Schedule(faults=(fault,)))
    restored = _changes(result.logs["a1"], r"restored from a backup: it has \d+ entities after change (\d+)")
    assert len(restored) == 1
    assert restored[0] > 0
    before = []
    for member in ("b1", "c1"):
        lines = result.logs[member]
        [start] = [at for at, line in enumerate(lines) if "WARNING" in line and CAUGHT_UP.search(line)]
        assert _changes(lines, CAUGHT_UP) == [0, *restored]
        before += _changes(lines[:start], r"change (\d+) of the cluster is applied")
    assert max(before) > restored[0], "no change was made after the backup"
    assert "diverged" not in result.grave


def _changes(lines, pattern):
    """Return the numbers of changes in the lines of a log."""
    return [int(found[1]) for line in lines if (found := re.search(pattern, line))]
