"""A search that was cut off goes on where it was, and ends as it would have ended."""

import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from harness.commands import cli
from harness.explore import plans, runs, swarm
from harness.explore.plans import SearchPlan
from harness.explore.search import log, search
from harness.history import judge as judging
from harness.interface import TestSpec
from harness.run import reproduction

BREAKING = ("--pairs", "1", "--nemesis", "partition", "--length", "4", "--seed", "3", "--shrink", "0")
"""One pair does not survive it (RP4): some run of a few is invalid."""


def request(root, *, store=None, jobs=1, spark_master=None, policy="standalone", **limits):
    """A search of runs that cost a tenth of a second."""
    fields = {"pairs": 1, "nemeses": ("clock-skew",), "time_limit_s": 1.0, "policy": policy}
    base = TestSpec(**{"name": "search", **swarm.DEFAULTS, **fields})
    plan = plans.search_plan({"seed": 3, "runs": 6, **limits}, base, fixed=(), bounded=True)
    return plans.ExploreRequest(plan=plan, root=root, store=store, jobs=jobs, spark_master=spark_master)


def told(store):
    """What a search says in the end, but for what is of the machine."""
    campaign = json.loads((store / search.CAMPAIGN).read_bytes())
    del campaign["real-s"]
    if campaign["reproduction"] is not None:
        campaign["reproduction"] = reproduction.load(store / reproduction.FILE).digest
    return campaign


def numbers(store):
    return [json.loads(line)["number"] for line in (store / log.FILE).read_bytes().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One that was not cut off."""
    root = tmp_path_factory.mktemp("whole")
    assert search.run(request(root)) == judging.VALID
    return (root / "latest").resolve()


@pytest.fixture
def part(whole, tmp_path):
    """The same, killed: runs 0, 1 and 3 have ended, and it was just writing of another."""
    store = tmp_path / "part"
    store.mkdir()
    (store / SearchPlan.file()).write_bytes((whole / SearchPlan.file()).read_bytes())
    lines = (whole / log.FILE).read_bytes().splitlines(keepends=True)
    (store / log.FILE).write_bytes(lines[0] + lines[1] + lines[3] + lines[4][:100])
    return store


def resume(store, *words):
    return cli.run(["search", "--resume", str(store), "--jobs", "1", *words])


def test_only_what_is_missing_is_drawn_and_the_end_is_that_of_a_search_without_a_break(whole, part, capsys):
    assert resume(part) == judging.VALID
    assert numbers(part) == [0, 1, 3, 2, 4, 5]
    assert told(part) == told(whole)
    assert f"store: {part} (3 of the runs are there already)" in capsys.readouterr().out


def test_what_is_over_is_told_again_and_more_may_be_asked_for(whole, part, capsys):
    resume(part)
    assert resume(part) == judging.VALID
    assert told(part) == told(whole)
    assert resume(part, "--runs", "7") == judging.VALID
    assert numbers(part) == [0, 1, 3, 2, 4, 5, 6]
    assert told(part)["runs"] == 7
    capsys.readouterr()
    assert resume(part, "--runs", "6") == judging.USAGE
    assert capsys.readouterr().err == (
        f"jepsen-run: --runs is 6, but {part} was begun with 7: give as many or more\n"
    )


def test_who_does_not_hold_the_log_changes_nothing_of_a_search_that_goes_on(part, capsys):
    plan = (part / SearchPlan.file()).read_bytes()
    with log.Log(part, SearchPlan.load(part)):
        assert resume(part, "--runs", "9") == judging.USAGE
    assert "this search is still running" in capsys.readouterr().err
    assert (part / SearchPlan.file()).read_bytes() == plan


def test_a_run_that_crashed_is_tried_again(whole, part, monkeypatch):
    def crash(spec, schedule, *, judge):
        raise RuntimeError("a bug of ours")

    with monkeypatch.context() as patched:
        patched.setattr(runs, "simulate", crash)
        assert resume(part) == judging.INTERNAL
    assert told(part)["ended"] == {"failed": 1, "valid": 3}
    assert resume(part) == judging.VALID
    assert told(part) == told(whole)


def test_the_time_before_the_break_counts(tmp_path, part):
    lines = [json.loads(line) for line in (part / log.FILE).read_bytes().splitlines()[:3]]
    lines[1]["at-s"] = 500.0
    (part / log.FILE).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    assert resume(part, "--time-limit", "500") == judging.VALID
    # Run 2 had been begun before the one that is there; no other may begin.
    assert numbers(part) == [0, 1, 3, 2]
    assert told(part)["stopped"] == "the time limit"


@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on(whole, tmp_path, monkeypatch, capsys):
    drawing = search.judged

    def judged(plan, number):
        if number == 2:
            raise KeyboardInterrupt
        return drawing(plan, number)

    with monkeypatch.context() as patched:
        patched.setattr(search, "judged", judged)
        assert search.run(request(tmp_path)) == judging.INTERRUPTED
    store = (tmp_path / "latest").resolve()
    assert told(store)["stopped"] == "interrupted"
    words = capsys.readouterr().out.splitlines()[-1].split()
    assert words[:4] == ["Go", "on", "jepsen-run", "search"]
    assert cli.run(words[3:]) == judging.VALID
    assert told(store) == told(whole)


@pytest.mark.slow
def test_a_finding_ends_a_search_that_goes_on_as_one_without_a_break(tmp_path, capsys):
    words = ["search", *BREAKING, "--runs", "20", "--jobs", "1", "--store"]
    assert cli.run([*words, str(tmp_path / "whole")]) == judging.INVALID
    whole = (tmp_path / "whole" / "latest").resolve()
    found = told(whole)
    (number,) = (run["number"] for run in found["kept"])
    assert 0 < number < 19
    # The run before it was still under way when the finding came, and its process was killed.
    lines = (whole / log.FILE).read_bytes().splitlines(keepends=True)
    (whole / log.FILE).write_bytes(b"".join(lines[: number - 1] + lines[number:]))
    assert resume(whole) == judging.INVALID
    assert numbers(whole) == [*range(number - 1), number, number - 1]
    assert told(whole) == found
    assert f"run {number} of seed 3" in capsys.readouterr().out
    assert resume(whole, "--runs", "21", "--keep-going") == judging.INVALID
    assert told(whole)["runs"] == 21
    assert told(whole)["kept"][0] == found["kept"][0]


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_and_its_processes_went_with_it(tmp_path):
    """It takes some 20 s: a search in two processes, whole, killed and resumed."""
    command = [sys.executable, "-m", "harness.commands.cli", "search"]
    words = [*BREAKING, "--keep-going", "--runs", "7", "--jobs", "2", "--store"]
    subprocess.run([*command, *words, tmp_path / "whole"], capture_output=True, check=False)
    process = subprocess.Popen(
        [*command, *words, tmp_path / "killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    store = tmp_path / "killed" / "latest"
    while not (store / log.FILE).exists() or len(numbers(store)) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(children) >= 2
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    store = store.resolve()
    before = numbers(store)
    assert len(before) < 7
    assert not (store / search.CAMPAIGN).exists()
    again = subprocess.run(
        [*command, "--resume", store, "--jobs", "2"], capture_output=True, check=False, text=True
    )
    assert again.returncode == judging.INVALID, again.stderr
    assert numbers(store)[: len(before)] == before
    assert sorted(numbers(store)) == list(range(7))
    assert told(store) == told((tmp_path / "whole" / "latest").resolve())


@pytest.mark.spark
def test_tasks_of_spark_find_what_processes_find(whole, tmp_path):
    assert search.run(request(tmp_path, spark_master="local[2]")) == judging.VALID
    assert told((tmp_path / "latest").resolve()) == told(whole)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2 is not a run of a search (Input data was truncated)"),
        (b'{"number": 1}', "line 2 is not a run of a search (Object missing required field `spec`)"),
        (b"\xff", "line 2 is not a run of a search (JSON is malformed"),
    ],
)
def test_a_damaged_log_is_told_by_its_line_before_anything_is_drawn(part, capsys, line, said):
    first, _, *others = (part / log.FILE).read_bytes().splitlines(keepends=True)
    (part / log.FILE).write_bytes(first + line + b"\n" + b"".join(others))
    content = (part / log.FILE).read_bytes()
    assert resume(part) == judging.USAGE
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"jepsen-run: {part / log.FILE}: {said}")
    assert told.endswith("remove that line, and the run is drawn again with --resume")
    assert (part / log.FILE).read_bytes() == content


def test_the_log_of_another_search_is_not_taken_for_its_own(part, tmp_path, capsys):
    assert search.run(request(tmp_path / "other", seed=4, runs=1)) == judging.VALID
    (part / log.FILE).write_bytes((tmp_path / "other" / "latest" / log.FILE).read_bytes())
    capsys.readouterr()
    assert resume(part) == judging.USAGE
    assert capsys.readouterr().err == (
        f"jepsen-run: {part / log.FILE} belongs to another search than search.json in the same directory\n"
    )


def test_a_search_that_is_still_going_on_is_not_joined(part, capsys):
    plan = SearchPlan.load(part)
    with log.Log(part, plan):
        assert resume(part) == judging.USAGE
    assert capsys.readouterr().err == (
        f"jepsen-run: {part}: this search is still running; wait for its end or stop it\n"
    )


@pytest.mark.slow
def test_a_finding_that_a_changed_program_does_not_give_is_not_told_as_its(tmp_path, capsys, monkeypatch):
    words = ["search", *BREAKING, "--runs", "20", "--jobs", "1", "--store", str(tmp_path)]
    assert cli.run(words) == judging.INVALID
    store = (tmp_path / "latest").resolve()
    capsys.readouterr()
    simulate = search.simulate

    def changed(spec, schedule):
        return simulate(msgspec.structs.replace(spec, seed=spec.seed + 1), schedule)

    monkeypatch.setattr(search, "simulate", changed)
    assert resume(store) == judging.USAGE
    assert "gives another history now: the program has changed since" in capsys.readouterr().err


def test_another_version_does_not_go_on_with_it(part, capsys):
    plan = SearchPlan.load(part)
    other = msgspec.structs.replace(plan, versions={**plan.versions, "jepsen-run": "0.0.0"})
    (part / SearchPlan.file()).write_bytes(msgspec.json.encode(other))
    assert resume(part) == judging.USAGE
    assert "was made with jepsen-run 0.0.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "standalone"), "--policy cannot be changed with --resume"),
        (("--seed", "3"), "--seed cannot be changed with --resume"),
        (("--length", "2"), "--length cannot be changed with --resume"),
        (("--unbounded",), "--bounded cannot be changed with --resume"),
        (("--set", "*:journal.segment-size=8192"), "--set cannot be changed with --resume"),
    ],
)
def test_what_decides_the_runs_cannot_be_changed(part, capsys, words, said):
    assert resume(part, *words) == judging.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_what_is_no_search_is_refused(tmp_path, capsys):
    assert resume(tmp_path) == judging.USAGE
    (tmp_path / "search.json").write_text("{}")
    assert resume(tmp_path) == judging.USAGE
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(
        f"{tmp_path} is not the directory of a search: it has no search.json; give the "
        "directory that the search printed"
    )
    assert second.startswith(f"jepsen-run: {tmp_path / 'search.json'} is not the plan of a search: ")


def test_a_log_that_cannot_be_written_is_trouble_with_the_machine_and_says_how_to_go_on(part, capsys):
    (part / log.FILE).unlink()
    (part / log.FILE).mkdir()
    assert resume(part) == judging.UNKNOWN
    assert capsys.readouterr().err.endswith(f"continue with: jepsen-run search --resume {part}\n")
