"""A scratch directory goes with its owner.

One whose owner was killed is found and removed, and nobody else's.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from environments import scratch
from environments.labels import NOTE
from harness.commands import cli

OWNER = """
import sys, tempfile
from environments import scratch
tempfile.tempdir = sys.argv[1]
with scratch.directory("work") as path:
    (path / "file").write_text("x")
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(state_home):
    return Path(tempfile.gettempdir())


@pytest.fixture
def owner(temporary):
    """Another process that has a scratch directory."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, temporary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def settled(path):
    """Make it look older than what may be about to be claimed."""
    os.utime(path, (1.0, 1.0))
    return path


def test_a_directory_is_gone_with_its_block(temporary):
    with scratch.directory("work") as path:
        assert path.parent == temporary
        (path / "file").write_text("x")
    assert not list(temporary.iterdir())


def test_a_directory_whose_owner_lives_is_left_alone(owner, temporary):
    path = settled(Path(owner.stdout.readline().strip()))
    assert not scratch.leftovers()
    assert not scratch.remove()
    assert [each.name for each in path.iterdir()] == ["file"]


def test_a_directory_whose_owner_was_killed_is_removed(owner, temporary):
    path = settled(Path(owner.stdout.readline().strip()))
    owner.kill()
    owner.wait()
    assert scratch.leftovers() == [f"scratch directory {path}"]
    assert scratch.remove() == [f"scratch directory {path}"]
    assert not list(temporary.iterdir())
    assert not scratch.remove()


def test_the_command_removes_it_too_and_says_so(owner, temporary, capsys, state_home):
    path = settled(Path(owner.stdout.readline().strip()))
    owner.kill()
    owner.wait()
    assert cli.run(["clean", "--dry-run"]) == 0
    assert f"scratch directory {path}\n" in capsys.readouterr().out
    assert path.exists()
    assert cli.run(["clean"]) == 0
    assert f"scratch directory {path}\n" in capsys.readouterr().out
    assert not list(temporary.iterdir())


def test_what_has_just_been_made_or_is_no_directory_is_left_alone(temporary):
    fresh = temporary / f"{scratch.PREFIX}fresh"
    fresh.mkdir()
    (temporary / "jepsen-results").mkdir()
    settled(temporary / "jepsen-results")
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / f"{scratch.PREFIX}link").symlink_to(elsewhere)
    os.utime(temporary / f"{scratch.PREFIX}link", (1.0, 1.0), follow_symlinks=False)
    file = temporary / f"{scratch.PREFIX}file"
    file.write_text("x")
    settled(file)
    note = f"{NOTE}scratch directory {fresh}: left alone, "
    assert [line.startswith(note) for line in scratch.remove()] == [True]
    assert [line.startswith(note) for line in scratch.leftovers()] == [True]
    assert len(list(temporary.iterdir())) == 5


IMPORTER = """
import sys, tempfile
from pathlib import Path
from environments import scratch
tempfile.tempdir = sys.argv[1]
with scratch.directory_in(Path(sys.argv[2]), "importing") as path:
    (path / "file").write_text("x")
    sys.stdout.buffer.write(bytes(path) + b"\\n")
    sys.stdout.buffer.flush()
    sys.stdin.read()
"""


def test_what_a_killed_import_left_among_the_results_is_removed_too(temporary, tmp_path):
    results = tmp_path / "results \udcff"
    results.mkdir()
    command = [sys.executable, "-c", IMPORTER, temporary, results]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        path = Path(os.fsdecode(process.stdout.readline().strip()))
        (claimed,) = temporary.iterdir()
        settled(claimed)
        assert not scratch.remove()
        assert (path / "file").exists()
        process.kill()
    settled(claimed)
    lines = [f"unfinished directory {path}", f"scratch directory {claimed}"]
    assert scratch.leftovers() == lines
    assert scratch.remove() == lines
    assert not [*results.iterdir(), *temporary.iterdir()]


@pytest.mark.parametrize("what", ["visible", ".link", ".file", ".gone"])
def test_what_no_import_made_is_left_alone_whatever_names_it(temporary, tmp_path, what):
    (tmp_path / "visible").mkdir()
    (tmp_path / ".link").symlink_to(tmp_path / "visible")
    (tmp_path / ".file").write_text("x")
    claimed = temporary / f"{scratch.PREFIX}elsewhere-x"
    claimed.mkdir()
    (claimed / "elsewhere").write_text(str(tmp_path / what))
    settled(claimed)
    assert scratch.remove() == [f"scratch directory {claimed}"]
    assert {"visible", ".link", ".file"} <= {path.name for path in tmp_path.iterdir()}
