"""Our own brokers in containers.

The image holds all they need, pairs form, and a backup takes over.
"""

import asyncio
from pathlib import Path

import pytest
from docker_echo import until

from environments.docker.environment import DockerEnvironment
from harness.interface import Link, TestSpec
from harness.systems.own.system import OwnSystem

pytestmark = [pytest.mark.docker, pytest.mark.cluster]


def test_three_pairs_replicate_and_a_backup_takes_over_from_a_live_that_was_killed_or_cut_off(tmp_path):
    """It takes some 20 s: six machines start, and votes take their time."""

    async def test():
        system = OwnSystem()
        spec = TestSpec(name="brokers", policy="replication", pairs=3)
        nodes = system.plan(spec)
        environment = DockerEnvironment(lease_s=60.0)
        await environment.deploy(system, spec, nodes, tmp_path)

        async def role(node):
            try:
                async with asyncio.timeout(10.0):  # a killed container is silent: nobody refuses for it
                    status = await system.status(environment.resolve("admin", node, "admin"))
            except (OSError, TimeoutError):
                return "unreachable"
            return status.role + (" replicating" if status.replicating else "")

        async def roles():
            return {node.name: await role(node.name) for node in nodes}

        try:
            async with asyncio.TaskGroup() as group:
                for node in nodes:
                    group.create_task(environment.start(node.name))
            planned = {
                node.name: "live replicating" if node.configured == "master" else "backup replicating"
                for node in nodes
            }
            await until(roles, planned, 180.0)

            await environment.kill("a1")
            await until(lambda: role("a2"), "live")

            others = [node.name for node in nodes if node.name not in ("a1", "b1")]
            ends = [Link("b1", other) for other in others] + [Link(other, "b1") for other in others]
            lease = await environment.inject("cut", links=ends)
            assert set((await environment.probe(ends)).observed.values()) == {"lost"}

            async def b2_is_live():
                await environment.renew(lease)
                return await role("b2")

            await until(b2_is_live, "live")
            # The one that was cut off must have noticed as well, or two would acknowledge.
            assert not (await role("b1")).startswith("live")
            await environment.heal(lease)
        finally:
            await environment.collect(tmp_path / "logs")
            await environment.teardown()
        assert "live as node" in Path(tmp_path / "logs" / "a2" / "broker.log").read_text()

    asyncio.run(test())
