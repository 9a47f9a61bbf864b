"""``jepsen-run shrink``.

Exact in the simulation, k of n runs on real processes, and never a result that was not seen.
"""

import itertools
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import msgspec
import pytest

from harness.commands import cli
from harness.explore.shrink import repeats
from harness.explore.shrink.case import ShrinkCase
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import Fault, InfrastructureError, Schedule, TestSpec, UsageError
from harness.run import reproduction, session
from harness.run.compose import compose
from harness.run.simulate import simulate

CUT = Fault(kind="partition", start_s=1.0, duration_s=3.0, shape="pair-link")
NOISE = tuple(
    Fault(kind="disk-slow", start_s=start, duration_s=0.2, target="live") for start in (0.3, 0.6, 4.2)
)
SPEC = TestSpec(
    name="reduced", pairs=1, time_limit_s=5.0, rate=20.0, producers=2, consumers=2, groups=2, seed=3
)


@pytest.fixture
def kept(tmp_path):
    faults = sorted((*NOISE, CUT), key=lambda fault: fault.start_s)
    run = simulate(SPEC, Schedule(faults=tuple(faults)))
    assert "split-brain" in run.grave
    return reproduction.keep(stores.create(tmp_path, "kept"), run, "a test")


def result(told):
    """The file that the last line says to replay."""
    words = told.splitlines()[-1].split()
    assert words[:3] == ["Again", "jepsen-run", "replay"]
    return reproduction.load(Path(words[3]))


def reported(told):
    """The run whose report is named before."""
    (line,) = [line for line in told.splitlines() if line.startswith("Report ")]
    path = Path(line.removeprefix("Report").strip())
    assert path.name == stores.REPORT
    return path.parent


@pytest.mark.parametrize(
    ("ended", "need", "times", "stands"),
    [
        ("c", 1, 3, "came"),
        ("nn", 1, 3, ""),
        ("nnc", 1, 3, "came"),
        ("nnn", 1, 3, "not"),
        ("cn", 2, 3, ""),
        ("cnc", 2, 3, "came"),
        ("nn", 2, 3, "not"),
        ("n", 3, 3, "not"),
        ("uu", 1, 3, ""),
        ("uuc", 1, 3, "came"),
        ("unun", 2, 3, "not"),
        ("ucun", 2, 3, ""),
        ("ucunu", 2, 3, ""),
        ("ucunuu", 2, 3, "undecided"),
    ],
)
def test_k_of_n_is_decided_as_early_as_it_can_be_and_unknown_runs_count_for_neither(
    ended, need, times, stands
):
    words = [{"c": "came", "n": "not", "u": "unknown"}[one] for one in ended]
    assert repeats.standing(words, need, times) == stands
    assert all(repeats.standing(words[:count], need, times) == "" for count in range(len(words)))


@pytest.mark.slow
def test_in_the_simulation_what_is_left_is_the_cause_and_comes_again(kept, tmp_path, capsys):
    assert cli.run(["shrink", str(kept), "--store", str(tmp_path / "small")]) == judging.INVALID
    told = capsys.readouterr().out
    small = result(told)
    assert [fault.kind for fault in small.schedule.faults] == ["partition"]
    assert simulate(small.spec, small.schedule).digest == small.digest
    store = reported(told)
    assert stores.load_schedule(store) == small.schedule
    assert "split-brain" in (store / "report.html").read_text()
    cases = ET.parse(store / "junit.xml").getroot()
    assert cases.find("testcase[@name='split-brain']/failure") is not None


LOCAL = TestSpec(
    **{**msgspec.structs.asdict(SPEC), "environment": "local", "name": "local", "time_limit_s": 20.0}
)
KILL = Fault(kind="kill", start_s=1.0, duration_s=1.0, target="live")
PAUSE = Fault(kind="pause", start_s=4.0, duration_s=1.0, target="live")
LONG = Fault(kind="partition", start_s=6.0, duration_s=8.0, shape="pair-link")


class Cluster:
    """Runs that nobody makes: ``answers`` says of a schedule and a load what comes of it.

    An answer is the names of grave findings, or None where the run is unknown.
    """

    def __init__(self, monkeypatch, tmp_path, faults=(KILL, PAUSE, LONG), found=("split-brain",)):
        self.ran = []
        self.root = tmp_path / "small"
        self.file = tmp_path / "repro.json"
        self.file.write_bytes(
            msgspec.json.encode(
                reproduction.Reproduction(
                    versions=reproduction.versions(),
                    environment="local",
                    seed=SPEC.seed,
                    findings=found,
                    spec=LOCAL,
                    schedule=Schedule(faults=tuple(faults)),
                )
            )
        )
        from checkers import api

        monkeypatch.setattr(session, "execute", self._execute)
        monkeypatch.setattr(api, "start_in_background", lambda **_: None)

    def _execute(self, test, root, talk, *, spark):
        answer = self.answers(test)
        if isinstance(answer, BaseException):
            raise answer
        self.ran.append(test)
        store = stores.create(root, test.spec.name)
        talk.write("what a run says of itself")
        found = [SimpleNamespace(name=name, severity="grave") for name in answer or ()]
        valid = None if answer is None else not answer
        verdict = SimpleNamespace(
            findings=found, valid=valid, reasons=() if valid is not None else ("no disk",)
        )
        return session.RunOutcome(status=0, verdict=verdict, store=store)

    def shrink(self, *words):
        return cli.run(["shrink", str(self.file), "--store", str(self.root), *words])

    @property
    def directory(self):
        (store,) = {path.parent for path in self.root.glob("shrink-local/[0-9]*/shrink.json")}
        return store


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    return Cluster(monkeypatch, tmp_path)


def of_the_cut(test):
    """Split brain where the link is cut for at least four seconds."""
    long = [fault for fault in test.schedule.faults if fault.kind == "partition" and fault.duration_s >= 4.0]
    return ("split-brain",) if long else ()


def test_on_processes_faults_go_then_they_get_shorter_then_the_load(cluster, capsys):
    cluster.answers = of_the_cut
    assert cluster.shrink() == judging.INVALID
    told = capsys.readouterr().out
    small = result(told)
    assert small.schedule.faults == (msgspec.structs.replace(LONG, duration_s=4.0),)
    assert small.spec == msgspec.structs.replace(
        LOCAL, time_limit_s=16.0
    )  # 6 s after the last fault, as before
    assert (small.digest, small.findings) == ("", ("split-brain",))
    shown = next(test for test in cluster.ran if test.schedule == small.schedule and test.spec == small.spec)
    assert reported(told) == next(
        cluster.directory / run.store
        for run in repeats._read(cluster.directory)
        if run.case == repeats.digest_of(ShrinkCase(shown.spec, shown.schedule))
    )
    assert "nothing more can be taken away" in told
    assert "what a run says of itself" not in told


def test_luck_is_answered_by_k_of_n(cluster, capsys):
    luck = itertools.cycle([False, True])
    cluster.answers = lambda test: of_the_cut(test) if next(luck) else ()
    assert cluster.shrink("--need", "1", "--times", "2") == judging.INVALID
    assert len(result(capsys.readouterr().out).schedule.faults) == 1
    luck = itertools.cycle([False, True])
    assert cluster.shrink("--need", "2", "--times", "2") == judging.VALID
    assert "NOT REPRODUCED  split-brain" in capsys.readouterr().out


def test_other_findings_are_not_these(monkeypatch, tmp_path, capsys):
    """Without the kill the duplicates stay and the loss is gone: then it is another test."""
    cluster = Cluster(monkeypatch, tmp_path, found=("lost", "duplicate"))

    def answers(test):
        killed = any(fault.kind == "kill" for fault in test.schedule.faults)
        return ("lost", "duplicate", "zombie") if killed else ("duplicate", "zombie")

    cluster.answers = answers
    assert cluster.shrink() == judging.INVALID
    assert [fault.kind for fault in result(capsys.readouterr().out).schedule.faults] == ["kill"]
    assert cluster.shrink("--finding", "duplicate") == judging.INVALID
    told = capsys.readouterr().out
    assert result(told).schedule.faults == ()
    assert result(told).spec.time_limit_s == 5.0
    assert result(told).findings == ("duplicate",)


def test_unknown_runs_are_said_and_count_for_neither(cluster, capsys):
    unlucky = itertools.cycle([True, False])
    cluster.answers = lambda test: None if next(unlucky) else of_the_cut(test)
    assert cluster.shrink() == judging.INVALID
    told = capsys.readouterr().out
    assert len(result(told).schedule.faults) == 1
    assert "unknown (no disk): counts neither for nor against" in told
    assert "could not be decided" not in told
    assert "last words" not in told


def test_a_schedule_of_which_nothing_can_be_said_stays_and_is_counted(cluster, capsys):
    cluster.answers = lambda test: of_the_cut(test) if KILL in test.schedule.faults else None
    assert cluster.shrink() == judging.INVALID
    told = capsys.readouterr().out
    assert [fault.kind for fault in result(told).schedule.faults] == ["kill", "partition"]
    assert re.search(r"nothing more can be taken away, but \d+ schedules could not be decided", told)
    cluster.answers = lambda _: None
    assert cluster.shrink() == judging.UNKNOWN
    assert (
        "UNKNOWN  whether split-brain can be reproduced: too many runs were unknown"
        in capsys.readouterr().out
    )


def test_the_budget_ends_it_with_the_smallest_so_far_or_says_that_nothing_is_known(cluster, capsys):
    cluster.answers = of_the_cut
    assert cluster.shrink("--runs", "5", "--times", "1") == judging.INVALID
    assert len(cluster.ran) == 5
    assert (
        "the limit of runs or time was reached; continue with: jepsen-run shrink --resume"
        in capsys.readouterr().out
    )
    assert cluster.shrink("--runs", "1", "--need", "2") == judging.UNKNOWN
    assert "the limit of runs or time was reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    "ended_by", [KeyboardInterrupt(), RuntimeError("a bug"), InfrastructureError("no room")]
)
def test_what_was_cut_off_goes_on_and_nothing_is_run_twice(cluster, capsys, ended_by):
    cluster.answers = of_the_cut
    assert cluster.shrink("--times", "2") == judging.INVALID
    whole, small = [*cluster.ran], result(capsys.readouterr().out)
    shutil.rmtree(cluster.root)
    cluster.ran.clear()
    cluster.answers = lambda test: of_the_cut(test) if len(cluster.ran) < 6 else ended_by
    status = cluster.shrink("--times", "2")
    assert status == {KeyboardInterrupt: 130, RuntimeError: 255, InfrastructureError: 2}[type(ended_by)]
    out, err = capsys.readouterr()
    if status != judging.INTERNAL:
        assert f"continue with: jepsen-run shrink --resume {cluster.directory}" in out + err
    assert reproduction.load(cluster.directory).findings == ("split-brain",)
    cluster.answers = of_the_cut
    assert cli.run(["shrink", "--resume", str(cluster.directory)]) == judging.INVALID
    assert [(test.spec, test.schedule) for test in cluster.ran] == [
        (test.spec, test.schedule) for test in whole
    ]
    assert [run.number for run in repeats._read(cluster.directory)] == [*range(1, len(whole) + 1)]
    again = result(capsys.readouterr().out)
    assert (again.spec, again.schedule) == (small.spec, small.schedule)


def test_more_may_be_asked_for_when_it_goes_on(cluster, capsys):
    cluster.answers = of_the_cut
    assert cluster.shrink("--runs", "3") == judging.INVALID
    assert cli.run(["shrink", "--resume", str(cluster.directory), "--runs", "40"]) == judging.INVALID
    assert len(result(capsys.readouterr().out).schedule.faults) == 1


def test_what_is_left_is_told_beforehand(cluster, capsys, monkeypatch):
    """Of three faults: all, two halves, and the third; then durations; each may take three runs."""
    clock = itertools.count(0, 60)
    monkeypatch.setattr(repeats, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    cluster.answers = of_the_cut
    cluster.shrink("--time-limit", "100000")
    told = capsys.readouterr().out
    assert re.findall(r"(without any fault|partition at 6 s shortened from 4 s to 2 s) \((.*)\)", told) == [
        ("without any fault", "at most 15 min left if no smaller schedule is found"),
        ("partition at 6 s shortened from 4 s to 2 s", "at most 6 min left if no smaller schedule is found"),
    ]


def test_a_smaller_schedule_that_cannot_be_is_said_and_not_run(cluster, capsys):
    def refuse(spec, schedule, *more):
        if len(schedule.faults) < 3:
            raise UsageError("no such cluster")
        return compose(spec, schedule, *more)

    cluster.answers = of_the_cut
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "compose", refuse)
        assert cluster.shrink() == judging.INVALID
    told = capsys.readouterr().out
    assert len(result(told).schedule.faults) == 3
    assert "not possible: no such cluster" in told
    assert all(len(test.schedule.faults) == 3 for test in cluster.ran)


def test_what_is_wrong_with_the_place_is_no_answer(cluster, capsys):
    cluster.answers = lambda _: UsageError("queue q0 is not empty")
    assert cluster.shrink() == judging.UNKNOWN
    assert "unknown: queue q0 is not empty; continue with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--need", "4"], "--need 4 is more than --times 3"),
        (["--finding", "lots"], 'unknown finding "lots": did you mean "lost"?'),
        (["--finding", "stuck"], "--finding stuck: "),
        (["--times", "0"], "0 is not in the range"),
        (["--resume", "nowhere"], "path cannot be changed with --resume"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_begun(cluster, capsys, words, complaint):
    assert cluster.shrink(*words) == judging.USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert complaint in err
    assert not cluster.root.exists()


def test_what_cannot_be_gone_on_with_is_one_line(cluster, tmp_path, capsys):
    assert cli.run(["shrink"]) == judging.USAGE
    assert "give a repro.json or a run's directory" in capsys.readouterr().err
    assert cli.run(["shrink", "--resume", str(tmp_path)]) == judging.USAGE
    assert "is not the directory of a shrink" in capsys.readouterr().err
    cluster.answers = of_the_cut
    cluster.shrink("--runs", "2")
    (cluster.directory / "runs" / "run-00001.json").write_text("{")
    capsys.readouterr()
    assert cli.run(["shrink", "--resume", str(cluster.directory)]) == judging.USAGE
    assert "run-00001.json is not the record of a run" in capsys.readouterr().err


def test_a_directory_without_a_verdict_says_by_an_option_what_may_come(cluster, tmp_path, capsys):
    bare = tmp_path / "bare"
    bare.mkdir()
    stores.save(bare, stores.SPEC, LOCAL)
    stores.save(bare, stores.SCHEDULE, Schedule(faults=(LONG,)))
    cluster.file = bare
    cluster.answers = of_the_cut
    assert cluster.shrink() == judging.USAGE
    assert "has no finding to make smaller" in capsys.readouterr().err
    assert cluster.shrink("--finding", "split-brain") == judging.INVALID
    assert result(capsys.readouterr().out).schedule.faults[0].duration_s == 4.0


def test_what_does_not_come_again_is_not_made_smaller(kept, tmp_path, capsys):
    gone = msgspec.structs.replace(reproduction.load(kept), schedule=Schedule())
    kept.write_bytes(msgspec.json.encode(gone))
    assert cli.run(["shrink", str(kept), "--store", str(tmp_path / "small")]) == judging.VALID
    assert "NOT REPRODUCED  split-brain" in capsys.readouterr().out
    assert not (tmp_path / "small").exists()


def test_nothing_found_and_more_needed_than_tried_are_refused(kept, capsys):
    assert cli.run(["shrink", str(kept), "--need", "4"]) == judging.USAGE
    assert "--need 4 is more than --times 3" in capsys.readouterr().err
    empty = msgspec.structs.replace(reproduction.load(kept), findings=())
    kept.write_bytes(msgspec.json.encode(empty))
    assert cli.run(["shrink", str(kept)]) == judging.USAGE
    assert "has no finding to make smaller" in capsys.readouterr().err


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.in_turn
@pytest.mark.distribution("artemis")
def test_a_finding_with_a_real_broker_is_made_smaller(tmp_path, capsys):
    """A broker alone whose disk is gone has lost what waited there; the pause did not do it."""
    spec = TestSpec(
        name="disk",
        system="artemis",
        policy="standalone",
        pairs=1,
        environment="local",
        time_limit_s=12.0,
        rate=40.0,
        producers=2,
        consumers=2,
        groups=2,
        hold_s=1.0,
        prefetch=1,
    )
    gone = Fault(kind="destroy", start_s=8.0, duration_s=0.5, target="a1")
    pause = Fault(kind="pause", start_s=1.0, duration_s=0.5, target="a1")
    stores.save(tmp_path, stores.SPEC, spec)
    stores.save(tmp_path, stores.SCHEDULE, Schedule(faults=(pause, gone)))
    words = ["shrink", str(tmp_path), "--finding", "lost", "--times", "1", "--time-limit", "600"]
    status = cli.run([*words, "--store", str(tmp_path / "small")])
    out = capsys.readouterr().out
    assert status == judging.INVALID, out
    (store,) = (tmp_path / "small" / "shrink-disk").glob("[0-9]*")
    without = repeats.digest_of(ShrinkCase(spec, Schedule(faults=(gone,))))
    came = [run.ended for run in repeats._read(store) if run.case == without]
    # A broker that stood still until its disk was gone has lost nothing: then the pause stays.
    assert result(out).schedule.faults == ((gone,) if "came" in came else (pause, gone)), out
    assert "without any fault" in out
