import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import pytest

from environments import labels, scratch
from environments.agent import end
from environments.labels import LEFT, NOTE
from environments.local import clean, state
from filesystems.fuse import device
from harness.commands import cli
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


def test_a_mount_whose_place_is_no_utf_8_is_found_below_its_directory(tmp_path, monkeypatch):
    """Also one with a space, by the agent's end, which reads the same list."""
    file = tmp_path / "mountinfo"
    places = (f"{tmp_path}/n/a 1", f"{tmp_path}/n/a 1/\udcff")
    lines = [f"30 22 0:5 / {place.replace(' ', chr(92) + '040')} rw - tmpfs tmpfs rw\n" for place in places]
    file.write_bytes(os.fsencode("".join(lines)))
    monkeypatch.setattr(device, "MOUNTS", file)
    assert [str(place) for place in clean.mounts_below(tmp_path / "n")] == [*reversed(places)]
    assert end.mounts(f"{tmp_path}/n") == [*reversed(places)]


def test_what_cannot_be_removed_is_named_and_keeps_nothing_else_and_the_status_is_2(
    monkeypatch, state_home, tmp_path, capsys
):
    monkeypatch.setitem(sys.modules, "environments.docker.clean", None)
    dead = msgspec.structs.replace(labels.identify(), started="1")
    for name in ("20260101-000000-aaaaaaaa", "20260101-000000-bbbbbbbb"):
        data = tmp_path / name / "nodes" / "a1" / "data"
        data.mkdir(parents=True)
        (data.parents[1] / state.MARKER_FILE).write_text(name)
        (state.local_root() / name).mkdir(parents=True)
        harness = state.HarnessState(run_id=name, harness=dead, directory=str(tmp_path / name))
        state.write(state.local_root() / name, harness)
    (scratch_directory := tmp_path / "temporary" / f"{scratch.PREFIX}work-1").mkdir()
    os.utime(scratch_directory, (1.0, 1.0))
    stubborn = {tmp_path / "20260101-000000-aaaaaaaa" / "nodes" / "a1" / "data", scratch_directory}
    rmtree = shutil.rmtree
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda path, **more: path in stubborn or rmtree(path, **more))
        assert cli.run(["clean"]) == 2
    said = capsys.readouterr().out.splitlines()
    where = state.local_root() / "20260101-000000-aaaaaaaa"
    assert sorted(line for line in said if line.startswith(LEFT)) == [
        f"{LEFT}local run {where.name}, state {where}: {min(stubborn)} cannot be removed",
        f"{LEFT}scratch directory {scratch_directory}",
    ]
    assert any(line.startswith("local run 20260101-000000-bbbbbbbb: removed ") for line in said)
    assert cli.run(["clean"]) == 0
    assert not any(path.exists() for path in stubborn)
