"""Policy shared-store on a database, in the simulation.

Who is live, who ends, and that without its fences the checkers see two lives.
"""

import asyncio

import msgspec
import pytest

from broker.policies.ownership.lease import Lease
from broker.storage.database import Statement
from broker.storage.database.locks import Holding, LiveOwner
from harness.claims.scenarios import named
from harness.interface import Fault, Schedule, UsageError
from harness.run.simulate import simulate

CUT_OFF = named("SS3-cut-off")
PAUSED = named("SS3-pause")


QUICK = {"hold_s": None, "prefetch": None, "operation_timeout_s": 5.0}
"""Clients that have answers while the store is away, and ask for none that need no store."""


def run(scenario, seed=1, faults=None, **changes):
    spec = msgspec.structs.replace(scenario.spec, **{"seed": seed, "rate": 20.0, **QUICK, **changes})
    return simulate(spec, scenario.schedule if faults is None else Schedule(faults=faults))


def roles(result):
    """(broker, role) as the monitor saw them change."""
    return [(row["broker"], row["role"]) for row in result.rows if row["f"] == "role"]


def logged(result, node, words):
    return [line for line in result.logs[node] if words in line]


def served_beside(result, f=None):
    """Answers of a1 while a2 was live: until the place of a1 in the line is seen, if it ever is."""
    seen = [(row["broker"], row["role"], row["time_high"]) for row in result.rows if row["f"] == "role"]
    since = min(time for broker, role, time in seen if (broker, role) == ("a2", "live"))
    until = [time for broker, role, time in seen if (broker, role) == ("a1", "backup") and time > since]
    return [
        row
        for row in result.rows
        if row["broker"] == "a1"
        and row["type"] == "ok"
        and f in (None, row["f"])
        and since < row["time"] < min(until, default=row["time"] + 1)
    ]


@pytest.mark.parametrize("rate", [0.6, 1.6])
def test_a_live_whose_clock_runs_at_another_speed_is_silent_before_another_is_live(rate):
    """It measures the time by its own clock, the database by another."""
    wrong = Fault(kind="clock-rate", start_s=1.0, duration_s=9.0, target="a1", options={"rate": rate})
    result = run(CUT_OFF, faults=(wrong, *CUT_OFF.schedule.faults))
    assert result.valid is True, (result.grave, result.trouble)
    changes = roles(result)
    assert changes.index(("a1", "verifying")) < changes.index(("a2", "live"))
    assert served_beside(result) == []


async def for_ever(_):
    await asyncio.Event().wait()


def without_lease(monkeypatch):
    """A live that believes for ever what the database said once."""
    monkeypatch.setattr(Lease, "run", for_ever)
    monkeypatch.setattr(Lease, "certain", lambda self: True)


def without_fence(monkeypatch):
    """Statements that name no epoch."""
    store = "WHERE cluster_id = ? AND place = ?"

    def prove(self):
        return Statement(
            f"UPDATE store_lock SET expires = clock_ms() + ? {store}",
            (self.expiration_ms, self.cluster_id, self.place),
        )

    monkeypatch.setattr(Holding, "prove", prove)
    monkeypatch.setattr(LiveOwner, "prove_batch", lambda self, before, after: prove(self.holding))


def test_a_live_that_is_cut_off_answers_nobody_before_another_is_live_and_ends():
    result = run(CUT_OFF)
    assert result.valid is True, (result.grave, result.trouble)
    changes = roles(result)
    assert changes.index(("a1", "verifying")) < changes.index(("a2", "live"))
    assert ("a1", "stopped") in changes
    assert served_beside(result) == []


def test_a_live_that_stood_still_past_its_lock_serves_nobody_when_it_goes_on():
    result = run(PAUSED)
    assert result.valid is True, (result.grave, result.trouble)
    assert logged(result, "a1", "the live lock is lost: somebody else has been given the live lock")
    assert served_beside(result) == []


def test_without_its_lease_a_live_stays_beside_its_successor_and_the_fence_alone_keeps_it_from_confirming(
    monkeypatch,
):
    """The checkers see two lives; what the old one says it cannot store, so it says nothing."""
    without_lease(monkeypatch)
    result = run(CUT_OFF)
    assert "split-brain" in result.grave
    assert "zombie" not in result.grave
    assert served_beside(result) == []
    assert logged(result, "a1", "is not the owner of its store any more")


def test_without_the_fence_a_zombie_confirms_what_its_successor_does_not_know_and_the_checkers_say_so(
    monkeypatch,
):
    without_lease(monkeypatch)
    without_fence(monkeypatch)
    result = run(CUT_OFF)
    assert {"split-brain", "zombie"} <= result.grave
    assert served_beside(result, "send")


def test_a_database_that_stands_still_for_less_than_the_lock_costs_nobody_his_place():
    result = run(named("SS3-stall"), faults=(Fault(kind="database-stall", start_s=3.0, duration_s=2.8),))
    assert result.valid is True, (result.grave, result.trouble)
    changes = [role for node, role in roles(result) if node == "a1"]
    assert changes[-4:-1] == ["live", "verifying", "live"] or changes[-3:] == ["live", "verifying", "live"]
    assert ("a2", "live") not in roles(result)


def test_connections_that_are_lost_during_commits_and_takeovers_lose_and_double_nothing():
    result = run(
        named("SS3-partition"),
        faults=(
            Fault(kind="database-disconnect", start_s=1.5, duration_s=5.0, target="all"),
            Fault(kind="kill", start_s=4.0, duration_s=6.0, target="a1"),
        ),
        time_limit_s=12.0,
    )
    assert logged(result, "a2", "life 2 of the shared store")
    assert result.valid is True, (result.grave, result.trouble)


@pytest.mark.slow
def test_of_several_backups_on_a_database_one_takes_over_and_the_next_gets_its_place():
    properties = {"store": {"type": "database", "backups": 2}}
    result = run(named("SS3-kill"), properties=properties)
    assert result.valid is True, (result.grave, result.trouble)
    live = {node for node, role in roles(result) if role == "live"} - {"a1"}
    assert len(live) == 1
    assert logged(result, *({"a2", "a3"} - live), "next in line")


def test_failover_on_shutdown_and_failback_are_the_same_on_a_database():
    stopped = (Fault(kind="stop", start_s=3.0, duration_s=3.0, target="a1"),)
    role = "ha-policy.shared-store."
    stays = {"store": {"type": "database"}, "*": {f"{role}failover-on-shutdown": False}}
    passive = run(named("SS3-kill"), faults=stopped, properties=stays, time_limit_s=8.0)
    assert passive.valid is True, (passive.grave, passive.trouble)
    assert ("a2", "live") not in roles(passive)
    moved = run(named("SS3-kill"), faults=stopped, time_limit_s=8.0)
    assert moved.valid is True, (moved.grave, moved.trouble)
    assert logged(moved, "a2", "failback: the master waits for its place")
    assert [node for node, role in roles(moved) if role == "live"] == ["a1", "a2", "a1"]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"store": {"type": "cloud"}}, "store:type=cloud: it must be directory or .*database"),
        ({"store": {"type": "database", "lease-ms": 1}}, "store:lease-ms is for a directory"),
        (
            {"*": {"ha-policy.shared-store.store": "database"}},
            "with --set store:type=database",
        ),
        (
            {"store": {"type": "database"}, "*": {"ha-policy.shared-store.lock-expiration": 9000}},
            "on a database it is database-store.lock-expiration",
        ),
    ],
)
def test_what_is_wrong_of_a_store_is_said_before_anything_starts(properties, message):
    with pytest.raises(UsageError, match=message):
        run(named("SS3-kill"), properties=properties)
