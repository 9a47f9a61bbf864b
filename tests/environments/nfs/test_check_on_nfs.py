"""``brokerctl check-filesystem`` on real NFS mounts of two hosts.

The recommended options pass, and bad mounts are recognised by name.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from nfs_store import SAFE

from filesystems.fuse import device as fuse_device

pytestmark = pytest.mark.nfs

BAD_MOUNT = Path(__file__).with_name("bad_mount.py")


async def check(directory, *options):
    """(exit status, names of failed tests)"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "broker.ctl", "--json", "check-filesystem", str(directory), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await process.communicate()
    tests = json.loads(said)["tests"]
    return process.returncode, {test["test"] for test in tests if not test["passed"]}, len(tests)


async def check_both(here, names):
    return await asyncio.gather(*(check(here.directory / name, "-c") for name in names))


def test_the_recommended_options_pass_every_test_on_one_host_and_on_two(store, run):
    async def scenario():
        for name in ("a", "b"):
            await store.host(name, f"hard,intr,{SAFE}")
        assert await check(store.directory / "a") == (0, set(), 14)
        assert await check_both(store, ("a", "b")) == [(0, set(), 8)] * 2
        assert list(store.server.options.directory.iterdir()) == []

    run(scenario())


def test_a_mount_that_caches_attributes_is_recognised(store, run):
    async def scenario():
        for name in ("a", "b"):
            await store.host(name, "hard,sync,actimeo=3600")
        for status, failed, _ in await check_both(store, ("a", "b")):
            assert status == 1
            assert "fresh-attributes" in failed

    run(scenario())


@pytest.mark.parametrize(
    ("way", "expected"), [("local-locks", "lock-denied-to-the-other-host"), ("lying-sync", "sync-is-seen")]
)
def test_a_mount_that_deceives_is_recognised(store, run, way, expected):
    async def scenario():
        mounts = []
        try:
            for name in ("a", "b"):
                directory = store.directory / name
                directory.mkdir()
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *(str(BAD_MOUNT), way, f"127.0.0.1:{store.server.options.port}/store", str(directory)),
                    *("-o", f"hard,{SAFE}"),
                    stdout=asyncio.subprocess.PIPE,
                )
                mounts.append((process, directory))
                assert (await process.stdout.readline()).startswith(b"mounted ")
            for status, failed, _ in await check_both(store, ("a", "b")):
                assert status == 1
                assert expected in failed
        finally:
            for process, directory in mounts:
                process.terminate()
                await process.wait()
                assert fuse_device.connection(directory) is None

    run(scenario())
