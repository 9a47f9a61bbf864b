"""A commit message says what changed and why, and each kind of bad one is refused."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "commit_message.py"


def loaded():
    spec = importlib.util.spec_from_file_location("commit_message", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


commit_message = loaded()

GOOD = "broker: pause reading for clients that wait\n\nA chunk of frames cost two calls of the system.\n"


@pytest.mark.parametrize("message", [GOOD, "stomp protocol: say 'a'", "ci/docker: use 27\n\nWhy.\n"])
def test_a_good_message_has_no_problems(message):
    assert commit_message.problems(message, lines_changed=20) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Pause reading for clients\n\nWhy.", "not 'area: what changed'"),
        ("Broker: pause reading\n\nWhy.", "not 'area: what changed'"),
        ("broker:\n\nWhy.", "not 'area: what changed'"),
        ("broker: pause reading.\n\nWhy.", "full stop"),
        (f"broker: {'p' * 65}\n\nWhy.", "73 characters"),
        ("broker: pause reading\nWhy.", "second line is not blank"),
        ("broker: pause reading\n\n", "no body, and 21 lines change"),
    ],
)
def test_a_bad_message_has_one_problem(message, problem):
    (found,) = commit_message.problems(message, lines_changed=21)
    assert problem in found


@pytest.fixture
def git(tmp_path, monkeypatch):
    """A repository with one commit, and a function that runs git in it."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):  # set where git itself runs the tests
        monkeypatch.delenv(name, raising=False)

    def run(*words):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    run("init", "-b", "main")
    run("commit", "--allow-empty", "-m", "Bad, and older than the range")
    return run


def checked(directory, given):
    done = subprocess.run(
        [sys.executable, SCRIPT, given], cwd=directory, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_the_commits_of_a_range_are_checked_one_by_one(git, tmp_path):
    (tmp_path / "file").write_text("line\n" * 21)
    git("add", "file")
    git("commit", "-m", "broker: add a file")
    git("commit", "--allow-empty", "-m", "broker: change nothing")
    status, errors = checked(tmp_path, "HEAD~2..HEAD")
    assert status == 1
    assert errors.count("\n") == 1
    assert "'broker: add a file': there is no body, and 21 lines change: say why\n" in errors
    assert checked(tmp_path, "HEAD~1..HEAD") == (0, "")


def test_a_message_is_checked_before_its_commit_and_without_the_comments_of_git(git, tmp_path):
    (tmp_path / "file").write_text("line\n" * 21)
    git("add", "file")
    message = tmp_path / "message"
    message.write_text("broker: add a file\n\n# Please enter the commit message for your changes.\n")
    assert checked(tmp_path, "message")[0] == 1
    message.write_text("broker: add a file\n\nWhy.\n# ------------------------ >8 ---\ndiff --git a/file\n")
    assert checked(tmp_path, "message") == (0, "")
    message.write_text("fixup! broker: add a file\n")
    assert checked(tmp_path, "message") == (0, "")
