"""The shares of the mutants are all of them together, and six commits in a row have one each."""

import subprocess
import sys

import pytest
import share
from mutants.registry import MUTANTS

NAMES = tuple(MUTANTS)


def test_the_shares_together_are_all_mutants_each_once():
    parts = [share.chosen(one, NAMES) for one in share.SHARES]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert {len(part) for part in parts} <= {len(NAMES) // 6, len(NAMES) // 6 + 1}
    assert share.chosen(share.ALL, NAMES) == share.few(share.ALL, NAMES) == NAMES
    for one, part in zip(share.SHARES, parts, strict=True):
        assert set(share.few(one, NAMES)) < set(part)


class Item:
    """Of a test: its name and its marker."""

    def __init__(self, nodeid, marker):
        self.nodeid, self._marker = nodeid, marker

    def get_closest_marker(self, name):
        return True if name == self._marker else None


@pytest.mark.parametrize(("marker", "ci"), [(share.IN_TURN, "true"), (share.IN_TURN, ""), (share.ROW, "")])
def test_each_commit_tries_all_other_tests_and_a_share_of_those_in_turn(marker, ci, monkeypatch):
    monkeypatch.setenv("CI", ci)
    items = [Item(f"test_{number:02}", "" if number % 2 else marker) for number in range(20)]
    left = [share.left_to_others(one, items) for one in share.SHARES]
    in_turn = {item for item in items if item.get_closest_marker(marker)}
    assert [in_turn - one for one in left] == [{*share.chosen(one, items[::2])} for one in share.SHARES]
    assert set.union(*(in_turn - one for one in left)) == in_turn
    assert share.left_to_others(share.ALL, items) == set()


def test_ci_tries_all_rows_of_the_claims_with_each_commit(monkeypatch):
    monkeypatch.setenv("CI", "true")
    rows = [Item(f"test_{number}", share.ROW) for number in range(20)]
    assert not any(share.left_to_others(one, rows) for one in share.SHARES)


@pytest.mark.slow
def test_a_test_that_is_asked_for_by_its_name_is_tried_whoever_has_its_turn():
    file = "tests/checkers/test_differential.py"
    name = f"{file}::test_they_agree_on_files_too_whole_or_in_slices"

    def collected(what):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--share=2/6", what]
        return subprocess.run(command, cwd=share.ROOT, capture_output=True, text=True, check=False).stdout

    assert name in collected(name)
    assert name not in collected(file)
    assert "test_both_implementations" in collected(file)


@pytest.fixture
def commit(tmp_path, monkeypatch):
    """Makes a commit in the repository that is asked."""
    monkeypatch.setattr(share, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run([*git, "init", "-q", "."], cwd=tmp_path, check=True)

    def one_more():
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "more"], cwd=tmp_path, check=True)

    return one_more


def test_six_commits_in_a_row_try_all_mutants(commit):
    seen = set()
    for _ in range(6):
        commit()
        seen.add(share.of_commit())
        assert share.of_commit() in seen, "the same for the same commit"
    assert seen == set(share.SHARES)


@pytest.fixture
def shallow(commit, tmp_path):
    """Clones the newest commit alone, and returns the directory."""

    def clone(name):
        source = f"file://{tmp_path}"
        subprocess.run(["git", "clone", "-q", "--depth", "1", source, str(tmp_path / name)], check=True)
        return tmp_path / name

    return clone


def test_where_commits_cannot_be_counted_ci_tries_all(commit, shallow, tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert share.of_commit() == share.ALL, "no commit yet"
    commit()
    commit()
    assert share.of_commit() != share.ALL
    monkeypatch.setattr(share, "ROOT", shallow("clone"))
    assert share.of_commit() == share.ALL
    monkeypatch.setenv("PATH", str(tmp_path))
    assert share.of_commit() == share.ALL, "no git"


def test_where_commits_cannot_be_counted_others_try_the_share_of_the_commit(
    commit, shallow, tmp_path, monkeypatch
):
    monkeypatch.setenv("CI", "")
    seen = set()
    for number in range(30):
        commit()
        with monkeypatch.context() as patch:
            patch.setattr(share, "ROOT", shallow(f"clone{number}"))
            seen.add(share.of_commit())
            assert share.of_commit() in seen, "the same for the same commit"
        if len(seen) > 1:
            break
    assert share.ALL not in seen
    assert len(seen) > 1, "another commit has another share in the end"


def test_an_unpacked_archive_has_the_share_of_its_version(tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "")
    monkeypatch.setattr(share, "ROOT", tmp_path)
    seen = set()
    for version in ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "1.0.0"):
        monkeypatch.setattr(share, "__version__", version)
        seen.add(share.of_commit())
        assert share.of_commit() in seen
    assert share.ALL not in seen
    assert len(seen) > 1
