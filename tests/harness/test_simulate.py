"""One seed gives one history.

In every process, whatever its hash seed, through every way to run a test.
"""

import contextlib
import gc
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
import share
from simulated_process import EVERYTHING, plan_of

from checkers.schema import COLUMNS
from environments.simulation.world import World
from harness.claims.scenarios import SCENARIOS, named
from harness.claims.scenarios.seen import ObservedRun
from harness.explore.swarm import DEFAULTS
from harness.history import coverage
from harness.interface import Fault, Schedule, TestSpec, UsageError
from harness.run import session
from harness.run.compose import compose
from harness.run.simulate import simulate
from harness.systems import registry
from harness.systems.own.events import EVENTS
from harness.systems.own.system import OwnSystem

IDENTIFIERS = [*(scenario.id for scenario in SCENARIOS), EVERYTHING]
PROGRAM = Path(__file__).with_name("simulated_process.py")


def start(seed, hash_seed, *words):
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(seed), *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROGRAM.parents[2],
    )


def output(process):
    said, _ = process.communicate()
    assert process.returncode == 0
    return said


class Elsewhere:
    """Another process, with another hash seed, that runs these."""

    def __init__(self, identifiers):
        self._process = start(1, 2 if os.environ.get("PYTHONHASHSEED") == "1" else 1, *identifiers)
        self._digests = {}

    def digests_of(self, identifier):
        """[of its history, of its trace], waited for."""
        while identifier not in self._digests:
            line = self._process.stdout.readline()
            assert line, f"the other process ended with {self._process.wait()} before {identifier}"
            self._digests |= json.loads(line)
        return self._digests[identifier]

    def end(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def elsewhere(pytestconfig):
    process = Elsewhere(share.few(pytestconfig.getoption(share.OPTION), IDENTIFIERS))
    yield process
    process.end()


class Simulated:
    """What came of scenarios and of everything with seed 1, each simulated once if it can be."""

    def __init__(self):
        self._runs = {}

    def __call__(self, identifier):
        """A run, judged."""
        if identifier not in self._runs:
            self._runs[identifier] = self._simulate(identifier)
        return self._runs[identifier]

    def digests_of(self, identifier):
        """[of its history, of its trace]: the verdict, which takes long, does not change them."""
        run = self._runs.get(identifier) or self._simulate(identifier, judge=False)
        return [run.digest, run.trace_digest]

    def _simulate(self, identifier, **options):
        spec, schedule = plan_of(identifier)
        return simulate(msgspec.structs.replace(spec, seed=1), schedule, **options)


@pytest.fixture(scope="module")
def simulated_once():
    return Simulated()


def first_difference(ours, theirs):
    """The first line in which two runs part, with what came before."""
    lines = itertools.zip_longest(ours.splitlines(), theirs.splitlines(), fillvalue="(ended)")
    before = []
    for number, (one, other) in enumerate(lines):
        if one != other:
            return "\n".join(
                [*before[-3:], f"line {number} of the one:   {one}", f"line {number} of the other: {other}"]
            )
        before.append(one)
    return None


@pytest.mark.slow
def test_a_difference_would_be_shown_by_its_first_line():
    texts = [output(start(seed, 0, "--rows", "RP1")) for seed in (1, 2)]
    assert "of the one:" in first_difference(*texts)
    assert first_difference(texts[0], texts[0]) is None


@pytest.mark.slow
def test_again_in_one_process_is_the_same_and_another_seed_is_another_history():
    spec, schedule = plan_of("RP14-true")
    first, again = (simulate(spec, schedule, judge=False) for _ in range(2))
    other = simulate(msgspec.structs.replace(spec, seed=7), schedule, judge=False)
    assert (first.digest, first.trace_digest, first.steps) == (again.digest, again.trace_digest, again.steps)
    assert first.rows == again.rows
    assert other.digest != first.digest


@pytest.mark.slow
def test_tracing_and_judging_change_nothing():
    spec, schedule = plan_of("RP4")
    plain = simulate(spec, schedule, judge=False)
    watched = simulate(spec, schedule, trace=True)
    assert plain.digest == watched.digest
    assert plain.trace == ""
    assert "a1 spawned" in watched.trace
    assert plain.valid is None
    assert watched.valid is False


def pytest_generate_tests(metafunc):
    if "retold" in metafunc.fixturenames:
        share.parametrize(metafunc, "retold", {each: each for each in IDENTIFIERS}, share.few)


@pytest.fixture(scope="module")
def shared_directory(tmp_path_factory):
    """A directory of all processes among which the tests of this run are shared."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "histories"
    directory.mkdir(exist_ok=True)
    return directory


def first_with(directory, digest, identifier):
    """Return the first scenario that had a history of that digest, which may be this one."""
    told = directory / f"{identifier}.told"
    told.write_text(identifier)
    with contextlib.suppress(FileExistsError):
        os.link(told, directory / digest)
    return (directory / digest).read_text()


def with_marks(scenarios):
    """The first scenario of each row is tried with each commit of CI, its other cases in turn."""
    rows = set()
    for scenario in scenarios:
        yield pytest.param(scenario, marks=pytest.mark.in_turn if scenario.row in rows else pytest.mark.row)
        rows.add(scenario.row)


@pytest.mark.parametrize(
    "scenario",
    [*with_marks(SCENARIOS)],
    ids=lambda scenario: scenario.id,
)
@pytest.mark.slow
def test_a_scenario_has_the_verdict_of_the_documents(scenario, simulated_once, shared_directory):
    """And no other has its history. With seed 2: tests/scenarios, as ``jepsen-run claims`` runs."""
    run = simulated_once(scenario.id)
    assert first_with(shared_directory, f"{run.digest}-{run.trace_digest}", scenario.id) == scenario.id
    problem = scenario.judge(ObservedRun.of_simulated(run)).problem
    assert not problem, f"{problem} ({run.trouble})"
    bit = [name for name in run.coverage if name.startswith("fault/")]
    assert bit, run.coverage


@pytest.mark.slow
def test_a_test_with_a_fault_of_every_kind_comes_to_its_end(simulated_once):
    spec, schedule = plan_of(EVERYTHING)
    run = simulated_once(EVERYTHING)
    assert run.trouble is None
    phases = [row["value"] for row in run.rows if row["f"] == "phase"]
    assert phases[:4] == ["deploy", "start", "load", "heal"]
    assert phases[-3:] == ["drain", "browse", "end"]
    assert {name.split("/")[1] for name in run.coverage if name.startswith("fault/")} == {
        fault.kind for fault in schedule.faults
    }
    assert run.virtual_s > spec.time_limit_s


@pytest.mark.slow
def test_the_history_is_the_same_in_another_process_with_another_hash_seed(retold, simulated_once, elsewhere):
    if simulated_once.digests_of(retold) != elsewhere.digests_of(retold):
        texts = [output(start(1, hash_seed, "--rows", retold)) for hash_seed in (1, 2)]
        pytest.fail(f"{retold} is not decided by its seed:\n{first_difference(*texts)}")


def test_two_scenarios_with_one_history_are_told_apart(tmp_path):
    assert first_with(tmp_path, "aa", "RP1") == first_with(tmp_path, "aa", "RP1") == "RP1"
    assert first_with(tmp_path, "aa", "RP2") == "RP1"
    assert first_with(tmp_path, "bb", "RP2") == "RP2"


@pytest.mark.slow
def test_the_command_line_gives_the_history_that_simulate_gives(tmp_path, capsys):
    """It takes some 20 s where nothing else runs: Spark judges, and its JVM starts for that."""
    from checkers import api

    spec, schedule = plan_of("RP11")
    spec = msgspec.structs.replace(spec, environment="simulation", time_limit_s=9.0)
    outcome = session.execute(compose(spec, schedule), tmp_path, sys.stdout, spark=api.start_in_background())
    assert outcome.verdict is not None
    assert outcome.verdict.valid is False
    assert "lost" in {finding.name for finding in outcome.verdict.findings}
    tables = [pq.read_table(file) for file in sorted((outcome.store / "history").glob("*.parquet"))]
    rows = sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["index"])
    run = simulate(spec, schedule)
    assert [{name: row[name] for name in COLUMNS} for row in rows] == run.rows
    grave = {finding.name for finding in outcome.verdict.findings if finding.severity == "grave"}
    assert grave == run.grave
    assert (outcome.store / "logs" / "a1" / "broker.log").read_text()
    assert (outcome.store / "report.html").is_file()
    assert (outcome.store / "junit.xml").is_file()
    assert "phase load" in capsys.readouterr().out


def test_brokers_that_cannot_start_are_the_machines_fault_with_their_last_words():
    spec = TestSpec(name="t", pairs=1, properties={"a2": {"cluster.cluster-password": "another"}})
    run = simulate(spec, Schedule())
    assert run.valid is None
    assert "pair a has no up-to-date backup" in run.trouble
    assert "a2 logged last" in run.trouble
    assert "cluster-password" in run.trouble


def test_a_schedule_that_cannot_be_carried_out_is_refused():
    spec = TestSpec(name="t", pairs=1)
    with pytest.raises(UsageError, match="unknown option"):
        simulate(spec, Schedule(faults=(Fault(kind="disk-slow", start_s=1, options={"delay": 3}),)))


@pytest.mark.slow
def test_coverage_names_what_happened_and_what_never_did():
    kill = simulate(named("RP1").spec, named("RP1").schedule, judge=False)
    assert kill.coverage["fault/kill"] == 1
    assert kill.coverage["failover/taken"] == 2, "once by a2, once by a1 that came back"
    assert kill.coverage["failback/begun"] == 1
    assert kill.coverage["sync/begun"] >= 2
    assert kill.coverage["client/lost"] > 0
    cut = simulate(named("RP5").spec, named("RP5").schedule, judge=False)
    assert cut.coverage["vote/live-lost"] == 1
    assert cut.coverage["vote/granted"] >= 2
    assert cut.coverage["fault/partition/isolate-live"] == 1
    system = registry.of(cut.spec)
    among = coverage.possible(
        system.plan(cut.spec),
        ["kill", "pause", "partition"],
        cut.spec.workload,
        EVENTS,
        system.policies[cut.spec.policy].traits,
    )
    never = coverage.never([kill.coverage, cut.coverage], among)
    assert "fault/pause" in never
    assert "failback/interrupted" in never
    assert "fault/kill" not in never
    assert "failover/taken" not in never
    known = set(coverage.meanings(EVENTS))
    assert {name for name in {*kill.coverage, *cut.coverage} if not name.startswith("fault")} <= known & among


def worlds():
    """Those that anybody still knows, when what nobody knows is gone and has let go of its own."""
    for _ in range(10):
        if not gc.collect():
            break
    return {id(one): one for one in gc.get_objects() if isinstance(one, World)}


def kept(before, patience_s=10.0):
    """Whom a world that is not among ``before`` is known to; "" when there is none in the end.

    A collection does nothing where another thread (Spark's, the test runner's) is at one.
    """
    end = time.monotonic() + patience_s
    while new := [one for key, one in worlds().items() if key not in before]:
        if time.monotonic() > end:
            return "; ".join(
                f"{type(one).__name__} {str(one)[:200]}" for one in gc.get_referrers(new[0]) if one is not new
            )
        del new
        time.sleep(0.1)
    return ""


@pytest.mark.parametrize("policy", OwnSystem.policies)
def test_a_run_that_is_over_keeps_nothing_of_its_world(policy):
    """A campaign of a night has tens of thousands of them."""
    spec = TestSpec(
        **{
            **DEFAULTS,
            "name": "over",
            "policy": policy,
            "pairs": 1 + 2 * (policy == "ha-database"),
            "time_limit_s": 1.0,
        }
    )
    before = set(worlds())
    assert simulate(spec).valid
    assert kept(before) == ""


def test_a_world_that_somebody_keeps_is_told_with_who_does():
    before = set(worlds())
    keeper = [World()]
    assert kept(before, 0.0).startswith("list [")
    keeper.clear()
    assert kept(before) == ""
