"""The nemesis ``administer`` on a cluster on virtual time."""

import asyncio

import msgspec
import pytest
from virtual_cluster import Cluster, run_virtually

from harness.interface import Fault, Schedule, UsageError
from nemesis import conductor, registry

KNOWN = ("create", "delete", "reload", "compact-record")


def conventional(*, known=KNOWN, **fields):
    """Return three brokers that take commands, of which a1 is the master."""
    cluster = Cluster(backups=False, **fields)
    cluster.context.nodes = cluster.nodes = tuple(
        msgspec.structs.replace(node, commands=known, master=node.name == "a1") for node in cluster.nodes
    )
    cluster.answers = dict.fromkeys(known, lambda node, arguments: {})
    return cluster


def conduct(cluster, *, target=None, duration_s=4.0, **options):
    async def main():
        fault = Fault(kind="administer", start_s=0, duration_s=duration_s, target=target, options=options)
        await conductor.run(Schedule(faults=(fault,)), cluster.context)
        assert len(asyncio.all_tasks()) == 1, "an administrator goes on"

    run_virtually(main())
    return cluster


def refusing(node, arguments):
    raise OSError("the master broker cannot be reached")


def test_queues_of_the_fault_are_made_and_deleted_at_all_brokers_until_it_ends():
    cluster = conduct(conventional(), command="destinations")
    calls = cluster.environment.done("create", "delete")
    assert {(what, node) for _, what, node, _ in calls} == {
        (what, node) for what in ("create", "delete") for node in ("a1", "b1", "c1")
    }
    assert {arguments["queue"] for *_, arguments in calls} == {f"administer-1-{n}" for n in (1, 2, 3)}
    assert 3.5 < calls[-1][0] <= 4.0
    _, value, _ = cluster.recorder.only("administer")
    assert (value["shape"], value["nodes"], value["bit"]) == ("destinations", ["a1", "b1", "c1"], True)
    told = cluster.recorder.only("heal:administer")[1]["observed"]
    counts = {node: sum(where == node for _, _, where, _ in calls) for node in ("a1", "b1", "c1")}
    assert told == {node: f"done {count} of {count}" for node, count in counts.items()}


def test_a_refusal_is_no_error_and_one_command_that_was_done_is_an_effect():
    cluster = conventional()
    cluster.answers["create"] = lambda node, arguments: {} if node == "b1" else refusing(node, arguments)
    cluster.answers["delete"] = refusing
    _, value, error = conduct(cluster, command="destinations").recorder.only("administer")
    assert (value["bit"], error) == (True, None)
    _, value, error = cluster.recorder.only("heal:administer")
    assert (value["bit"], error) == (True, None)
    assert value["observed"]["a1"].endswith("the master broker cannot be reached")


@pytest.mark.parametrize("command", ["destinations", "reload", "compact"])
def test_without_any_command_that_was_done_there_is_no_effect(command):
    cluster = conventional()
    cluster.answers = dict.fromkeys(KNOWN, refusing)
    _, value, error = conduct(cluster, command=command).recorder.only("administer")
    assert (value["bit"], error) == (False, None)


def test_a_broker_that_does_not_answer_does_not_keep_the_fault_from_its_end():
    cluster = conventional()

    async def silent(node, command, arguments):
        await asyncio.get_running_loop().create_future()

    cluster.context.administer = silent
    conduct(cluster, command="destinations")
    assert cluster.recorder.only("heal:administer")[0] == 4.0


def test_each_broker_of_the_target_reloads_once():
    cluster = conduct(conventional(), command="reload", target="b1,c1")
    assert [node for _, _, node, _ in cluster.environment.done(*KNOWN)] == ["b1", "c1"]
    assert cluster.recorder.only("administer")[1]["observed"] == {"b1": "done 1 of 1", "c1": "done 1 of 1"}


def test_only_the_master_compacts_whatever_the_target():
    cluster = conduct(conventional(), command="compact", target="b1")
    assert [call[1:3] for call in cluster.environment.done(*KNOWN)] == [("compact-record", "a1")]


def test_a_command_that_is_not_given_is_drawn_and_recorded():
    drawn = {conduct(conventional(seed=n)).recorder.only("administer")[1]["shape"] for n in range(12)}
    assert drawn == {"destinations", "reload", "compact"}


def test_only_what_the_cluster_knows_is_drawn():
    kind = registry.get("administer")
    nodes = conventional(known=("reload", "compact-record")).nodes
    assert kind.drawn(nodes) == {"command": ("reload", "compact")}
    without_master = [msgspec.structs.replace(node, master=False) for node in nodes]
    assert kind.drawn(without_master) == {"command": ("reload",)}


def test_a_command_that_no_broker_knows_is_refused_by_name():
    kind = registry.get("administer")
    assert "use --policy conventional" in kind.lacks(Cluster().nodes)
    nodes = conventional(known=("reload",)).nodes
    with pytest.raises(UsageError, match="no broker of this cluster knows compact: use reload"):
        kind.validate(Fault(kind="administer", start_s=0, options={"command": "compact"}), nodes)
    with pytest.raises(UsageError, match="must be one of destinations, reload, compact"):
        kind.validate(Fault(kind="administer", start_s=0, options={"command": "restart"}), nodes)
