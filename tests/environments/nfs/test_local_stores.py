"""Shared stores on processes.

A real server that is broken, a client for each broker, and nothing that stays, whoever is killed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from pair_on_nfs import BOUND_S, Pair, suffers_what_can_be_done_to_a_store

from environments.labels import NOTE, STATE_DIR
from environments.local import clean, state
from environments.local.environment import LocalEnvironment

pytestmark = [pytest.mark.cluster, pytest.mark.nfs]

HARNESS = Path(__file__).with_name("abandoned_pair.py")
WRITER = Path(__file__).with_name("unsynced_writer.py")


@pytest.fixture(autouse=True)
def everything_ends(state_home):
    """Whatever a failing test leaves behind."""
    yield
    clean.remove(force=True)


def processes_of(state_home):
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours = process.environ().get(STATE_DIR, "").startswith(str(state_home))
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.setdefault(process.name(), []).append(process)
    return found


def wait_until(condition, what):
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {BOUND_S} s: {what}"
        time.sleep(0.05)


def test_a_pair_of_processes_suffers_what_can_be_done_to_its_store_and_leaves_nothing(tmp_path, state_home):
    async def test():
        environment = LocalEnvironment(lease_s=600.0)
        pair = Pair(environment)
        try:
            await pair.begin(tmp_path)
            assert len(clean.mounts_below(tmp_path)) == 2
            (described,) = environment.describe_services().values()
            assert described == (
                "NFSv4 through FUSE, nfs-ganesha as a process, lease 4 s, grace 4 s, mounted hard"
            )
            await suffers_what_can_be_done_to_a_store(pair)
        finally:
            await environment.collect(tmp_path / "logs")
            await environment.teardown()

    asyncio.run(test())
    assert processes_of(state_home) == {}
    assert clean.mounts_below(tmp_path) == []
    assert "the lease was lost" in (tmp_path / "logs" / "a1" / "nfs-client.log").read_text()
    assert "NFS SERVER INITIALIZED" in (tmp_path / "logs" / "store-a" / "ganesha.log").read_text()


def test_a_killed_broker_is_gone_although_its_server_is_silent_and_starts_on_a_new_mount(
    tmp_path, state_home
):
    async def test():
        environment = LocalEnvironment(lease_s=600.0)
        pair = Pair(environment)
        command = pair.system.command
        try:
            await pair.begin(tmp_path)
            await environment.kill("a1")
            pair.system.command = lambda at: ("python", str(WRITER), at.data, at.logs)
            await environment.start("a1")
            wait_until((tmp_path / "nodes" / "a1" / "logs" / "begun").exists, "it has begun")
            async with pair.broken("nfs-stall", "a1", "a2"):
                await environment.kill("a1")
                assert not await environment.running("a1")
            await environment.kill("a2")
            pair.system.command = command
            await environment.start("a1")
            await pair.until("a1", "live")
        finally:
            await environment.teardown()

    asyncio.run(test())


def test_a_deployment_whose_server_is_silent_is_ended_all_the_same(tmp_path, state_home):
    async def test():
        environment = LocalEnvironment(lease_s=600.0)
        try:
            await Pair(environment).begin(tmp_path)
            await environment.inject("nfs-stall", nodes=["a1", "a2"])
        finally:
            await environment.teardown()

    asyncio.run(test())
    assert processes_of(state_home) == {}
    assert clean.mounts_below(tmp_path) == []


@pytest.mark.parametrize("agent_too", [False, True])
def test_kill_9_within_a_stall_heals_the_server_and_clean_leaves_no_process_and_no_mount(
    tmp_path, state_home, agent_too
):
    run = tmp_path / "run"
    harness = subprocess.Popen(
        [sys.executable, str(HARNESS), str(run), "600" if agent_too else "6"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert harness.stdout.readline() == "silent silent\n"
        if agent_too:
            (directory,) = (state_home / "jepsen-run" / "local").iterdir()
            os.kill(state.read(directory, state.AgentState).agent.pid, signal.SIGKILL)
    finally:
        harness.kill()
        harness.wait()
        harness.stdout.close()
    (server,) = processes_of(state_home)["ganesha.nfsd"]
    if not agent_too:
        wait_until(lambda: server.status() != psutil.STATUS_STOPPED, "the server goes on by itself")
    assert len(clean.mounts_below(tmp_path)) == 2
    (line,) = (line for line in clean.leftovers() if not line.startswith(NOTE))
    assert "ganesha.nfsd" in line
    removed = [line for line in clean.remove() if not line.startswith(NOTE)]
    assert len(removed) == 1
    assert removed[0].count(f"mount {run}") == 2
    assert processes_of(state_home) == {}
    assert clean.mounts_below(tmp_path) == []
    assert not list(run.glob("nodes/*/data"))
    assert [line for line in clean.leftovers() if not line.startswith(NOTE)] == []
