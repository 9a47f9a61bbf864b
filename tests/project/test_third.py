"""The thirds of the mutants are all of them together, and three commits in a row have one each."""

import subprocess

import pytest
import third
from mutants.registry import MUTANTS

NAMES = tuple(MUTANTS)


def test_the_thirds_together_are_all_mutants_each_once():
    parts = [third.chosen(one, NAMES) for one in third.THIRDS]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert {len(part) for part in parts} <= {len(NAMES) // 3, len(NAMES) // 3 + 1}
    assert third.chosen(third.ALL, NAMES) == NAMES


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
