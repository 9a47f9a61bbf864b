"""The thirds of the mutants are all of them together, and three commits in a row have one each."""

import subprocess
import sys

import pytest
import third
from mutants.registry import MUTANTS

NAMES = tuple(MUTANTS)


def test_the_thirds_together_are_all_mutants_each_once():
    parts = [third.chosen(one, NAMES) for one in third.THIRDS]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert {len(part) for part in parts} <= {len(NAMES) // 3, len(NAMES) // 3 + 1}
    assert third.chosen(third.ALL, NAMES) == third.few(third.ALL, NAMES) == NAMES
    for one, part in zip(third.THIRDS, parts, strict=True):
        assert set(third.few(one, NAMES)) < set(part)


class Item:
    """Of a test: its name, and whether it is tried in turn."""

    def __init__(self, nodeid, marked):
        self.nodeid, self._marked = nodeid, marked

    def get_closest_marker(self, name):
        return True if self._marked and name == third.MARKER else None


def test_each_commit_tries_all_other_tests_and_a_third_of_those_in_turn():
    items = [Item(f"test_{number:02}", number % 2 == 0) for number in range(20)]
    left = [third.left_to_others(one, items) for one in third.THIRDS]
    in_turn = {item for item in items if item.get_closest_marker(third.MARKER)}
    assert [in_turn - one for one in left] == [{*third.chosen(one, items[::2])} for one in third.THIRDS]
    assert set.union(*(in_turn - one for one in left)) == in_turn
    assert third.left_to_others(third.ALL, items) == set()


def test_a_test_that_is_asked_for_by_its_name_is_tried_whoever_has_its_turn():
    file = "tests/checkers/test_differential.py"
    name = f"{file}::test_they_agree_on_files_too_whole_or_in_slices"

    def collected(what):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--third=2/3", what]
        return subprocess.run(command, cwd=third.ROOT, capture_output=True, text=True, check=False).stdout

    assert name in collected(name)
    assert name not in collected(file)
    assert "test_both_implementations" in collected(file)


@pytest.fixture
def commit(tmp_path, monkeypatch):
    """Makes a commit in the repository that is asked."""
    monkeypatch.setattr(third, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run([*git, "init", "-q", "."], cwd=tmp_path, check=True)

    def one_more():
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "more"], cwd=tmp_path, check=True)

    return one_more


def test_three_commits_in_a_row_try_all_mutants(commit):
    seen = set()
    for _ in range(3):
        commit()
        seen.add(third.of_commit())
        assert third.of_commit() in seen, "the same for the same commit"
    assert seen == set(third.THIRDS)


def test_where_commits_cannot_be_counted_all_are_tried(commit, tmp_path, monkeypatch):
    assert third.of_commit() == third.ALL, "no commit yet"
    commit()
    commit()
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{tmp_path}", str(tmp_path / "shallow")],
        check=True,
    )
    assert third.of_commit() != third.ALL
    monkeypatch.setattr(third, "ROOT", tmp_path / "shallow")
    assert third.of_commit() == third.ALL
    monkeypatch.setenv("PATH", str(tmp_path))
    assert third.of_commit() == third.ALL, "no git"
