"""A replay says whether a finding comes back.

Exactly in the simulation, in k of n runs elsewhere.
"""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from harness.claims.scenarios import named
from harness.commands import cli
from harness.explore import replay
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import Fault, Schedule, TestSpec, UsageError
from harness.run import reproduction, session
from harness.run.compose import compose
from harness.run.simulate import simulate

CUT = Schedule(faults=(Fault(kind="partition", start_s=1.0, duration_s=3.0, shape="pair-link"),))
SPEC = TestSpec(
    name="replayed", pairs=1, time_limit_s=4.0, rate=20.0, producers=2, consumers=2, groups=2, seed=3
)


@pytest.fixture(scope="module")
def found():
    run = simulate(SPEC, CUT)
    assert "split-brain" in run.grave
    return run


@pytest.fixture
def kept(found, tmp_path):
    return reproduction.keep(stores.create(tmp_path, "kept"), found, "a test")


def changed(path, **fields):
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(reproduction.load(path), **fields)))
    return path


def answer(capsys, *words):
    status = cli.run(["replay", *map(str, words), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["exit-status"] == status
    return status, said


def test_a_kept_run_is_reproduced_byte_for_byte(kept, capsys):
    status, said = answer(capsys, kept)
    assert (status, said["answer"], said["exact"]) == (judging.INVALID, "reproduced", True)
    assert said["found"][0] == said["wanted"][0] == "split-brain"


def test_the_directory_of_a_kept_run_is_as_good_as_its_file_and_can_be_judged(kept, capsys):
    assert answer(capsys, kept.parent)[1]["exact"]
    assert stores.find(kept.parent) == [kept.parent]
    assert stores.load_spec(kept.parent) == reproduction.load(kept).spec
    assert "serving STOMP" in (kept.parent / stores.LOGS / "a1" / "broker.log").read_text()


def test_another_history_with_the_same_finding_is_reproduced_and_said_to_be_another(kept, capsys):
    changed(kept, digest="0" * 64, versions={"jepsen-run": "0.0.1", "python": "3.1"})
    assert cli.run(["replay", str(kept)]) == judging.INVALID
    told = capsys.readouterr().out
    assert "REPRODUCED" in told
    assert "another history than the recorded one: it was made with jepsen-run 0.0.1, python 3.1" in told


def test_another_finding_is_not_called_reproduced(kept, capsys):
    status, said = answer(capsys, changed(kept, findings=("lost",)))
    assert (status, said["answer"]) == (judging.INVALID, "different finding")
    assert "split-brain" in said["found"]


def test_without_its_cause_a_finding_is_not_reproduced(kept, capsys):
    status, said = answer(capsys, changed(kept, schedule=Schedule()))
    assert (status, said["answer"], said["found"], said["exact"]) == (
        judging.VALID,
        "not reproduced",
        [],
        False,
    )


def test_a_run_that_cannot_be_decided_is_unknown(kept, capsys):
    spec = msgspec.structs.replace(SPEC, properties={"a2": {"cluster.cluster-password": "another"}})
    assert cli.run(["replay", str(changed(kept, spec=spec))]) == judging.UNKNOWN
    told = capsys.readouterr().out
    assert "UNKNOWN  after " in told
    assert "pair a has no up-to-date backup" in told


def test_several_times_in_the_simulation_are_several_seeds(kept, capsys):
    _, said = answer(capsys, kept, "--times", "2")
    assert [one["seed"] for one in said["attempts"]] == [3, 4]
    assert said["of"] == 2
    assert said["reproduced"] >= 1


def test_a_witness_has_the_rows_that_show_it(found, kept):
    for witness in reproduction.load(kept).witness:
        instance = min((one for one in found.findings if one.name == witness.name), key=lambda one: one.index)
        assert instance.index in [row["index"] for row in witness.rows]
        assert 1 <= len(witness.rows) <= reproduction.WITNESS_ROWS
        for row in witness.rows:
            assert row == {
                name: value for name, value in found.rows[row["index"]].items() if value is not None
            }


def test_causes_are_named_before_what_follows_from_them():
    assert reproduction.ordered({"zombie", "duplicate", "split-brain", "new"}) == (
        "split-brain",
        "duplicate",
        "zombie",
        "new",
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "is no reproduction"),
        (b"[]", "is no reproduction"),
        (b'{"format": 1, "seeds": 3}', "unknown field `seeds`"),
        ({"format": 2}, "has format 2: this version reads 1"),
        ({"spec": {"pairs": 0}}, "--pairs is 0: it must be at least 1"),
        ({"spec": {"pears": 3}}, "unknown field `pears`"),
        ({"schedule": {"faults": [{"kind": "klil", "start-s": 1.0}]}}, 'did you mean "kill"'),
    ],
)
def test_a_bad_file_is_one_clear_line(content, complaint, kept, capsys):
    if isinstance(content, dict):
        document = json.loads(kept.read_bytes())
        for name, value in content.items():
            document[name] = {**document[name], **value} if isinstance(value, dict) else value
        content = json.dumps(document).encode()
    kept.write_bytes(content)
    assert cli.run(["replay", str(kept)]) == judging.USAGE
    said = capsys.readouterr().err.strip()
    assert complaint in said
    assert "\n" not in said


def test_what_is_not_there_is_one_clear_line(tmp_path, capsys):
    assert cli.run(["replay", str(tmp_path / "missing.json")]) == judging.USAGE
    assert "cannot be read: No such file" in capsys.readouterr().err
    assert cli.run(["replay", str(tmp_path)]) == judging.USAGE
    assert "is not the directory of a run" in capsys.readouterr().err


def real(monkeypatch, kept, *outcomes):
    """A reproduction of a run on processes, whose repetitions end so."""
    changed(kept, environment="local", digest="", spec=msgspec.structs.replace(SPEC, environment="local"))
    ends = iter(outcomes)

    def repeated(kept, times, request, talk):
        for _ in range(times):
            valid, *grave = next(ends)
            yield replay.Attempt(
                valid=valid, grave=frozenset(grave), trouble=None if valid is not None else "cut"
            )

    monkeypatch.setattr(replay, "_real", repeated)


def test_on_processes_the_answer_is_k_of_n_and_the_simulation_is_tried_too(
    monkeypatch, kept, tmp_path, capsys
):
    real(monkeypatch, kept, (True,), (False, "split-brain"), (None,))
    status, said = answer(capsys, kept, "--store", tmp_path / "again")
    assert (status, said["answer"], said["reproduced"], said["of"]) == (judging.INVALID, "reproduced", 1, 3)
    assert "also in the simulation" in said["simulated"]
    simulated = said["simulated"].split()[-1]
    assert answer(capsys, simulated)[1]["exact"]


def test_on_processes_another_finding_outweighs_runs_without_any(monkeypatch, kept, tmp_path, capsys):
    real(monkeypatch, kept, (True,), (False, "lost"))
    _, said = answer(capsys, kept, "--times", "2", "--store", tmp_path / "again")
    assert (said["answer"], said["found"]) == ("different finding", ["lost"])


def test_on_processes_runs_that_could_not_be_decided_do_not_hide_one_that_was_valid(
    monkeypatch, kept, tmp_path, capsys
):
    real(monkeypatch, kept, (None,), (True,))
    changed(kept, schedule=Schedule())
    status, said = answer(capsys, kept, "--times", "2", "--store", tmp_path / "again")
    assert (status, said["answer"], said["simulated"]) == (
        judging.VALID,
        "not reproduced",
        "not in the simulation",
    )


def test_an_interrupt_says_what_was_seen_until_then(monkeypatch, kept, capsys):
    def repeated(*_):
        yield replay.Attempt(valid=False, grave=frozenset({"split-brain"}))
        yield replay.Attempt(valid=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "_simulated", repeated)
    assert cli.run(["replay", str(kept), "--times", "5"]) == judging.INTERRUPTED
    said = capsys.readouterr()
    assert said.out.endswith("interrupted after 2 of 5 runs: 1 reproduced, 1 not reproduced\n")
    assert not said.err


@pytest.mark.cluster
@pytest.mark.spark
def test_on_processes_the_same_faults_are_done_to_real_brokers_and_then_in_the_simulation(
    kept, tmp_path, capsys
):
    changed(kept, environment="local", digest="", spec=msgspec.structs.replace(SPEC, environment="local"))
    _, said = answer(capsys, kept, "--times", "1", "--store", tmp_path / "again")
    assert (said["environment"], said["of"]) == ("local", 1)
    (attempt,) = said["attempts"]
    store = Path(attempt["store"])
    assert stores.load_run(store).environment == "local"
    assert stores.load_schedule(store) == CUT
    verdict = json.loads((store / stores.FINDINGS).read_bytes())
    grave = {found["name"] for found in verdict["findings"] if found["severity"] == "grave"}
    assert set(said["found"]) == grave
    assert said["reproduced"] == bool(grave & set(said["wanted"]))
    exact = said["simulated"].split()[-1]
    assert answer(capsys, exact)[1]["exact"]


@pytest.mark.spark
def test_a_simulated_run_that_is_invalid_leaves_its_reproduction(tmp_path, capsys):
    from checkers import api

    scenario = named("RP4")
    spec = msgspec.structs.replace(scenario.spec, environment="simulation", time_limit_s=10.0)
    test = compose(spec, scenario.schedule, "")
    outcome = session.execute(test, tmp_path, sys.stdout, spark=api.start_in_background())
    assert outcome.status == judging.INVALID
    told = capsys.readouterr().out
    assert f"Replay   jepsen-run replay {outcome.store}" in told
    assert f"--schedule {outcome.store}/schedule.json" in told
    status, said = answer(capsys, outcome.store)
    assert (status, said["exact"]) == (judging.INVALID, True)
    assert set(said["found"]) == {
        finding.name for finding in outcome.verdict.findings if finding.severity == "grave"
    }


def test_a_stored_run_without_the_file_is_replayed_from_its_spec_schedule_and_verdict(tmp_path, capsys):
    store = stores.create(tmp_path, "old")
    record = stores.new_record()
    record.environment = "simulation"
    stores.save(store, stores.SPEC, SPEC)
    stores.save(store, stores.SCHEDULE, CUT)
    stores.save(store, stores.RUN, record)
    stores.save(store, stores.FINDINGS, {"findings": [{"name": "split-brain", "severity": "grave"}]})
    status, said = answer(capsys, store)
    assert (status, said["answer"], said["exact"]) == (judging.INVALID, "reproduced", False)
    (store / stores.SCHEDULE).unlink()
    with pytest.raises(UsageError, match="no faults to repeat"):
        reproduction.load(store)
