"""A queue manager in the simulation.

It fences itself, it is ended and switched over under load, and what it cannot do it refuses.
"""

import asyncio

import msgspec
import pytest
from queue_managers import SPEC, Brokers

from broker.policies.ownership.lease import Lease
from broker.policies.shared_store import EXIT_FENCED
from environments.simulation.kernel import Kernel
from harness.interface import Fault, Schedule
from harness.run.simulate import simulate


def run(kind, target, seconds, seed=1, **options):
    fault = Fault(kind=kind, start_s=3.0, duration_s=seconds, target=target, options=options)
    return simulate(msgspec.structs.replace(SPEC, seed=seed), Schedule(faults=(fault,)))


def lives(result):
    """(broker, role) as the monitor saw them change."""
    return [(row["broker"], row["role"]) for row in result.rows if row["f"] == "role"]


async def for_ever(_):
    await asyncio.Event().wait()


def test_without_its_lease_an_active_instance_goes_on_beside_its_successor_and_the_checkers_say_so(
    monkeypatch,
):
    monkeypatch.setattr(Lease, "run", for_ever)
    monkeypatch.setattr(Lease, "certain", lambda self: True)
    assert "split-brain" in run("nfs-disconnect", "a1", 7.0).grave


def test_an_active_instance_that_is_cut_off_ends_before_another_is_active():
    result = run("nfs-disconnect", "a1", 7.0)
    assert result.valid is True
    changes = lives(result)
    assert changes.index(("a1", "verifying")) < changes.index(("a2", "live"))
    assert ("a1", "stopped") in changes


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["qmgrs/QMA/active.lock", "logs/QMA/log.lock"])
def test_an_active_instance_that_loses_one_of_its_locks_ends(monkeypatch, lost):
    """Its file was deleted.

    Whoever comes next locks another one (AMQ-4705), and must wait for as long as the old lock may
    be believed in.
    """

    def delete(kernel, cut):
        if cut:
            kernel.server.remove(lost)

    monkeypatch.setattr(Kernel, "set_cut", delete)
    result = run("nfs-disconnect", "a1", 7.0)
    assert not result.grave
    changes = lives(result)
    assert ("a1", "stopped") in changes
    assert ("a2", "live") in changes
    waited = any("the store's lock file was lost: waiting 4 s" in line for line in result.logs["a2"])
    assert waited is (lost == "qmgrs/QMA/active.lock")
    assert len({row["node_id"] for row in result.rows if row["f"] == "role" and row["role"] == "live"}) == 1


def test_a_power_loss_is_taken_over_when_the_lease_runs_out():
    result = run("power-loss", "a1", 7.0)
    assert result.valid is True
    assert ("a2", "live") in lives(result)


@pytest.mark.slow
def test_a_switch_over_without_a_standby_instance_is_refused_and_ends_nothing():
    down = Fault(kind="kill", start_s=2.0, duration_s=6.0, target="a2")
    switch = Fault(kind="switch-over", start_s=3.0, duration_s=2.0, target="a1")
    result = simulate(msgspec.structs.replace(SPEC, seed=1), Schedule(faults=(down, switch)))
    assert result.valid is True
    assert ("a1", "stopped") not in lives(result)
    (told,) = [row for row in result.rows if row["f"] == "switch-over" and row["type"] == "info"]
    assert msgspec.json.decode(told["value"])["bit"] is False
    assert "cannot switch over: no standby instance runs" in told["error"]


@pytest.mark.slow
def test_a_switch_over_of_everybody_is_one_of_the_active_instance():
    result = run("switch-over", "all", 4.0)
    assert result.valid is True
    (told,) = [row for row in result.rows if row["f"] == "switch-over" and row["type"] == "info"]
    assert msgspec.json.decode(told["value"])["nodes"] == ["a1"]
    assert ("a2", "live") in lives(result)
    standing_by = run("switch-over", "a2", 4.0)
    (told,) = [row for row in standing_by.rows if row["f"] == "switch-over" and row["type"] == "info"]
    assert told["error"] == "a2 is not active now"


@pytest.mark.slow
def test_two_queue_managers_share_nothing():
    spec = msgspec.structs.replace(SPEC, pairs=2)
    fault = Fault(kind="kill", start_s=3.0, duration_s=4.0, target="a1")
    result = simulate(spec, Schedule(faults=(fault,)))
    assert result.valid is True
    assert ("a2", "live") in lives(result)
    assert ("b2", "live") not in lives(result)
    assert {lives(result)[0], lives(result)[1]} == {("a1", "live"), ("b1", "live")}  # the first to be started


def test_a_quiesced_queue_manager_serves_who_is_there_takes_in_nobody_and_ends_with_the_last():
    async def main(brokers):
        await brokers.start("a1", "live")
        await brokers.start("a2", "backup")
        client = await brokers.connect("a1")
        await brokers.ask("a1", "end", immediate=False)
        assert (await brokers.ask("a1", "status"))["status"] == "Quiescing"
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await brokers.connect("a1")
        await asyncio.sleep(1)  # less than a silent client is given
        assert await brokers.role("a1") == "live"
        client.close()
        assert await brokers.environment.wait_exit("a1") == 0
        assert await brokers.environment.wait_exit("a2") == 0
        assert any(
            "standby queue manager instance 'QMA' ended" in line
            for line in brokers.environment.logs.lines["a2"]
        )

    Brokers().run(main)


def test_an_end_that_cannot_wait_for_clients_is_made_immediate():
    async def main(brokers):
        await brokers.start("a1", "live")
        client = await brokers.connect("a1")
        await brokers.ask("a1", "end", immediate=False)
        await brokers.ask("a1", "end", immediate=True)
        assert await brokers.environment.wait_exit("a1") == 0
        client.close()

    Brokers().run(main)


@pytest.mark.parametrize(
    ("node", "arguments", "reason"),
    [
        (
            "a2",
            {"immediate": True},
            "active instance of queue manager 'QMA' not ended: this instance is the standby one",
        ),
        (
            "a1",
            {"standby-only": True},
            "standby instance of queue manager 'QMA' not ended: this instance is the active one",
        ),
        ("a1", {"immediate": "now"}, "to be true or false"),
    ],
)
def test_what_an_instance_is_not_it_cannot_end(node, arguments, reason):
    async def main(brokers):
        await brokers.start("a1", "live")
        await brokers.start("a2", "backup")
        with pytest.raises(OSError, match=reason):
            await brokers.ask(node, "end", **arguments)
        assert [await brokers.role(each) for each in ("a1", "a2")] == ["live", "backup"]

    Brokers().run(main)


def test_the_exit_status_of_a_fenced_instance_tells_it_from_one_that_was_ended():
    async def main(brokers):
        environment = brokers.environment
        await brokers.start("a1", "live")
        lease = await environment.inject("nfs-disconnect", nodes=("a1",))
        for _ in range(20):
            await asyncio.sleep(1)
            await environment.renew(lease)
            if not await environment.running("a1"):
                break
        assert await environment.wait_exit("a1") == EXIT_FENCED

    Brokers().run(main)


def test_its_display_names_both_instances_and_its_status_the_replay():
    async def main(brokers):
        await brokers.start("a1", "live")
        await brokers.start("a2", "backup")
        for node, status in (("a1", "Running"), ("a2", "Running as standby")):
            shown = await brokers.ask(node, "display")
            assert {name: shown[name] for name in ("queue-manager", "status", "standby", "instances")} == {
                "queue-manager": "QMA",
                "status": status,
                "standby": "Permitted",
                "instances": [{"name": "a1", "mode": "Active"}, {"name": "a2", "mode": "Standby"}],
            }
        replay = (await brokers.ask("a1", "status"))["log-replay"]
        assert (replay["records"], replay["messages"]) == (0, 0)

    Brokers().run(main)
