"""Policy ha-database in the simulation.

Who takes over, what a zombie may do, and that without its fences the checkers see it.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from broker.policies.ha_database.watch import MemberWatch
from broker.policies.ownership.lease import Lease
from broker.storage.database import Statement
from broker.storage.database import journal as database_journal
from broker.storage.database.registry import Registered
from harness.claims.scenarios.ha_database import SCENARIOS
from harness.interface import Fault, Schedule, TestSpec
from harness.run.simulate import simulate

ROOT = Path(__file__).parents[3]
BY_ID = {scenario.id: scenario for scenario in SCENARIOS}


def run(scenario, seed=1, faults=None, **changes):
    """With little load: what is shown here is who does what, not how much of it."""
    spec = msgspec.structs.replace(scenario.spec, **{"seed": seed, "rate": 40.0, **changes})
    return simulate(spec, scenario.schedule if faults is None else Schedule(faults=faults))


def takeovers(simulated):
    """(taker, victim) of every completed takeover, in order of time."""
    lines = [
        (line.split(" ", 1)[0], node, line.partition("ha-database: ")[2].split(" ", 1)[0])
        for node, log in simulated.logs.items()
        for line in log
        if "is taken over with" in line
    ]
    return [(taker, victim) for _, taker, victim in sorted(lines)]


def logged(simulated, node, words):
    return [line for line in simulated.logs[node] if words in line]


# ----------------------------------------------------------------------------------------- takeover


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_of_several_takers_exactly_one_completes_the_takeover(seed):
    ran = run(BY_ID["HA2"], seed)
    assert [victim for _, victim in takeovers(ran)] == ["a1"]
    assert ran.valid, (ran.grave, ran.trouble)


@pytest.mark.slow
def test_when_the_taker_dies_half_way_another_one_completes_the_takeover():
    ran = run(BY_ID["HA5"])
    [(taker, _)] = [each for each in takeovers(ran) if each[1] == "a1"]
    begun = {node: logged(ran, node, "the takeover of a1 has begun") for node in ran.logs}
    assert sum(map(len, begun.values())) == 2
    assert begun[taker]
    [victim] = [node for node, lines in begun.items() if lines and node != taker]
    assert victim in [taken for _, taken in takeovers(ran)]
    assert ran.valid, (ran.grave, ran.trouble)


@pytest.mark.slow
def test_nobody_asks_for_what_a_living_taker_is_taking_over():
    """Bug 51: at every look each rival warned of it, and was refused."""
    ran = run(BY_ID["HA5"], faults=(Fault(kind="kill", start_s=3.0, target="a1"),))
    assert [victim for _, victim in takeovers(ran)] == ["a1"]
    assert not [line for node in ran.logs for line in logged(ran, node, "(TAKEOVER_STARTED) has been silent")]


def test_a_broker_that_stood_still_is_taken_over_and_begins_again_with_nothing():
    ran = run(BY_ID["HA4"])
    assert [victim for _, victim in takeovers(ran)] == ["a1"]
    assert logged(ran, "a1", "this broker answers no client any more")
    served = logged(ran, "a1", "serving as a1")
    assert len(served) == 2
    assert "1 store sessions" in served[1]
    assert ran.valid, (ran.grave, ran.trouble)


def test_a_broker_that_is_replaced_before_it_serves_begins_again(monkeypatch):
    """It looks through the bodies that its records name.

    What is somebody else's by then is not missing.
    """
    sweep = database_journal.DatabaseJournal.sweep
    replaced = []

    async def too_late(self):
        if not replaced and self._owner.broker_id == "a1":
            replaced.append(self._owner.epoch)
            await self._database.transact(
                [Statement("UPDATE store_broker SET epoch = epoch + 1 WHERE broker_id = 'a1'", count=1)], 5.0
            )
        await sweep(self)

    monkeypatch.setattr(database_journal.DatabaseJournal, "sweep", too_late)
    ran = run(BY_ID["HA1"], faults=())
    [served] = logged(ran, "a1", "serving as a1")
    assert f"epoch {replaced[0] + 2}" in served
    assert ran.valid, (ran.grave, ran.trouble)


def test_a_broker_that_is_only_cut_off_from_the_others_is_not_taken_over():
    """Its row in the store goes on changing: the links' silence alone proves nothing."""
    ran = run(BY_ID["HA1"], faults=(Fault(kind="partition", start_s=3.0, duration_s=6.0, shape="halves"),))
    assert takeovers(ran) == []
    assert ran.valid, (ran.grave, ran.trouble)


def test_while_the_database_is_away_nobody_is_taken_over():
    assert takeovers(run(BY_ID["HA11-stall"])) == []


@pytest.mark.slow
def test_nofailover_leaves_the_messages_to_the_brokers_own_restart():
    assert takeovers(run(BY_ID["HA6-false"])) == []
    assert [victim for _, victim in takeovers(run(BY_ID["HA6-true"]))] == ["a1"]


def test_what_was_pending_is_served_by_the_taker_before_the_producers_of_its_groups_are_let_in():
    """Clients of the failed broker are turned away until its messages are there: order is kept."""
    ran = run(BY_ID["HA1"])
    [(taker, _)] = takeovers(ran)
    turned_away = [
        row for row in ran.rows if row["f"] == "connect" and "is not served here" in (row["error"] or "")
    ]
    assert turned_away
    after = {row["broker"] for row in ran.rows if row["f"] == "send" and row["type"] == "ok"}
    assert taker in after
    assert ran.valid, (ran.grave, ran.trouble)


# ----------------------------------------------------------------------------------- without fences

CUT_OFF = Fault(
    kind="database-disconnect",
    start_s=3.0,
    duration_s=6.0,
    target="a1",
    options={"chance": 1.0, "committed": 0.0},
)
"""One broker cannot reach the database, and everybody else can."""

HASTE = {
    "rate": 20.0,
    "hold_s": 0.5,
    "prefetch": 1,
    "properties": {"*": {"database-store.lock-renew-period": 200, "database-store.lock-expiration": 800}},
}
"""Consumers that are slower than producers, so that a broker has messages to deliver when it is
taken over.
"""


def delivered_by_a_victim(ran):
    """Deliveries by a1 from its takeover on, until it serves again."""
    [taken_s] = [
        float(line.split(" ", 1)[0][17:23])
        for log in ran.logs.values()
        for line in log
        if "a1 is taken over" in line
    ]
    again_s = float(logged(ran, "a1", "serving as a1")[-1].split(" ", 1)[0][17:23])
    assert taken_s < again_s
    return [
        row
        for row in ran.rows
        if row["f"] == "deliver" and row["broker"] == "a1" and taken_s < row["time"] / 1e9 < again_s
    ]


def without_leases(monkeypatch):
    """A broker renews its lease, and serves on however long that takes."""
    monkeypatch.setattr(Lease, "_stale", lambda self: False)
    monkeypatch.setattr(Lease, "_end_s", lambda self: self._asked_s + 3600.0)


@pytest.mark.slow
def test_without_leases_a_cut_off_broker_delivers_what_its_taker_delivers_too(monkeypatch):
    without_leases(monkeypatch)
    monkeypatch.setattr(MemberWatch, "suspects", lambda self, address: True)
    assert delivered_by_a_victim(run(BY_ID["HA1"], faults=(CUT_OFF,), **HASTE))


def test_with_its_lease_a_cut_off_broker_delivers_nothing_once_it_may_be_taken_over():
    ran = run(BY_ID["HA1"], faults=(CUT_OFF,), **HASTE)
    assert delivered_by_a_victim(ran) == []
    assert ran.valid, (ran.grave, ran.trouble)


def test_without_epochs_in_its_proofs_a_replaced_broker_goes_on_writing_and_serving(monkeypatch):
    def unproved(registered, *_):
        return Statement(
            "UPDATE store_broker SET heartbeat = clock_ms() WHERE cluster_id = ? AND broker_id = ?",
            (registered.cluster_id, registered.broker_id),
        )

    monkeypatch.setattr(Registered, "prove", unproved)
    monkeypatch.setattr(Registered, "prove_batch", unproved)
    without_leases(monkeypatch)
    ran = run(BY_ID["HA4"], hold_s=1.0, prefetch=1)
    assert [victim for _, victim in takeovers(ran)] == ["a1"]
    assert ran.grave, "a zombie served and nobody noticed"


# --------------------------------------------------------------------------------------- repeatable

COURSE = """
from harness.interface import TestSpec
from harness.run.simulate import simulate
spec = TestSpec(name="course", policy="ha-database", pairs=3, seed=11, time_limit_s=9.0, rate=60.0,
    interval_s=1.0, duration_s=4.0, nemeses=("kill", "database-stall", "database-disconnect"), hold_s=0.1)
ran = simulate(spec, judge=False)
print(ran.digest, ran.trace_digest, len(ran.recorded))
"""


@pytest.mark.slow
def test_one_seed_gives_one_history_in_every_process():
    told = {
        subprocess.run(
            [sys.executable, "-c", COURSE],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert int(told.pop().split()[2]) > 100


def test_faults_of_a_database_are_refused_where_there_is_none():
    from harness.interface import UsageError

    spec = TestSpec(
        name="none", policy="replication", pairs=1, nemeses=("database-stall",), time_limit_s=20.0
    )
    with pytest.raises(UsageError, match="--policy ha-database"):
        simulate(spec)
