"""Without its fences the policy has two lives, and the checkers see them.

With them a broker ends that cannot be sure.
"""

import asyncio

import msgspec
import pytest

from broker.policies.ownership.lease import Lease
from broker.policies.shared_store import EXIT_FENCED, lockfile
from environments.simulation.kernel import Kernel
from environments.simulation.mount import SimulatedMount
from harness.claims.scenarios import named
from harness.interface import Fault, Schedule
from harness.run.simulate import simulate

SPEC = named("SS9").spec
DISCONNECTED = Schedule(faults=(Fault(kind="nfs-disconnect", start_s=3.0, duration_s=7.0, target="a1"),))


def run(schedule=DISCONNECTED, seed=1, **changes):
    return simulate(msgspec.structs.replace(SPEC, seed=seed, **changes), schedule)


def lives(result):
    """(broker, role) as the monitor saw them change."""
    return [(row["broker"], row["role"]) for row in result.rows if row["f"] == "role"]


def test_a_live_that_is_cut_off_from_its_store_ends_itself_before_another_is_live():
    result = run()
    assert result.valid is True
    changes = lives(result)
    doubt, other = changes.index(("a1", "verifying")), changes.index(("a2", "live"))
    assert doubt < other
    assert ("a1", "stopped") in changes
    assert any("this broker answers no client any more" in line for line in result.logs["a1"])


async def for_ever(_):
    await asyncio.Event().wait()


def test_without_its_lease_a_live_goes_on_beside_its_successor_and_the_checkers_say_so(monkeypatch):
    monkeypatch.setattr(Lease, "run", for_ever)
    monkeypatch.setattr(Lease, "certain", lambda self: True)
    assert "split-brain" in run().grave


def test_with_a_store_that_fences_nobody_either_the_zombie_answers_and_the_checkers_say_so(monkeypatch):
    """The old live's store comes back and takes what it writes, into its own life.

    It acknowledges what nobody will ever read.
    """
    monkeypatch.setattr(Lease, "run", for_ever)
    monkeypatch.setattr(Lease, "certain", lambda self: True)
    monkeypatch.setattr(SimulatedMount, "current", lambda self, path, generation: None)
    found = set().union(*(run(seed=seed).grave for seed in (1, 2)))
    assert "split-brain" in found
    assert found & {"zombie", "lost"}


@pytest.mark.slow
def test_a_store_whose_locks_exclude_nobody_is_noticed(monkeypatch):
    """A file system without working locks: every broker is live."""

    async def anybody(self, path, offset):
        self.server.locks.pop((path, offset), None)
        return await take(self, path, offset)

    take = SimulatedMount.try_lock
    monkeypatch.setattr(SimulatedMount, "try_lock", anybody)
    result = run(Schedule(faults=(Fault(kind="kill", start_s=3.0, duration_s=1.0, target="a2"),)))
    assert result.valid is not True


@pytest.mark.parametrize("kind", ["nfs-stall", "nfs-disconnect", "nfs-restart"])
def test_each_fault_of_a_store_is_seen_to_bite_and_to_heal(kind):
    result = run(Schedule(faults=(Fault(kind=kind, start_s=2.0, duration_s=1.0, target="a1"),)))
    assert result.valid is True
    observed = {
        row["f"]: msgspec.json.decode(row["value"])
        for row in result.rows
        if row["f"].endswith(kind) and row["type"] == "info"
    }
    assert observed[kind]["bit"] is True
    assert set(observed[kind]["observed"].values()) == {"silent"}
    assert observed[f"heal:{kind}"]["bit"] is True
    both = kind != "nfs-disconnect"
    assert observed[kind]["nodes"] == (["a1", "a2"] if both else ["a1"])


@pytest.mark.slow
def test_a_killed_machine_releases_its_lock_only_when_its_lease_runs_out():
    """After a kill the kernel unlocks; after a loss of power there is no kernel."""

    def takeover_s(kind):
        result = run(Schedule(faults=(Fault(kind=kind, start_s=3.0, duration_s=7.0, target="a1"),)))
        assert result.valid is True
        load = next(row["time"] for row in result.rows if row["f"] == "phase" and row["value"] == "load")
        live = next(
            row["time_high"]
            for row in result.rows
            if row["f"] == "role" and (row["broker"], row["role"]) == ("a2", "live")
        )
        return (live - load) / 1e9 - 3

    assert takeover_s("kill") < 1
    assert 2.5 < takeover_s("power-loss") < 5


def test_the_exit_status_of_a_fenced_broker_is_that_of_a_lost_vote():
    from broker.policies.replication import EXIT_VOTE_LOST

    assert EXIT_FENCED == EXIT_VOTE_LOST == 3


def test_a_paused_live_keeps_its_lock_and_asks_before_it_goes_on():
    """Its kernel renews meanwhile.

    Nobody takes over, and nothing is answered before the store has confirmed the lock.
    """
    result = run(Schedule(faults=(Fault(kind="pause", start_s=3.0, duration_s=6.0, target="a1"),)))
    assert result.valid is True
    changes = [change for change in lives(result) if change[0] == "a1"]
    assert ("a2", "live") not in lives(result)
    assert changes[-1][1] in ("live", "stopped")
    assert any("the store has confirmed the live lock again" in line for line in result.logs["a1"])


def test_a_broker_calls_itself_live_before_it_serves_however_slow_its_store_is():
    slow = Fault(kind="disk-slow", start_s=2.0, duration_s=8.0, target="all", options={"delay_ms": 150})
    result = run(
        Schedule(faults=(slow, Fault(kind="kill", start_s=3.0, duration_s=7.0, target="a1"))),
        time_limit_s=11.0,
    )
    assert result.valid is True
    served = [row["time"] for row in result.rows if row["broker"] == "a2" and row["type"] == "ok"]
    live = [row["time_high"] for row in result.rows if (row["broker"], row["role"]) == ("a2", "live")]
    assert min(served) > live[0] - 70_000_000  # the monitor looks every 70 ms


@pytest.mark.slow
def test_a_live_whose_lock_file_is_deleted_ends_itself(monkeypatch):
    """AMQ-4705: whoever comes next locks another file.

    The live learns of it when it has its lock confirmed.
    """

    def delete(kernel, cut):
        if cut:
            kernel.server.remove(lockfile.PATH)

    monkeypatch.setattr(Kernel, "set_cut", delete)
    result = run()
    assert not result.grave
    changes = lives(result)
    assert ("a1", "stopped") in changes
    assert ("a2", "live") not in changes  # nothing says that anybody was ever live here
    again = [line for line in result.logs["a1"] if "the store's lock file was lost" in line]
    assert len(again) == 1
    assert changes.count(("a1", "live")) == 2
    assert len({row["node_id"] for row in result.rows if row["f"] == "role" and row["role"] == "live"}) == 1


def test_after_the_loss_of_the_lock_file_the_lease_of_whoever_held_it_is_waited_for(monkeypatch):
    """A master that is started at once would be live beside the old one, until that one asks
    again.
    """
    end = Kernel.process_ended

    def lose_the_file(kernel, chance):
        kernel.server.remove(lockfile.PATH)
        end(kernel, chance)

    monkeypatch.setattr(Kernel, "process_ended", lose_the_file)
    result = run(Schedule(faults=(Fault(kind="kill", start_s=3.0, duration_s=1.0, target="a1"),)))
    assert result.valid is True
    started, live = (
        max(row["time_high"] for row in result.rows if (row["broker"], row["role"]) == ("a1", role))
        for role in ("starting", "live")
    )
    assert live - started > 3_500_000_000
