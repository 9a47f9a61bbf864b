"""PostgreSQL in the docker environment.

A container of the run's own that breaks as it should, heals by itself, and is removed with the run.
"""

import asyncio

import pytest
from database_deployed import (
    NODES,
    PATIENCE_S,
    SPEC,
    StandBy,
    kept,
    put,
    the_three_faults,
    until_seen,
)

from environments.docker import clean
from environments.docker.engine import RUN_LABEL, connect
from environments.docker.environment import DockerEnvironment
from harness.interface import DatabasePlan, NodePlan, UsageError

pytestmark = [pytest.mark.docker, pytest.mark.database_server]


def run(test, lease_s=600.0):
    async def main():
        environment, system = DockerEnvironment(lease_s=lease_s), StandBy()
        await environment.deploy(system, SPEC, NODES, None)
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                await test(environment, system)
        finally:
            await environment.teardown()
        return environment

    return asyncio.run(main())


def test_a_server_in_a_container_breaks_and_heals_as_it_should_and_is_removed_with_the_run(tmp_path):
    """It takes some 20 s: a server starts twice, and each fault is waited for until it is seen."""

    async def test(environment, system):
        variables = environment._database.variables()
        machines = environment._deployment.machines
        # The client of this test is this host: for as long as it speaks as a1, the relay must know
        # a1 by the host's address, and nobody asks a1's own agent.
        a1 = machines["a1"]
        own, a1.machine.address, a1.up = a1.address, _gateway(a1.address), False
        await the_three_faults(environment, system, variables)
        a1.machine.address, a1.up = own, True

        options = {"chance": 1.0, "committed": 0.0}
        lease = await environment.inject("database-disconnect", nodes=["a1"], options=options)
        await until_seen(environment, "severed", "serving")
        assert await put(system, "b1", variables, 5) == "committed"
        await environment.heal(lease)
        await until_seen(environment, "serving", "serving")
        assert 5 in await kept(system, "b1", variables)
        await environment.collect(tmp_path)

    environment = run(test)
    log = (tmp_path / "database" / "postgresql.log").read_text()
    assert log.count("database system is ready to accept connections") == 2
    client = connect()
    try:
        chosen = {"label": f"{RUN_LABEL}={environment.run}"}
        assert client.containers.list(all=True, filters=chosen) == []
        assert client.volumes.list(filters=chosen) == []
    finally:
        client.close()


def test_faults_that_nobody_renews_end_by_themselves_and_clean_knows_the_container(tmp_path):
    """It takes some 20 s: leases run out, and a server starts twice."""

    async def test(environment, system):
        for primitive, options in (
            ("database-stall", {}),
            ("database-restart", {}),
            ("database-disconnect", {"chance": 1.0, "committed": 0.0}),
        ):
            await environment.inject(primitive, nodes=["a1", "b1"], options=options)
        async with asyncio.timeout(PATIENCE_S):
            while not await _all_ended(environment, tmp_path):
                await asyncio.sleep(0.2)
        await until_seen(environment, "serving", "serving")
        lines = await asyncio.to_thread(clean.leftovers, force=True)
        assert any(f"{environment.run}-database" in line for line in lines if environment.run in line)

    run(test, lease_s=2.0)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("sqlite", "containers do not share a file of SQLite: leave --set database:type out"),
        ("postgresql", ""),
        ("", ""),
    ],
)
def test_a_file_of_sqlite_is_refused_by_name_and_a_server_is_what_there_is(kind, words):
    plan = DatabasePlan(type=kind)
    node = NodePlan(name="a1", pair="a", configured="member", ports={}, database=plan)
    assert DockerEnvironment().refuses([node]).startswith(words)
    assert bool(DockerEnvironment().refuses([node])) == bool(words)


def test_a_fault_of_the_database_is_refused_where_no_broker_has_one():
    node = NodePlan(name="a1", pair="a", configured="member", ports={})

    async def test():
        environment = DockerEnvironment()
        environment._deployment.machines["a1"] = environment._deployment.nodes["a1"] = None
        environment._database.plan([node])
        with pytest.raises(UsageError, match="a1 has no database here; use --policy ha-database"):
            await environment.inject("database-stall", nodes=["a1"])

    asyncio.run(test())


async def _all_ended(environment, directory):
    """Whether each of the agents has said that it ended what nobody renewed."""
    await environment.collect(directory)
    ended = "was not renewed, healed"
    said = [(directory / name / "agent.log").read_text().count(ended) for name in ("database", "a1", "b1")]
    return said == [3, 1, 1]


def _gateway(address):
    """Where this host's connections come from in a container's network."""
    return f"{address.rpartition('.')[0]}.1"
