"""kill -9 at the worst moment.

What is left must heal by itself, and `clean` must find and remove it.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from echo_system import NODES, PATIENCE_S, SPEC, EchoSystem, echo

from environments import labels
from environments.labels import NOTE, RUN_ID, STATE_DIR
from environments.local import clean, state
from environments.local.environment import LocalEnvironment
from harness.interface import Address

pytestmark = pytest.mark.cluster

HARNESS = Path(__file__).with_name("abandoned_harness.py")


def wait_until(condition, what, patience_s=PATIENCE_S):
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.02)
    return value


def processes_of(state_home):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if (
                process.environ().get(STATE_DIR, "").startswith(str(state_home))
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


def leftovers(**options):
    return [line for line in clean.leftovers(**options) if not line.startswith(NOTE)]


@pytest.fixture
def everything_ends(state_home):
    """Whatever a failing test leaves behind."""
    yield state_home
    for process in processes_of(state_home):
        process.kill()


@pytest.fixture
def harness(tmp_path, everything_ends):
    """Start a harness that breaks things; gives (its process, what it said)."""
    started = []

    def start(lease_s):
        process = subprocess.Popen(
            [sys.executable, str(HARNESS), str(tmp_path / "run"), str(lease_s)], stdout=subprocess.PIPE
        )
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def address(text):
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def reach(*texts):
    async def main():
        for text in texts:
            await echo(address(text))

    asyncio.run(main())


def test_the_network_heals_when_the_harness_is_killed_within_a_cut_and_clean_removes_the_rest(
    harness, state_home, tmp_path
):
    process, said = harness(3.0)
    assert said["observed"] == {"a1->b1": "lost", "b1->a1": "lost", "a1": "running", "b1": "paused"}
    process.kill()
    process.wait()
    # Only agent and brokers are left, and nobody but the agent can heal.
    reach(*said["ways"].values())
    assert len(processes_of(state_home)) == 3
    lines = leftovers()
    assert len(lines) == 1
    assert "echo_broker.py" in lines[0]
    removed = [line for line in clean.remove() if not line.startswith(NOTE)]
    assert len(removed) == 1
    assert "removed" in removed[0]
    assert processes_of(state_home) == []
    assert leftovers() == []
    assert clean.remove() == []
    assert list((state_home / "jepsen-run" / "local").iterdir()) == []
    nodes = tmp_path / "run" / "nodes"
    assert not list(nodes.glob("*/data"))
    assert (nodes / "a1" / "logs" / "broker.log").read_text().startswith("listening a1")


def test_a_living_harness_is_left_alone_unless_forced(harness, state_home):
    process, _ = harness(PATIENCE_S)
    assert leftovers() == []
    (note,) = clean.remove()
    assert note.startswith(NOTE)
    assert f"pid {process.pid}" in note
    assert "--force" in note
    assert len(processes_of(state_home)) == 3
    assert process.poll() is None
    assert len(leftovers(force=True)) == 1
    assert len(clean.remove(force=True)) == 1
    assert processes_of(state_home) == []


def test_clean_ends_stopped_brokers_whose_agent_was_killed_too(harness, state_home):
    process, _ = harness(PATIENCE_S)
    (directory,) = (state_home / "jepsen-run" / "local").iterdir()
    agent = state.read(directory, state.AgentState)
    os.kill(agent.agent.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    left = wait_until(lambda: len(found := processes_of(state_home)) == 2 and found, "the agent to be gone")
    assert {one.status() == psutil.STATUS_STOPPED for one in left} == {True, False}
    assert "(stopped)" in leftovers()[0]
    clean.remove()
    assert processes_of(state_home) == []
    assert leftovers() == []


def test_clean_ends_processes_that_only_their_label_betrays(everything_ends, state_home):
    gone = state.local_root() / "20260101-000000-deadbeef"
    labelled = subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, RUN_ID: gone.name, STATE_DIR: str(gone)}
    )
    elsewhere = subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, RUN_ID: "x", STATE_DIR: str(state_home / "else" / "x")}
    )
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        (line,) = wait_until(leftovers, "the label to be seen")
        assert f"process {labelled.pid} sleep 1000" in line
        clean.remove()
        assert labelled.wait(PATIENCE_S) == -signal.SIGKILL
        assert leftovers() == []
        assert elsewhere.poll() is None
        assert stranger.poll() is None
    finally:
        for process in (labelled, elsewhere, stranger):
            process.kill()
            process.wait()


def test_a_recorded_pid_that_now_belongs_to_a_stranger_is_not_touched(state_home):
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        now = labels.identify(stranger.pid)
        before = msgspec.structs.replace(now, started=str(int(now.started) - 1))
        directory = state.local_root() / "20260101-000000-deadbeef"
        directory.mkdir(parents=True)
        state.write(
            directory,
            state.HarnessState(run_id=directory.name, harness=before, directory=str(state_home / "run")),
        )
        state.write(directory, state.AgentState(run_id=directory.name, agent=before, brokers={"a1": before}))
        (line,) = clean.remove()
        assert "process" not in line
        assert not directory.exists()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_recorded_process_is_ended_even_if_it_hides_its_label(everything_ends):
    hidden = subprocess.Popen(["sleep", "1000"])
    try:
        directory = state.local_root() / "20260101-000000-deadbeef"
        directory.mkdir(parents=True)
        known = labels.identify(hidden.pid)
        state.write(directory, state.AgentState(run_id=directory.name, agent=known, brokers={}))
        clean.remove()
        assert hidden.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        hidden.kill()
        hidden.wait()


def test_a_deployment_of_another_machine_is_left_alone(state_home):
    mine = labels.identify()
    directory = state.local_root() / "20260101-000000-deadbeef"
    directory.mkdir(parents=True)
    away = msgspec.structs.replace(mine, host="elsewhere", boot="another")
    state.write(directory, state.HarnessState(run_id=directory.name, harness=away, directory="/nowhere"))
    (line,) = clean.remove()
    assert line.startswith(NOTE)
    assert "elsewhere" in line
    assert directory.exists()


def test_after_a_reboot_only_files_are_left_to_remove(state_home):
    mine = labels.identify()
    directory = state.local_root() / "20260101-000000-deadbeef"
    directory.mkdir(parents=True)
    rebooted = msgspec.structs.replace(mine, boot="another")
    state.write(directory, state.HarnessState(run_id=directory.name, harness=rebooted, directory="/nowhere"))
    state.write(directory, state.AgentState(run_id=directory.name, agent=rebooted, brokers={"a1": rebooted}))
    (line,) = clean.remove()
    assert "process" not in line
    assert not directory.exists()


def test_a_nodes_directory_without_the_runs_mark_is_not_removed(state_home, tmp_path):
    dead = msgspec.structs.replace(labels.identify(), started="1")
    directory = state.local_root() / "20260101-000000-deadbeef"
    directory.mkdir(parents=True)
    precious = tmp_path / "run" / "nodes" / "a1" / "data" / "precious"
    precious.parent.mkdir(parents=True)
    precious.write_text("of somebody else")
    state.write(
        directory, state.HarnessState(run_id=directory.name, harness=dead, directory=str(tmp_path / "run"))
    )
    for mark in (None, "20251231-235959-cafecafe\n"):
        if mark:
            (tmp_path / "run" / "nodes" / state.MARKER_FILE).write_text(mark)
        clean.end_deployment(directory, keep_logs=False)
        assert precious.exists()


def test_an_agent_whose_harness_stays_away_ends_everything(everything_ends, tmp_path):
    async def main():
        environment = LocalEnvironment(orphan_s=3.0)
        await environment.deploy(EchoSystem(), SPEC, NODES, tmp_path / "run")
        await environment.start("a1")
        await environment.inject("pause", nodes=["a1"])
        assert await environment.running("a1")
        # As a killed harness does: the connection goes, nobody says goodbye.
        environment._agent.process.stdin.close()
        environment._agent.process.wait(PATIENCE_S)

    asyncio.run(main())
    assert processes_of(everything_ends) == []
    clean.remove(force=True)
    assert leftovers(force=True) == []


def test_a_terminated_agent_ends_its_brokers(everything_ends, tmp_path):
    async def main():
        environment = LocalEnvironment()
        await environment.deploy(EchoSystem(), SPEC, NODES, tmp_path / "run")
        await environment.start("a1")
        environment._agent.process.terminate()
        environment._agent.process.wait(PATIENCE_S)
        assert processes_of(everything_ends) == []
        await environment.teardown()

    asyncio.run(main())
