import asyncio

import msgspec
import pytest
from virtual_cluster import LEASE_S, Cluster, run_virtually

from checkers import schema
from checkers.excuses import kind_of
from harness.interface import Fault, InfrastructureError, Schedule, UsageError
from nemesis import conductor, registry


def conduct(cluster, *faults, cancel_after_s=None):
    """Run the faults to their end (or cancel them), and check what must hold after any run."""

    async def main():
        task = asyncio.create_task(conductor.run(Schedule(faults=faults), cluster.context))
        if cancel_after_s is not None:
            await asyncio.sleep(cancel_after_s)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await task
        assert cluster.environment.in_force() == {}
        assert cluster.context.in_force == {}
        assert len(asyncio.all_tasks()) == 1

    run_virtually(main())
    rows = cluster.recorder.rows
    assert all(process == schema.NEMESIS for process, *_ in rows)
    for f in {row[2] for row in rows}:
        assert len(cluster.recorder.of(f, "invoke")) == len(cluster.recorder.of(f, "info"))
    return cluster


def test_a_broker_that_is_down_is_reconfigured_and_stays_so():
    down = Fault(kind="kill", start_s=1, duration_s=4, target="a2")
    made_master = Fault(kind="reconfigure", start_s=2, duration_s=0.1, target="a2")
    cluster = conduct(Cluster(), down, made_master)
    assert cluster.environment.done("reconfigure") == [(2.0, "reconfigure", "a2", "master")]
    _, value, error = cluster.recorder.only("reconfigure")
    assert (value["bit"], error) == (True, None)


def test_a_broker_that_runs_is_not_reconfigured_for_it_would_not_notice():
    cluster = conduct(
        Cluster(),
        Fault(kind="reconfigure", start_s=1, duration_s=0.1, target="a2", options={"as": "slave"}),
    )
    assert cluster.environment.done("reconfigure") == []
    assert (
        cluster.recorder.only("reconfigure")[2]
        == "a2 is running: it reads its configuration only when it starts"
    )


class Said:
    """Events that come when they are told to."""

    def __init__(self, after_s=None, **parts):
        self.after_s = after_s
        self._parts = parts

    async def wait(self, event):
        if self.after_s is None:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self.after_s)
        return "a2"

    def parts(self):
        return self._parts


def test_a_fault_that_waits_for_an_event_begins_so_long_after_it_and_hits_who_plays_the_part():
    fault = Fault(kind="kill", start_s=0.5, after="failover/taken", duration_s=2, target="taker")
    cluster = Cluster()
    cluster.context.events = Said(after_s=7, taker="a2")
    conduct(cluster, fault)
    at_s, value, _ = cluster.recorder.only("kill")
    assert at_s == pytest.approx(7.5, abs=0.01)
    assert value["nodes"] == ["a2"]
    assert cluster.recorder.only("heal:kill")[0] == pytest.approx(9.5, abs=0.01)
    assert cluster.context.missed == []


def test_a_fault_whose_event_never_comes_is_not_injected_and_says_so():
    cluster = Cluster()
    cluster.context.events = Said()
    fault = Fault(kind="kill", start_s=0.5, after="failover/taken", target="a2")
    conduct(cluster, fault, cancel_after_s=20)
    assert cluster.environment.done("kill") == []
    _, value, error = cluster.recorder.only("kill")
    assert value["bit"] is False
    assert error == "failover/taken never came"
    assert cluster.context.missed == ["kill-1 was not injected: failover/taken never came"]


def test_a_part_that_nobody_plays_is_a_fault_without_effect():
    cluster = Cluster()
    cluster.context.events = Said(taker="a2")
    conduct(cluster, Fault(kind="kill", start_s=1, duration_s=1, target="taker", options={"pair": "b"}))
    assert cluster.recorder.only("kill")[2] == "no broker of pair b is known as taker now"


def test_rivals_of_a_claimant_are_all_other_lives_and_nobody_while_there_is_none():
    cluster = Cluster()
    cluster.context.events = Said(after_s=3, claimant="b1")
    cluster.roles.update(a1="stopped", a2="live")
    conduct(cluster, Fault(kind="pause", start_s=0, after="member/suspected", duration_s=1, target="rivals"))
    at_s, value, _ = cluster.recorder.only("pause")
    assert at_s == pytest.approx(3, abs=0.01)
    assert value["nodes"] == ["a2", "c1"]
    cluster = Cluster()
    cluster.context.events = Said()
    conduct(cluster, Fault(kind="pause", start_s=1, duration_s=1, target="rivals"))
    assert cluster.recorder.only("pause")[2] == "no broker is known as claimant now, or no other is live"


@pytest.mark.parametrize(
    ("kind", "shape", "primitive", "phrase"),
    [
        ("partition", "isolate-live", "cut", "lost"),
        ("stall", "pair-link", "stall", "lost"),
        ("slow", "pair-link", "slow", "slow 200 ms"),
    ],
)
def test_a_fault_of_links_is_injected_proved_renewed_and_healed(kind, shape, primitive, phrase):
    fault = Fault(kind=kind, start_s=4, duration_s=12, shape=shape, options={"pair": "b"})
    cluster = conduct(Cluster(), fault)
    at_s, invoked, _ = cluster.recorder.only(kind, "invoke")
    assert at_s == 4
    assert invoked["label"] == f"{kind}-1"
    assert invoked["shape"] == shape
    assert invoked["options"] == {"pair": "b"}
    assert "b1->b2" in invoked["links"]
    assert "observed" not in invoked
    at_s, value, error = cluster.recorder.only(kind)
    assert at_s == pytest.approx(4, abs=0.01)
    assert value["bit"] is True
    assert value["observed"] == dict.fromkeys(invoked["links"], phrase)
    assert error is None
    assert [call[2] for call in cluster.environment.done("inject")] == [primitive]
    renewals = [call[0] for call in cluster.environment.done("renew")]
    assert len(renewals) >= 11
    assert max(b - a for a, b in zip([4, *renewals], [*renewals, 16], strict=True)) < LEASE_S / 2
    assert cluster.recorder.only(f"heal:{kind}", "invoke")[0] == pytest.approx(16, abs=0.01)
    _, value, error = cluster.recorder.only(f"heal:{kind}")
    assert value["observed"] == dict.fromkeys(invoked["links"], "open")
    assert value["bit"] is True
    assert error is None


def test_slow_passes_its_options_on_and_has_defaults():
    for options, told in (
        ({}, {"delay_ms": 200.0, "jitter_ms": 50.0}),
        ({"rate_bytes_s": 9000}, {"rate_bytes_s": 9000}),
        ({"delay_ms": 7, "pair": "a"}, {"delay_ms": 7}),
    ):
        cluster = Cluster()
        seen = []
        inject = cluster.environment.inject

        async def spy(primitive, inject=inject, seen=seen, **more):
            seen.append(more["options"])
            return await inject(primitive, **more)

        cluster.environment.inject = spy
        conduct(cluster, Fault(kind="slow", start_s=0, duration_s=1, shape="pair-link", options=options))
        assert seen == [told]


def test_a_killed_node_is_seen_gone_and_started_again():
    cluster = conduct(Cluster(), Fault(kind="kill", start_s=1, duration_s=5, options={"pair": "c"}))
    _, value, _ = cluster.recorder.only("kill")
    assert (value["target"], value["nodes"]) == ("c1", ["c1"])
    assert (value["observed"], value["bit"]) == ({"c1": "gone"}, True)
    assert [call[:2] for call in cluster.environment.done("kill", "start")] == [(1, "kill"), (6, "start")]
    _, value, _ = cluster.recorder.only("heal:kill")
    assert (value["observed"], value["bit"]) == ({"c1": "running"}, True)
    assert cluster.environment.disks == set(cluster.environment.state)


@pytest.mark.parametrize(
    ("target", "count"),
    [("one", 1), ("minority", 2), ("majority", 4), ("all", 6), ("lives", 3), ("backups", 3)],
)
def test_counts_and_roles_hit_so_many_nodes(target, count):
    cluster = conduct(Cluster(), Fault(kind="kill", start_s=0, duration_s=1, target=target))
    _, value, _ = cluster.recorder.only("kill")
    assert len(value["nodes"]) == count
    assert value["bit"] is True


def test_a_role_is_looked_up_when_the_fault_begins():
    cluster = Cluster()

    def fail_over():
        cluster.roles = {**cluster.roles, "a1": "stopped", "a2": "live"}

    async def main():
        asyncio.get_running_loop().call_later(2, fail_over)
        options = {"pair": "a"}
        faults = (
            Fault(kind="pause", start_s=1, duration_s=0.5, target="live", options=options),
            Fault(kind="pause", start_s=3, duration_s=0.5, target="live", options=options),
        )
        await conductor.run(Schedule(faults=faults), cluster.context)

    run_virtually(main())
    assert [value["nodes"] for _, value, _ in cluster.recorder.of("pause", "info")] == [["a1"], ["a2"]]


def test_a_destroyed_node_comes_back_with_an_empty_disk():
    cluster = conduct(Cluster(), Fault(kind="destroy", start_s=0, duration_s=3, target="a1"))
    assert [call[1] for call in cluster.environment.done("kill", "destroy", "start")] == [
        "kill",
        "destroy",
        "start",
    ]
    assert "a1" not in cluster.environment.disks
    assert cluster.recorder.only("destroy")[1]["bit"] is True


def test_a_clean_stop_goes_through_the_broker_and_is_seen():
    cluster = conduct(Cluster(), Fault(kind="stop", start_s=0, duration_s=3, target="b1"))
    assert [call[1:] for call in cluster.environment.done("kill", "stop", "start")] == [
        ("stop", "b1"),
        ("start", "b1"),
    ]
    at_s, value, _ = cluster.recorder.only("stop")
    assert at_s == pytest.approx(0.5, abs=0.01)
    assert (value["observed"], value["bit"]) == ({"b1": "gone"}, True)


def test_a_node_that_leaves_stays_away_and_is_not_healed_also_where_another_fault_had_it_down():
    cluster = conduct(
        Cluster(),
        Fault(kind="leave", start_s=0, target="b1"),
        Fault(kind="kill", start_s=2, duration_s=3, target="b1,a1"),
    )
    assert cluster.recorder.only("leave")[1]["observed"] == {"b1": "gone"}
    assert cluster.recorder.of("heal:leave", "invoke") == []
    assert cluster.environment.done("start") == [(5, "start", "a1")]
    assert cluster.recorder.only("heal:kill")[1]["observed"]["b1"] == "gone, kept down by leave-1"
    assert cluster.context.departed == {"b1"}


def test_data_are_copied_between_stopped_nodes_and_stay_so():
    cluster = Cluster(down=("b1",))
    fault = Fault(kind="copy-data", start_s=1, duration_s=1, target="b1", options={"of": "a1"})
    conduct(cluster, fault)
    assert cluster.recorder.only("copy-data")[1]["bit"] is False, "a1 runs"
    assert "a1 is running" in cluster.recorder.only("copy-data")[2]
    cluster = Cluster(down=("a1", "b1"))
    conduct(cluster, fault)
    assert cluster.recorder.only("copy-data")[1]["bit"] is True
    assert cluster.environment.calls == [(1, "copy", "a1", "b1")]


def test_data_of_any_other_node_are_copied_if_none_is_named():
    cluster = Cluster(2, backups=False, down=("a1", "b1"))
    conduct(cluster, Fault(kind="copy-data", start_s=1, duration_s=1, target="a1"))
    assert cluster.environment.calls == [(1, "copy", "b1", "a1")]


def test_checkers_and_nemesis_agree_on_which_faults_last_for_good():
    assert [name for name, kind in registry.KINDS.items() if kind.for_good] == ["leave"]
    assert all(kind_of(name).for_good == kind.for_good for name, kind in registry.KINDS.items())


def test_a_broker_that_does_not_stop_is_an_error_without_effect():
    cluster = Cluster()
    cluster.stop_takes_s = 1000
    conduct(cluster, Fault(kind="stop", start_s=0, duration_s=3, target="b1"))
    _, value, error = cluster.recorder.only("stop")
    assert value["bit"] is False
    assert "b1 was asked to stop and still runs after 15 s" in error


def test_a_paused_node_stands_still_and_goes_on():
    cluster = conduct(Cluster(), Fault(kind="pause", start_s=1, duration_s=8, target="a1,b2"))
    _, value, _ = cluster.recorder.only("pause")
    assert (value["observed"], value["bit"]) == ({"a1": "paused", "b2": "paused"}, True)
    assert cluster.recorder.only("heal:pause")[1]["observed"] == {"a1": "running", "b2": "running"}


def test_a_late_start_does_nothing_but_start_at_its_end():
    cluster = conduct(Cluster(down=("a2",)), Fault(kind="late-start", start_s=0, duration_s=7, target="a2"))
    _, value, _ = cluster.recorder.only("late-start")
    assert (value["observed"], value["bit"]) == ({"a2": "gone"}, True)
    assert cluster.environment.calls == [(7, "start", "a2")]


def test_an_effect_that_comes_late_is_waited_for_and_one_that_never_comes_is_not_claimed():
    fault = Fault(kind="partition", start_s=0, duration_s=6, shape="halves")
    late = Cluster()
    late.environment.effect_after_s = 1.0
    at_s, value, _ = conduct(late, fault).recorder.only("partition")
    assert value["bit"] is True
    assert at_s == pytest.approx(1.0, abs=0.2)
    never = Cluster()
    never.environment.effect_after_s = 100
    at_s, value, _ = conduct(never, fault).recorder.only("partition")
    assert value["bit"] is False
    assert set(value["observed"].values()) == {"open"}
    assert at_s == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="partition", start_s=0, duration_s=2, shape="halves"),
        Fault(kind="pause", start_s=0, duration_s=2),
        Fault(kind="kill", start_s=0, duration_s=2),
        Fault(kind="destroy", start_s=0, duration_s=2),
        Fault(kind="stop", start_s=0, duration_s=2),
    ],
)
@pytest.mark.parametrize(
    "error", [InfrastructureError("no such luck"), OSError("no such luck"), KeyError("no such luck")]
)
def test_a_fault_that_cannot_be_injected_is_a_row_and_the_others_go_on(fault, error):
    cluster = Cluster()
    cluster.environment.fails = dict.fromkeys(("inject", "kill", "stop"), error)
    other = Fault(kind="late-start", start_s=0, duration_s=4, target="a2")
    cluster.environment.state["a2"] = "gone"
    conduct(cluster, fault, other)
    _, value, error = cluster.recorder.only(fault.kind)
    assert value["bit"] is False
    assert "no such luck" in error
    assert cluster.recorder.only("late-start")[1]["bit"] is True


def test_nobody_in_the_role_is_a_row_without_effect_and_nothing_is_touched():
    cluster = Cluster()
    cluster.roles = dict.fromkeys(cluster.roles, "backup")
    conduct(
        cluster,
        Fault(kind="kill", start_s=0, duration_s=2),
        Fault(kind="partition", start_s=0, duration_s=2, shape="isolate-live", options={"pair": "b"}),
    )
    assert cluster.environment.calls == []
    assert cluster.recorder.only("kill")[2] == "no broker is live now"
    _, value, error = cluster.recorder.only("partition")
    assert error == "no broker of pair b is live now"
    assert (value["bit"], value["observed"], value["shape"]) == (False, {}, "isolate-live")


def test_killing_the_dead_claims_nothing_and_each_node_is_started_once_when_the_last_fault_ends():
    cluster = conduct(
        Cluster(),
        Fault(kind="kill", start_s=0, duration_s=10, target="a1"),
        Fault(kind="kill", start_s=2, duration_s=4, target="a1"),
        Fault(kind="destroy", start_s=3, duration_s=9, target="a1"),
    )
    first, second = (value for _, value, _ in cluster.recorder.of("kill", "info"))
    assert first["bit"] is True
    assert (second["bit"], second["observed"]) == (False, {"a1": "gone already"})
    assert cluster.environment.done("start") == [(12, "start", "a1")]
    heals = sorted(
        (value["label"], value["bit"], value["observed"]["a1"])
        for _, value, _ in cluster.recorder.of("heal:kill", "info")
    )
    assert heals == [
        ("kill-1", False, "gone, kept down by destroy-3"),
        ("kill-2", False, "gone, kept down by destroy-3"),
    ]
    assert cluster.recorder.only("heal:destroy")[1]["bit"] is True


def test_killing_the_paused_and_pausing_the_dead_are_safe_and_honest():
    cluster = conduct(
        Cluster(),
        Fault(kind="pause", start_s=0, duration_s=6, target="a1"),
        Fault(kind="kill", start_s=1, duration_s=8, target="a1"),
        Fault(kind="pause", start_s=2, duration_s=6, target="a1"),
    )
    first, second = (value for _, value, _ in cluster.recorder.of("pause", "info"))
    assert first["bit"] is True
    assert cluster.recorder.only("kill")[1]["bit"] is True
    assert (second["bit"], second["observed"]) == (False, {"a1": "gone already"})
    assert cluster.environment.state["a1"] == "running"


def test_a_lease_that_ended_before_its_time_is_told_at_the_healing():
    cluster = Cluster()

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_later(3.5, cluster.environment.leases.clear)
        await conductor.run(
            Schedule(faults=(Fault(kind="partition", start_s=0, duration_s=9, shape="halves"),)),
            cluster.context,
        )

    run_virtually(main())
    assert "healed on the node before its time" in cluster.recorder.only("heal:partition")[2]
    assert len(cluster.environment.done("renew")) == 4


@pytest.mark.parametrize("cancel_after_s", [0.5, 1.0, 1.2, 5.0])
def test_cancelling_heals_everything_and_says_so(cancel_after_s):
    cluster = conduct(
        Cluster(),
        Fault(kind="partition", start_s=1, shape="bridge"),
        Fault(kind="kill", start_s=1, target="one"),
        Fault(kind="pause", start_s=1, target="backup"),
        Fault(kind="kill", start_s=900, target="all"),
        cancel_after_s=cancel_after_s,
    )
    assert set(cluster.environment.state.values()) == {"running"}
    begun = 1 if cancel_after_s > 1 else 0
    for kind in ("partition", "kill", "pause"):
        assert len(cluster.recorder.of(f"heal:{kind}", "info")) >= begun


def test_a_lease_that_is_being_made_while_cancelled_is_healed_too():
    cluster = Cluster()
    gate = asyncio.Event()
    inject = cluster.environment.inject

    async def slow_inject(primitive, **more):
        lease = await inject(primitive, **more)
        await asyncio.sleep(3)
        gate.set()
        return lease

    cluster.environment.inject = slow_inject
    conduct(cluster, Fault(kind="partition", start_s=0, shape="halves"), cancel_after_s=1)
    assert gate.is_set()
    assert len(cluster.environment.done("heal")) == 1


def test_what_is_in_force_can_be_shown():
    cluster = Cluster()

    async def main():
        task = asyncio.create_task(
            conductor.run(
                Schedule(
                    faults=(
                        Fault(
                            kind="partition",
                            start_s=1,
                            duration_s=3,
                            shape="isolate-live",
                            options={"pair": "b"},
                        ),
                        Fault(kind="kill", start_s=1, duration_s=3, target="a1,c1"),
                    )
                ),
                cluster.context,
            )
        )
        await asyncio.sleep(2)
        assert cluster.context.in_force == {
            "partition-1": "partition isolate-live b1",
            "kill-2": "kill a1, c1",
        }
        await task

    run_virtually(main())


def test_the_same_seed_breaks_the_same_things():
    faults = (
        Fault(kind="partition", start_s=1, duration_s=3, shape="random"),
        Fault(kind="kill", start_s=1, duration_s=3, target="minority"),
        Fault(kind="pause", start_s=2, duration_s=3, target="backup"),
    )
    assert conduct(Cluster(seed=5), *faults).recorder.rows == conduct(Cluster(seed=5), *faults).recorder.rows
    assert conduct(Cluster(seed=5), *faults).recorder.rows != conduct(Cluster(seed=6), *faults).recorder.rows


# ----------------------------------------------------------------------------------- administrators


def members(cluster, **states):
    """Every broker answers "members" with these states, "takeover" by completing one, "quiesce"
    and "unquiesce" by becoming so.
    """
    rows = {node.name: states.get(node.name, "OPERATING") for node in cluster.nodes}
    taken = {name: [] for name in rows}

    def listed(node, arguments):
        return {"members": [{"broker-id": name, "state": state} for name, state in rows.items()]}

    def take(node, arguments):
        taken[node].append(arguments["broker-id"])
        rows[arguments["broker-id"]] = "TAKEOVER_COMPLETE"
        return {"state": "TAKEOVER_COMPLETE", "taker": node}

    def become(state):
        def act(node, arguments):
            rows[node] = state
            return {}

        return act

    cluster.answers = {
        "members": listed,
        "takeover": take,
        "quiesce": become("QUIESCING"),
        "unquiesce": become("OPERATING"),
        "status": lambda node, arguments: {"taken-over": taken[node]},
    }
    return rows


def test_a_takeover_by_hand_is_given_to_another_broker_that_serves_and_read_from_it():
    cluster = Cluster(backups=False)
    members(cluster)
    cluster.roles["b1"] = "stopped"
    conduct(cluster, Fault(kind="takeover", start_s=0, duration_s=1, target="a1"))
    [(_, _, taker, arguments)] = cluster.environment.done("takeover")
    assert (taker, arguments) == ("c1", {"broker-id": "a1", "force": True})
    _, value, _ = cluster.recorder.only("takeover")
    assert (value["target"], value["bit"]) == ("a1 by c1", True)
    assert value["observed"] == {"a1": "taken over by c1, now TAKEOVER_COMPLETE"}
    assert cluster.recorder.only("heal:takeover")[1]["bit"] is True


def test_a_takeover_that_the_taker_refuses_is_without_effect_and_says_why():
    cluster = Cluster(backups=False)
    members(cluster)
    cluster.environment.fails["takeover"] = OSError("a1 is being taken over")
    fault = Fault(kind="takeover", start_s=0, duration_s=1, target="a1", options={"taker": "b1"})
    conduct(cluster, fault)
    _, value, error = cluster.recorder.only("takeover")
    assert value["bit"] is False
    assert error == "b1 did not do takeover: a1 is being taken over"


def test_a_takeover_half_way_is_not_healed():
    cluster = Cluster(backups=False)
    rows = members(cluster)

    def half_way(node, arguments):
        rows[arguments["broker-id"]] = "TAKEOVER_STARTED"
        return {}

    cluster.answers["takeover"] = half_way
    conduct(cluster, Fault(kind="takeover", start_s=0, duration_s=1, target="a1"))
    assert cluster.recorder.only("takeover")[1]["bit"] is False
    assert cluster.recorder.only("heal:takeover")[1]["bit"] is False


def test_where_nobody_else_serves_nobody_takes_over():
    cluster = Cluster(backups=False)
    members(cluster)
    conduct(cluster, Fault(kind="takeover", start_s=0, duration_s=1, target="all"))
    assert cluster.recorder.only("takeover")[2].startswith(
        "no other broker serves that could take over from a1"
    )


def test_a_quiesced_broker_is_seen_to_be_so_and_opened_again():
    cluster = Cluster(backups=False)
    rows = members(cluster)
    conduct(cluster, Fault(kind="quiesce", start_s=0, duration_s=2, target="a1,b1"))
    assert cluster.recorder.only("quiesce")[1]["observed"] == {"a1": "QUIESCING", "b1": "QUIESCING"}
    assert cluster.recorder.only("quiesce")[1]["bit"] is True
    assert cluster.recorder.only("heal:quiesce")[1]["bit"] is True
    assert set(rows.values()) == {"OPERATING"}


def test_a_quiesced_broker_that_does_not_answer_at_the_end_is_asked_until_it_does():
    cluster = Cluster(backups=False)
    rows = members(cluster)
    listed, answered = cluster.answers["members"], []

    def stalled(node, arguments):
        answered.append(asyncio.get_running_loop().time() - 1000.0)
        if 2.0 <= answered[-1] < 6.0:
            raise OSError("the database cannot be used now")
        return listed(node, arguments)

    opened = cluster.answers["unquiesce"]

    def refusing(node, arguments):
        if asyncio.get_running_loop().time() - 1000.0 < 6.0:
            raise OSError("the database cannot be used now")
        return opened(node, arguments)

    cluster.answers |= {"members": stalled, "unquiesce": refusing}
    conduct(cluster, Fault(kind="quiesce", start_s=0, duration_s=2, target="a1"))
    assert rows["a1"] == "OPERATING"
    assert cluster.recorder.only("heal:quiesce")[1]["bit"] is True


def test_a_quiesced_broker_that_is_gone_at_the_end_is_left_alone():
    cluster = Cluster(backups=False)
    members(cluster)

    async def main():
        asyncio.get_running_loop().call_later(1, cluster.environment.exit, "a1")
        faults = (Fault(kind="quiesce", start_s=0, duration_s=2, target="a1"),)
        await conductor.run(Schedule(faults=faults), cluster.context)

    run_virtually(main())
    assert cluster.environment.done("unquiesce") == []


@pytest.mark.parametrize("failover", [True, False])
def test_a_stop_says_whether_another_takes_over_where_it_is_told(failover):
    fault = Fault(kind="stop", start_s=0, duration_s=2, target="a1", options={"failover": failover})
    cluster = conduct(Cluster(), fault)
    [(_, _, node, said)] = cluster.environment.done("stop")
    assert (node, said) == ("a1", failover)


@pytest.mark.parametrize("kind", ["takeover", "quiesce"])
def test_a_command_of_brokers_that_share_a_database_is_refused_by_name_elsewhere(kind):
    assert "use --policy ha-database" in registry.get(kind).lacks(Cluster().nodes)


@pytest.mark.parametrize("kind", ["datagram-loss", "datagram-duplicate", "datagram-reorder"])
def test_faults_of_datagrams_are_refused_where_no_broker_sends_any(kind):
    nodes = Cluster().nodes
    assert "give them broadcast-groups with --set" in registry.get(kind).lacks(nodes)
    assert registry.get(kind).lacks([msgspec.structs.replace(nodes[0], broadcasts=True)]) == ""


def test_a_taker_that_does_not_exist_is_refused_with_the_near_one():
    fault = Fault(kind="takeover", start_s=0, options={"taker": "b11"})
    with pytest.raises(UsageError, match='unknown taker "b11": did you mean "b1"'):
        registry.get("takeover").validate(fault, Cluster(backups=False).nodes)


def test_a_disk_is_destroyed_whether_or_not_its_broker_still_ran():
    cluster = conduct(
        Cluster(),
        Fault(kind="kill", start_s=1, duration_s=20, target="a1"),
        Fault(kind="destroy", start_s=5, duration_s=5, target="a1"),
    )
    _, value, _ = cluster.recorder.only("destroy")
    assert (value["bit"], value["observed"]) == (True, {"a1": "gone already"})
