"""What administrators do to brokers that share a database, under load in the simulation.

Quiesce, takeover by force, shutdown without failover.
"""

import msgspec
import pytest
from database_places import SimulatedPlace

from broker.storage.database import registry, schema
from harness.claims.scenarios.ha_database import SCENARIOS
from harness.interface import Fault, Schedule
from harness.run.simulate import simulate

BY_ID = {scenario.id: scenario for scenario in SCENARIOS}


def run(identifier, *faults, seed=1, **changes):
    scenario = BY_ID[identifier]
    spec = msgspec.structs.replace(scenario.spec, **{"seed": seed, **changes})
    return simulate(spec, Schedule(faults=faults) if faults else scenario.schedule)


def logged(simulated, node, words):
    """Seconds since the start at which a line with these words was written."""
    return [float(line.split(" ", 1)[0][17:23]) for line in simulated.logs[node] if words in line]


def takeovers(simulated):
    return [node for node in simulated.logs if logged(simulated, node, "is taken over with")]


def rows(simulated, low_s, high_s, broker, f):
    return [
        row
        for row in simulated.rows
        if row["f"] == f and row["broker"] == broker and low_s < row["time"] / 1e9 < high_s
    ]


@pytest.mark.slow
def test_a_quiesced_broker_serves_old_connections_refuses_new_ones_and_is_not_taken_over():
    ran = run("HA7-load")
    assert ran.valid, (ran.grave, ran.trouble)
    assert takeovers(ran) == []
    begun, ended = 3.2, 8.0
    assert any(row["type"] == "ok" for row in rows(ran, begun, ended, "a1", "send"))
    assert rows(ran, begun, ended, "a1", "deliver")
    refused = [
        row
        for row in ran.rows
        if row["f"] == "connect"
        and "quiescing: it takes no new connections" in (row["error"] or "")
        and begun < row["time"] / 1e9
    ]
    assert refused
    let_in = [row for row in rows(ran, begun, ended, "a1", "connect") if row["type"] == "ok"]
    assert let_in == []
    assert [row for row in rows(ran, 8.5, 30.0, "a1", "connect") if row["type"] == "ok"]


@pytest.mark.slow
def test_a_broker_that_is_taken_over_by_force_delivers_nothing_of_it_afterwards():
    ran = run("HA6-forced")
    assert ran.valid, (ran.grave, ran.trouble)
    assert takeovers(ran) == ["b1"]
    [taken_s] = logged(ran, "b1", "a1 is taken over with")
    again_s = logged(ran, "a1", "serving as a1")[-1]
    assert logged(ran, "a1", "this broker answers no client any more")
    assert rows(ran, taken_s, again_s, "a1", "deliver") == []


PAUSE = Fault(kind="pause", start_s=3.0, duration_s=0.6, target="a1")
FORCE = Fault(kind="takeover", start_s=3.05, duration_s=1.0, target="a1", options={"taker": "b1"})
BACKLOG = {"hold_s": 0.2, "prefetch": 1, "rate": 100.0, "producers": 9, "consumers": 9}
"""Every consumer of the paused broker acknowledges meanwhile, and is given its next message the
moment the broker goes on.
"""


def delivered_late(ran):
    """Deliveries by a1 after its messages had become the taker's, and before it began again."""
    [taken_s] = logged(ran, "b1", "a1 is taken over with")
    return rows(ran, taken_s, logged(ran, "a1", "serving as a1")[-1], "a1", "deliver")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.slow
def test_a_paused_broker_that_is_taken_over_by_force_steps_aside_before_its_messages_are_the_takers(seed):
    """Bug 30: its lease still runs when it goes on, so it delivered what the taker had delivered
    and had acknowledged.
    """
    ran = run("HA6-forced", PAUSE, FORCE, seed=seed, **BACKLOG)
    assert delivered_late(ran) == []
    assert logged(ran, "b1", "a1 is taken over with")[0] > 3.6
    assert ran.valid, (ran.grave, ran.trouble)


@pytest.mark.slow
def test_a_taker_that_waits_for_no_lease_lets_two_brokers_deliver_the_same(monkeypatch):
    """What the test above rests on: without the wait, it can be seen."""
    monkeypatch.setattr(schema, "YIELDED", 0)
    assert delivered_late(run("HA6-forced", PAUSE, FORCE, seed=1, **BACKLOG))


def on_rows(test):
    place = SimulatedPlace()

    async def main():
        database = place.open()
        mine = registry.Registry(database, "test", "a1", expiration_ms=60_000, timeout_s=30.0)
        await mine.create()
        registered = await mine.register("a1:61616")
        try:
            await test(mine, registered)
        finally:
            await database.close()

    place.run(main)


@pytest.mark.parametrize(
    "state", [schema.SHUTDOWN_STARTED, schema.SHUTDOWN_COMPLETE, schema.SHUTDOWN_FAILOVER]
)
def test_a_shutdown_has_the_last_word_over_a_quiesce_that_completes(state):
    """Bug 29: a broker that was quiesced and shut down with -nofailover could be left as one
    that runs, and be taken over.
    """

    async def test(mine, registered):
        await mine.become(registered, schema.QUIESCING)
        await mine.become(registered, state)
        with pytest.raises(registry.RowChangedError, match=f"a1 is {state}"):
            await mine.become(
                registered, schema.QUIESCE_COMPLETE, since=(schema.QUIESCING, schema.QUIESCE_COMPLETE)
            )
        assert (await mine.row("a1")).state == state

    on_rows(test)


def test_a_takeover_by_force_is_complete_only_when_the_lease_has_run_out_or_the_victim_has_stepped_aside():
    place = SimulatedPlace()

    async def main():
        databases = [place.open(name) for name in ("a1", "b1")]
        victim, taker = (
            registry.Registry(database, "test", name, expiration_ms=60_000, timeout_s=30.0)
            for database, name in zip(databases, ("a1", "b1"), strict=True)
        )
        await victim.create()
        replaced, taking = await victim.register("a1:61616"), await taker.register("b1:61616")
        epoch = await taker.begin_takeover(taking, await taker.row("a1"), forced=True)
        with pytest.raises(registry.RowChangedError):
            await taker.complete_takeover(taking, "a1", epoch)
        await victim.step_aside(replaced.epoch - 1)  # of an older life: says nothing of this one
        with pytest.raises(registry.RowChangedError):
            await taker.complete_takeover(taking, "a1", epoch)
        await victim.step_aside(replaced.epoch)
        await taker.complete_takeover(taking, "a1", epoch)
        for database in databases:
            await database.close()

    place.run(main)
