"""Disks of containers that break, on a real engine.

What the echo broker keeps in its file is what tells.
"""

import asyncio

import msgspec
import pytest
from docker_deployed import ROOT, SILENCE_S, SPEC, SYSTEM, begin
from docker_echo import BOUND_S, say, until

from environments.docker.environment import DockerEnvironment
from harness.interface import InfrastructureError, UsageError

pytestmark = pytest.mark.docker


async def on_disks(names, lease_s=600.0):
    environment = DockerEnvironment(lease_s=lease_s)
    nodes = tuple(msgspec.structs.replace(node, disk=True) for node in SYSTEM.plan(SPEC, names))
    await environment.deploy(SYSTEM, SPEC, nodes, ROOT)
    return environment


async def seen(environment, node):
    return (await environment.probe(nodes=[f"{node}/disk"])).observed[f"{node}/disk"]


def test_disks_of_containers_break_and_heal_on_the_node_itself():
    async def main():
        environment = await on_disks(("a1", "b1"))
        try:
            assert environment.supports()["power-loss"] == ""
            admin = environment.resolve("admin", "a1", "admin")
            assert await seen(environment, "a1") == "sound", "of a broker that was never started"
            for node in ("a1", "b1"):
                await begin(environment, node)
            assert await say(admin, "sync one") == "a1: one"
            assert await seen(environment, "a1") == "sound"

            lease = await environment.inject("disk-full", nodes=["a1"])
            assert await seen(environment, "a1") == "full"
            assert await seen(environment, "b1") == "sound"
            with pytest.raises((ConnectionResetError, TimeoutError)):  # the broker's write failed
                await say(admin, "keep two", SILENCE_S)
            await environment.heal(lease)
            assert await say(admin, "sync three") == "a1: one,three"

            with pytest.raises(UsageError, match="unknown option 'speed'"):
                await environment.inject("disk-slow", nodes=["a1"], options={"delay_ms": 5, "speed": 1})
            with pytest.raises(UsageError, match="the broker runs"):
                await environment.inject("disk-corrupt", nodes=["a1"])

            # Power: what was synced is there again, in a container that was started anew.
            assert await say(admin, "keep lost") == "a1: one,three,lost"
            await environment.inject("power-loss", nodes=["a1"])
            assert not await environment.running("a1")
            assert (await begin(environment, "a1")).startswith("a1: one,three")
            assert await seen(environment, "a1") == "sound"

            await environment.kill("b1")
            await environment.destroy_data("b1")
            await environment.inject("disk-slow", nodes=["b1"], options={"delay_ms": 20.0})
            assert (await seen(environment, "b1")).startswith("slow ")
            await environment.inject("power-loss", nodes=["b1"])
            with pytest.raises(InfrastructureError, match="the disk of b1 has nothing"):
                await environment.inject("disk-corrupt", nodes=["b1"])
            await environment.kill("a1")
            await environment.inject("disk-corrupt", nodes=["a1"])
            assert (await seen(environment, "a1")).startswith("damaged lines byte ")
        finally:
            await environment.teardown()

    asyncio.run(main())


def test_data_are_copied_between_disks_that_are_mounted():
    async def main():
        environment = await on_disks(("a1", "b1"))
        try:
            for node, word in (("a1", "copied"), ("b1", "own")):
                await begin(environment, node)
                await say(environment.resolve("admin", node, "admin"), f"keep {word}")
                await environment.terminate(node)
                await environment.wait_exit(node)
            await environment.copy_data("a1", "b1")
            assert [await begin(environment, node) for node in ("b1", "a1")] == ["b1: copied", "a1: copied"]
            await environment.inject("power-loss", nodes=["b1"])
            assert await begin(environment, "b1") == "b1: copied"
        finally:
            await environment.teardown()

    asyncio.run(main())


def test_a_stalled_disk_goes_on_when_nobody_renews_its_lease():
    async def main():
        environment = await on_disks(("a1",), lease_s=1.0)
        try:
            await begin(environment, "a1")
            await environment.inject("disk-stall", nodes=["a1"])
            # Its answer waits for the disk, and the disk for the end of the lease.
            answer = await say(environment.resolve("admin", "a1", "admin"), "sync late", BOUND_S)
            assert answer == "a1: late"
            await until(lambda: seen(environment, "a1"), "sound")
        finally:
            await environment.teardown()

    asyncio.run(main())
