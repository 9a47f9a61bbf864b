"""``jepsen-run shrink``.

Exact in the simulation, k of n runs on real processes, and never a result that was not seen.
"""

import itertools
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import msgspec
import pytest

from harness.commands import cli
from harness.explore.shrink import reduction
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import Fault, Schedule, TestSpec
from harness.run import reproduction, session
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
    ("came", "need", "times", "expected", "tries"),
    [
        ([True], 1, 3, True, 1),
        ([False, False, True], 1, 3, True, 3),
        ([False, False, False], 1, 3, False, 3),
        ([True, False, True], 2, 3, True, 3),
        ([False, False], 2, 3, False, 2),
        ([False], 3, 3, False, 1),
    ],
)
def test_k_of_n_is_decided_as_early_as_it_can_be(came, need, times, expected, tries):
    runs = iter(came)
    count = itertools.count(1)
    tried = []

    def once():
        tried.append(next(count))
        return next(runs)

    assert reduction.enough(once, need, times) is expected
    assert len(tried) == tries


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


def test_on_processes_faults_are_taken_away_and_nothing_else(kept, tmp_path, capsys, monkeypatch):
    """The runs are answered by the simulation, and every other one is unlucky.

    With 1 of 2 the cause is still found.
    """
    luck = itertools.cycle([False, True])
    ran, showed = [], {}

    def execute(test, root, talk, *, spark):
        ran.append(test.schedule)
        came = CUT in test.schedule.faults and next(luck)
        store = root / str(len(ran))
        if came:
            showed[store] = test.schedule
        found = [SimpleNamespace(name="split-brain", severity="grave")] if came else []
        verdict = SimpleNamespace(findings=found, valid=not came, reasons=())
        return SimpleNamespace(status=int(came), verdict=verdict, store=store)

    from checkers import api

    monkeypatch.setattr(session, "execute", execute)
    monkeypatch.setattr(api, "start_in_background", lambda **_: None)
    known = reproduction.load(kept)
    sound = Schedule(
        faults=tuple(
            msgspec.structs.replace(fault, kind="kill") if fault.kind == "disk-slow" else fault
            for fault in known.schedule.faults
        )
    )
    local = msgspec.structs.replace(
        known,
        environment="local",
        schedule=sound,
        spec=msgspec.structs.replace(known.spec, environment="local"),
    )
    kept.write_bytes(msgspec.json.encode(local))
    words = ["shrink", str(kept), "--need", "1", "--times", "2", "--store", str(tmp_path / "small")]
    assert cli.run(words) == judging.INVALID
    told = capsys.readouterr().out
    small = result(told)
    assert small.schedule.faults == (CUT,)
    assert showed[reported(told)] == small.schedule
    assert small.spec == local.spec
    assert small.digest == ""
    ran.clear()
    assert cli.run([*words, "--runs", "2"]) == judging.INVALID
    assert len(ran) == 2
    assert "the budget ended it" in capsys.readouterr().out


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
    assert "nothing was found there" in capsys.readouterr().err
