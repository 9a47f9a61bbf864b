"""PostgreSQL in the local environment.

A process of the run's own that breaks as it should, heals by itself, and leaves nothing.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from database_deployed import (
    NAMES,
    NODES,
    PATIENCE_S,
    SPEC,
    StandBy,
    the_three_faults,
    until_seen,
)

from environments.local import clean
from environments.local.environment import LocalEnvironment
from environments.postgresql import program, tree
from harness.interface import UsageError

pytestmark = [pytest.mark.cluster, pytest.mark.postgresql]

HARNESS = Path(__file__).with_name("abandoned_database.py")


@pytest.fixture
def state_home(tmp_path, monkeypatch):
    """State of the test's own; temporary files stay where PostgreSQL's account can reach them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def run(tmp_path, test):
    async def main():
        environment, system = LocalEnvironment(lease_s=600.0), StandBy()
        await environment.deploy(system, SPEC, NODES, tmp_path / "run")
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                await test(environment, system)
        finally:
            await environment.teardown()

    asyncio.run(main())


def test_the_three_faults_hit_the_server_or_one_client_and_leave_what_was_committed(tmp_path, state_home):
    async def test(environment, system):
        await the_three_faults(environment, system, environment._made.variables)
        with pytest.raises(UsageError, match="chance must be above 0"):
            await environment.inject("database-disconnect", nodes=["a1"], options={"chance": 2})
        await environment.collect(tmp_path / "logs")

    run(tmp_path, test)
    log = (tmp_path / "logs" / "database" / "postgresql.log").read_text()
    assert log.count("database system is ready to accept connections") == 2
    assert list((state_home / "jepsen-run" / "local").iterdir()) == []


def test_a_stalled_server_has_no_process_that_runs(tmp_path, state_home):
    async def test(environment, system):
        lease = await environment.inject("database-stall", nodes=NAMES)
        directory = next((state_home / "jepsen-run" / "local").iterdir())
        postmaster = json.loads((directory / "agent.json").read_text())["brokers"]["database"]["pid"]
        assert len(tree.members(postmaster)) > 3
        states = {psutil.Process(pid).status() for pid in tree.members(postmaster)}
        assert states == {psutil.STATUS_STOPPED}
        await environment.heal(lease)
        await until_seen(environment, "serving", "serving")

    run(tmp_path, test)


def test_after_kill_9_of_the_harness_in_a_stall_the_server_goes_on_and_clean_leaves_nothing(
    tmp_path, state_home
):
    harness = subprocess.Popen(
        [sys.executable, str(HARNESS), str(tmp_path / "run"), "4"], stdout=subprocess.PIPE
    )
    try:
        said = json.loads(harness.stdout.readline())
        assert said["observed"] == dict.fromkeys(("a1/database", "b1/database"), "stalled")
        postmaster = said["postmaster"]
        members = tree.members(postmaster)
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
        harness.stdout.close()
    deadline = time.monotonic() + PATIENCE_S
    while tree.state(postmaster) != "running":
        assert time.monotonic() < deadline, "nobody healed it"
        time.sleep(0.05)
    lines = clean.remove()
    assert any("database" in line for line in lines)
    assert not any(map(tree.lives, members))
    assert not Path(said["scratch"]).exists()
    assert clean.remove() == []


def test_clean_ends_a_server_that_stands_still_with_its_agent_dead(tmp_path, state_home):
    harness = subprocess.Popen(
        [sys.executable, str(HARNESS), str(tmp_path / "run"), "600"], stdout=subprocess.PIPE
    )
    try:
        said = json.loads(harness.stdout.readline())
    finally:
        harness.kill()
        harness.wait()
        harness.stdout.close()
    psutil.Process(said["agent"]).kill()
    members = tree.members(said["postmaster"])
    assert len(members) > 3
    clean.remove()
    assert not any(map(tree.lives, members))
    assert not Path(said["scratch"]).exists()


def test_without_postgresql_a_test_that_needs_it_is_refused_by_what_is_missing(monkeypatch):
    monkeypatch.setattr("environments.postgresql.program.binaries", lambda: None)
    environment = LocalEnvironment()
    refused = environment.refuses(NODES)
    assert refused.startswith("PostgreSQL is not installed (sudo apt-get install postgresql); or use --env")
    assert environment.supports()["database-stall"] == refused


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_a_directory_that_the_servers_account_cannot_reach_is_named(tmp_path):
    tmp_path.chmod(0o700)
    with pytest.raises(program.ProgramError, match="who may not pass through /.*: set TMPDIR to"):
        program.make(tmp_path / "server", "x")
