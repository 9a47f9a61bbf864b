import os
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import pytest

from environments import labels
from environments.labels import NOTE
from environments.local import clean
from harness.interface import InfrastructureError


def test_run_ids_differ_and_fit_into_file_and_host_names():
    ids = {labels.new_run_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(one.replace("-", "").isalnum() and len(one) < 40 for one in ids)


def test_state_lives_where_the_standard_says(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/srv/state")
    assert labels.state_root() == Path("/srv/state/jepsen-run")
    for ignored in ("", "relative/state"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        monkeypatch.setenv("HOME", "/home/somebody")
        assert labels.state_root() == Path("/home/somebody/.local/state/jepsen-run")


def test_a_process_is_alive_until_it_ends_and_a_zombie_is_dead():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = labels.identify(process.pid)
    assert labels.judge(known) == "alive"
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped on purpose
    assert labels.judge(known) == "dead"
    assert labels.identify(process.pid) is None
    process.wait()
    assert labels.judge(known) == "dead"


@pytest.mark.parametrize(
    ("change", "standing"),
    [
        ({}, "alive"),
        ({"started": "1"}, "dead"),
        ({"boot": "b"}, "dead"),
        ({"boot": "b", "host": "h"}, "unknown"),
        ({"namespace": "pid:[1]"}, "unknown"),
    ],
)
def test_only_what_is_known_for_certain_is_called_dead_or_alive(change, standing):
    assert labels.judge(msgspec.structs.replace(labels.identify(), **change)) == standing


@pytest.fixture
def docker_clean(monkeypatch, state_home):
    """Stands for the docker environment's module."""
    module = types.ModuleType("environments.docker.clean")
    monkeypatch.setitem(sys.modules, "environments.docker.clean", module)
    return module


def test_all_environments_are_asked(docker_clean, monkeypatch):
    asked = []

    def leftovers(*, force=False):
        asked.append("docker")
        return ["docker container a1"]

    def remove(*, force=False):
        asked.append(force)
        return ["docker container a1: removed"]

    docker_clean.leftovers, docker_clean.remove = leftovers, remove
    monkeypatch.setattr(clean, "leftovers", lambda *, force=False: ["local run 1"])
    assert labels.find_leftovers() == ["local run 1", "docker container a1"]
    assert labels.remove_leftovers(force=True) == ["docker container a1: removed"]
    assert asked == ["docker", True]


def test_an_engine_that_does_not_answer_is_a_note_and_hides_nothing(docker_clean, monkeypatch):
    def leftovers(*, force=False):
        raise InfrastructureError("no Docker engine answers at unix:///var/run/docker.sock")

    docker_clean.leftovers = leftovers
    monkeypatch.setattr(clean, "leftovers", lambda *, force=False: ["local run 1"])
    first, note = labels.find_leftovers()
    assert first == "local run 1"
    assert note == f"{NOTE}docker: not looked at: no Docker engine answers at unix:///var/run/docker.sock"


def test_a_missing_docker_module_is_a_note(monkeypatch, state_home):
    monkeypatch.setitem(sys.modules, "environments.docker.clean", None)
    (note,) = labels.find_leftovers()
    assert note.startswith(f"{NOTE}docker: not looked at: ")
