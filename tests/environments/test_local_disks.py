"""Disks of local brokers that break.

Each fault is seen where it is, heals by its lease, and leaves no mount behind.
"""

import asyncio
import contextlib
import os
import signal

import msgspec
import pytest
import uvloop
from echo_system import NODES, PATIENCE_S, SPEC, EchoSystem, until

from environments.local import clean
from environments.local.environment import LocalEnvironment
from filesystems.fuse import device as fuse_device
from harness.interface import InfrastructureError, UsageError

pytestmark = [pytest.mark.cluster, pytest.mark.fuse, pytest.mark.usefixtures("state_home")]

ON_DISKS = tuple(msgspec.structs.replace(node, disk=True) for node in NODES)


@contextlib.asynccontextmanager
async def deployed(tmp_path, *, nodes=ON_DISKS, lease_s=PATIENCE_S):
    environment = LocalEnvironment(lease_s=lease_s)
    await environment.deploy(EchoSystem(), SPEC, nodes, tmp_path / "run")
    try:
        yield environment
    finally:
        await environment.teardown()


async def seen(environment, *names):
    found = (await environment.probe(nodes=[f"{name}/disk" for name in names])).observed
    return [found[f"{name}/disk"] for name in names]


def data_of(tmp_path, node):
    return tmp_path / "run" / "nodes" / node / "data"


def written(path, data, *, sync):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, data)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def test_faults_of_disks_overlap_and_heal_one_by_one(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            assert environment.supports()["disk-full"] == ""
            assert await seen(environment, "a1", "b1") == ["sound", "sound"]
            full = await environment.inject("disk-full", nodes=["a1"])
            stalled = await environment.inject("disk-stall", nodes=["a1", "b1"])
            assert await seen(environment, "b1") == ["stalled"]
            await environment.heal(stalled)
            assert await seen(environment, "a1", "b1") == ["full", "sound"]
            with pytest.raises(OSError, match="No space left"):
                await asyncio.to_thread(written, data_of(tmp_path, "a1") / "x", b"1", sync=False)
            await environment.heal(full)
            assert await seen(environment, "a1") == ["sound"]
            failing = await environment.inject("disk-error", nodes=["b1"], options={"operation": "write"})
            assert await seen(environment, "b1") == ["failing write"]
            await environment.heal(failing)
            slow = await environment.inject("disk-slow", nodes=["b1"], options={"delay_ms": 30})
            assert (await seen(environment, "b1"))[0].startswith("slow ")
            await environment.heal(slow)
            with pytest.raises(UsageError, match="unknown option 'speed'"):
                await environment.inject("disk-full", nodes=["a1"], options={"speed": 1})

    uvloop.run(main())
    assert not (tmp_path / "run" / "nodes").exists()


def test_a_fault_that_nobody_renews_heals_itself(tmp_path):
    async def main():
        async with deployed(tmp_path, lease_s=0.3) as environment:
            await environment.inject("disk-stall", nodes=["a1"])
            # No renewal: what waits for the disk goes on by itself.
            await asyncio.to_thread(written, data_of(tmp_path, "a1") / "x", b"late", sync=True)
            assert await seen(environment, "a1") == ["sound"]

    uvloop.run(main())


def test_the_power_goes_out_for_running_brokers_and_takes_what_was_not_synced(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            for node in ("a1", "b1"):
                await environment.start(node)
            files = [data_of(tmp_path, node) / "journal" for node in ("a1", "b1")]
            for file in files:
                await asyncio.to_thread(written, file, b"s" * 4096, sync=True)
                await asyncio.to_thread(written, file, b"u" * 100_000, sync=False)
            await environment.inject("power-loss", nodes=["a1", "b1"])
            assert not await environment.running("a1")
            assert not await environment.running("b1")
            for file in files:
                left = await asyncio.to_thread(file.read_bytes)
                assert left[:4096] == b"s" * 4096
                assert left[4096:] != b"u" * 100_000

    uvloop.run(main())


def test_bits_are_flipped_under_stopped_brokers_only(tmp_path):
    async def main():
        async with deployed(tmp_path) as environment:
            with pytest.raises(InfrastructureError, match="the disk of a1 has nothing"):
                await environment.inject("disk-corrupt", nodes=["a1"])
            await asyncio.to_thread(written, data_of(tmp_path, "a1") / "x", bytes(100), sync=True)
            await environment.start("a1")
            with pytest.raises(UsageError, match="a1 is running"):
                await environment.inject("disk-corrupt", nodes=["a1"])
            await environment.kill("a1")
            with pytest.raises(UsageError, match="disk-corrupt: .*unknown field bits"):
                await environment.inject("disk-corrupt", nodes=["a1"], options={"bits": 2})
            await environment.inject("disk-corrupt", nodes=["a1"], options={"files": "x"})
            assert (await seen(environment, "a1"))[0].startswith("damaged x byte ")
            await environment.inject("disk-corrupt", nodes=["a1"], options={"cut": True})
            assert (await seen(environment, "a1"))[0].startswith("damaged x cut to ")
            await environment.destroy_data("a1")
            assert await seen(environment, "a1") == ["sound"]

    uvloop.run(main())


def test_a_node_without_such_a_disk_says_so(tmp_path):
    async def main():
        async with deployed(tmp_path, nodes=NODES) as environment:
            with pytest.raises(UsageError, match="a1 uses this machine's own disk"):
                await environment.inject("disk-full", nodes=["a1"])

    uvloop.run(main())


def test_no_mount_is_left_behind_when_agent_and_disks_are_killed(tmp_path):
    async def main():
        environment = LocalEnvironment()
        await environment.deploy(EchoSystem(), SPEC, ON_DISKS, tmp_path / "run")
        data = data_of(tmp_path, "a1")
        assert fuse_device.connection(data) is not None
        state = environment._state
        for process in clean._processes_of(state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await until(lambda: not clean._processes_of(state), "they are gone")
        await environment.teardown()
        assert fuse_device.connection(data) is None
        assert not (tmp_path / "run" / "nodes").exists()

    uvloop.run(main())
