"""Shared stores in containers.

A real server that is broken, clients that mount again, and nothing that stays.
"""

import asyncio

import pytest
from pair_on_nfs import Pair, goes_on_by_itself, suffers_what_can_be_done_to_a_store

from environments.docker.engine import RUN_LABEL, connect
from environments.docker.environment import DockerEnvironment

pytestmark = [pytest.mark.docker, pytest.mark.nfs]


def remains(run):
    client = connect()
    try:
        chosen = {"label": f"{RUN_LABEL}={run}"}
        things = (client.containers.list(all=True, filters=chosen), client.volumes.list(filters=chosen))
        return [thing.name for found in things for thing in found]
    finally:
        client.close()


def test_a_pair_in_containers_suffers_what_can_be_done_to_its_store_and_leaves_nothing(tmp_path):
    """It takes some 20 s: three machines start, and each fault is waited for until it is seen."""

    async def test():
        environment = DockerEnvironment(lease_s=600.0)
        pair = Pair(environment)
        try:
            await pair.begin(tmp_path)
            assert f"{environment.run}-store-a" in await asyncio.to_thread(remains, environment.run)
            (described,) = environment.describe_services().values()
            assert described == (
                "NFSv4 through FUSE, nfs-ganesha in a container, lease 4 s, grace 4 s, mounted hard"
            )
            await suffers_what_can_be_done_to_a_store(pair)
        finally:
            await environment.collect(tmp_path / "logs")
            await environment.teardown()
        assert await asyncio.to_thread(remains, environment.run) == []

    asyncio.run(test())
    assert "the lease was lost" in (tmp_path / "logs" / "a1" / "nfs-client.log").read_text()
    assert "NFS SERVER INITIALIZED" in (tmp_path / "logs" / "store-a" / "ganesha.log").read_text()


def test_a_machine_that_is_killed_and_started_mounts_again_even_if_its_server_is_silent_meanwhile(tmp_path):
    """It takes some 20 s: a lease of the server's silence runs out while the machine starts."""

    async def test():
        environment = DockerEnvironment(lease_s=6.0)
        pair = Pair(environment)
        try:
            await pair.begin(tmp_path)
            await environment.kill("a1")
            await pair.until("a2", "live")  # not before the lease of the machine that is gone has ended
            async with pair.broken("nfs-stall", "a2"):
                await environment.start("a1")
                # Its broker waits for the mount: without it, it would find an empty directory and
                # be live in it.
                assert await environment.running("a1")
                assert await pair.role("a1") == "unreachable"
            await pair.until("a1", "live", "backup")
            await goes_on_by_itself(pair)
        finally:
            await environment.collect(tmp_path / "logs")
            await environment.teardown()

    asyncio.run(test())
