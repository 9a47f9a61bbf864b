"""A sweep judges many runs at once as each would be judged alone, runs only what is missing, and
names what it could not read.
"""

import json
import os
import re
import zipfile
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers import session
from checkers.arrow_schema import SCHEMA
from checkers.runs import RunsSource, judge_runs
from checkers.verdict import CheckOptions
from harness.commands import cli
from harness.explore import plans, runs, workers
from harness.explore.plans import Cell, SweepPlan
from harness.explore.sweep import deployed, histories, sweep
from harness.explore.sweep import table as sweep_table
from harness.history import judge as judging
from harness.history import plain_judge
from harness.history import store as stores
from harness.interface import InfrastructureError, Schedule
from harness.run import reproduction
from harness.run.simulate import simulate
from harness.systems import given, registry

RUNS = 8
BREAKING = ("partition", "kill")
"""One pair survives a kill and not a partition (RP4): both verdicts are among a few runs."""


@pytest.fixture(scope="session")
def spark():
    # One Spark a process: the session of the checkers' tests, where they run too, is this one.
    return session.start("local[2]", hurried=True)


def plan_of(**fields):
    given = {
        "pairs": 1,
        "nemeses": BREAKING,
        "seed": 5,
        "time_limit_s": 6.0,
        "shapes": ("pair-link",),
        **fields,
    }
    return plans.sweep_plan(given, RUNS)


@pytest.fixture(scope="session")
def swept(spark, tmp_path_factory):
    """One sweep for all tests that only look: its exit status, its directory, what it said."""
    root = tmp_path_factory.mktemp("swept")
    status = sweep.run(plans.ExploreRequest(plan=plan_of(), root=root))
    return status, (root / "latest").resolve()


@pytest.fixture
def copy(swept, tmp_path):
    """The same sweep, to be damaged and gone on with."""
    _, store = swept
    there = tmp_path / "sweep"
    (there / histories.DIRECTORY).mkdir(parents=True)
    for path in (store / SweepPlan.file(), *(store / histories.DIRECTORY).glob("*.parquet")):
        (there / path.relative_to(store)).write_bytes(path.read_bytes())
    return there


def table_of(store):
    return json.loads((store / stores.SWEEP_TABLE).read_bytes())


def resume(store, runs=None):
    return sweep.run(plans.ExploreRequest(plan=SweepPlan.load(store, runs=runs), store=store))


def file_of(store, number):
    return store / histories.DIRECTORY / histories.name(number)


def stamps(store):
    return {path.name: path.stat().st_mtime_ns for path in (store / histories.DIRECTORY).iterdir()}


def test_a_sweep_has_a_page_that_links_the_runs_it_keeps(swept):
    _, store = swept
    page = (store / stores.SWEEP_PAGE).read_text(encoding="utf-8")
    kept = [run["reproduction"] for run in table_of(store)["worst"] if run["reproduction"]]
    assert kept
    assert all(path.rpartition("/")[0].rpartition("/")[2] in page for path in kept)


def test_every_run_is_judged_as_it_is_alone(spark, swept):
    _, store = swept
    there = list(histories.read(store / histories.DIRECTORY, RUNS))
    plan = SweepPlan.load(store)
    source = RunsSource(spark, histories.files(there))
    options = msgspec.structs.replace(plain_judge.options_of(plan.base, Schedule()), examples=10**9)
    judged = judge_runs(source, options, {r.number for _, r in there if r.schedule.faults})
    assert sorted(judged) == list(range(RUNS))
    told = {run["number"]: run for run in table_of(store)["runs"]}
    found_any = 0
    for number in range(RUNS):
        alone = simulate(*plans.drawn(plan, number))
        together = judged[number]
        instances = {
            (i.name, i.queue, i.group, i.message, i.index, i.key)
            for some in together.found.values()
            for i in some.first
        }
        assert instances == {(i.name, i.queue, i.group, i.message, i.index, i.key) for i in alone.findings}
        assert together.decision.grave == alone.grave
        assert together.decision.valid == alone.valid
        assert told[number]["ended"] == {True: "valid", False: "invalid", None: "unknown"}[alone.valid]
        assert told[number]["digest"] == alone.digest
        found_any += bool(instances)
    assert 0 < found_any < RUNS


@pytest.mark.parametrize("guarantee", ["at-most-once", "exactly-once"])
def test_another_guarantee_is_judged_alike_together_and_alone(spark, swept, guarantee):
    _, store = swept
    there = list(histories.read(store / histories.DIRECTORY, RUNS))
    options = CheckOptions(guarantee=guarantee, expect_faults=True)
    judged = judge_runs(RunsSource(spark, histories.files(there)), options, range(RUNS))
    redelivered = 0
    for path, record in there:
        rows = pq.read_table(path, columns=SCHEMA.names).to_pylist()
        spec = msgspec.structs.replace(record.spec, guarantee=guarantee)
        alone = plain_judge.judge(rows, spec, record.schedule)
        assert judged[record.number].decision.grave == alone.decision.grave
        redelivered += "redelivery" in alone.decision.grave
    assert redelivered


def test_a_sweep_is_decided_by_its_seed_and_each_run_is_of_its_cell(swept):
    _, store = swept
    plan = plan_of()
    assert plan.cells == (
        Cell(policy="replication", nemesis="partition"),
        Cell(policy="replication", nemesis="kill"),
    )
    for number, (_, record) in enumerate(histories.read(store / histories.DIRECTORY, RUNS)):
        assert record.number == number
        assert record.spec.nemeses == (BREAKING[number % 2],)
        assert {fault.kind for fault in record.schedule.faults} <= {BREAKING[number % 2]}
        assert record.spec == plans.drawn(plan, number)[0]
    assert plans.drawn(plan_of(seed=6), 0) != plans.drawn(plan, 0)


def test_the_table_counts_each_cell_and_the_exit_status_says_that_something_was_found(swept):
    status, store = swept
    table = table_of(store)
    assert status == table["exit-status"] == judging.INVALID
    partition, kill = table["table"]
    assert (partition["nemesis"], kill["nemesis"]) == BREAKING
    for row in (partition, kill):
        mine = [run for run in table["runs"] if run["cell"]["nemesis"] == row["nemesis"]]
        assert row["runs"] == len(mine) == RUNS // 2
        assert row["invalid"] == sum(run["ended"] == "invalid" for run in mine)
        exposed = [run for run in mine if run["exposed"]]
        rate = row["anomalies"][sweep_table.ANY]
        assert (rate["seen"], rate["of"]) == (sum(bool(run["grave"]) for run in exposed), len(exposed))
    assert partition["anomalies"]["split-brain"]["seen"] > 0
    assert kill["anomalies"]["split-brain"]["seen"] == 0


def test_the_worst_runs_come_again_from_what_was_kept(swept):
    _, store = swept
    worst = table_of(store)["worst"]
    assert worst
    for kept in worst:
        again = reproduction.load(store / "worst" / f"run-{kept['number']:06d}" / reproduction.FILE)
        run = simulate(again.spec, again.schedule)
        assert run.digest == again.digest
        assert sorted(run.grave) == sorted(kept["findings"])
        assert kept["again"] == reproduction.line(
            store / "worst" / f"run-{kept['number']:06d}" / "repro.json"
        )


def test_resuming_runs_only_what_is_missing_and_gives_what_it_gave(swept, copy):
    _, store = swept
    file_of(copy, 1).unlink()
    file_of(copy, 4).unlink()
    (copy / histories.DIRECTORY / ".run-000001.parquet.99").write_bytes(b"half of")
    before = stamps(copy)
    assert resume(copy) == judging.INVALID
    after = stamps(copy)
    assert after.keys() == {histories.name(number) for number in range(RUNS)}
    untouched = after.keys() - {histories.name(1), histories.name(4)}
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    whole, again = table_of(store), table_of(copy)
    assert again["runs"] == whole["runs"]
    assert again["table"] == whole["table"]


@pytest.mark.parametrize(("jobs", "master"), [(2, None), (1, "local[2]")])
def test_processes_and_tasks_of_spark_simulate_the_same(swept, copy, jobs, master):
    for number in range(3):
        file_of(copy, number).unlink()
    plan = SweepPlan.load(copy)
    sweep.run(plans.ExploreRequest(plan=plan, store=copy, jobs=jobs, spark_master=master))
    assert table_of(copy)["runs"] == table_of(swept[1])["runs"]


def test_resuming_may_ask_for_more_runs_and_not_for_fewer(copy, capsys):
    before = stamps(copy)
    assert resume(copy, RUNS + 1) == judging.INVALID
    assert stamps(copy).items() >= before.items()
    assert [run["number"] for run in table_of(copy)["runs"]] == list(range(RUNS + 1))
    capsys.readouterr()
    assert cli.run(["sweep", "--resume", str(copy), "--runs", "2"]) == judging.USAGE
    assert capsys.readouterr().err == (
        f"jepsen-run: --runs is 2, but {copy} was begun with {RUNS + 1}: give as many or more\n"
    )


def test_a_damaged_history_is_told_by_name_and_spoils_no_other(swept, copy, capsys):
    _, store = swept
    path = file_of(copy, 0)
    data = bytearray(path.read_bytes())
    for at in range(200, 400):
        data[at] ^= 0xFF
    path.write_bytes(data)
    assert resume(copy) == judging.INVALID
    told = capsys.readouterr().out
    first, *others = table_of(copy)["runs"]
    assert first["ended"] == "unknown"
    assert str(path) in first["trouble"]
    assert " ".join(f"Unknown  run 0: {first['trouble']}".split()) in " ".join(told.split())
    assert others == table_of(store)["runs"][1:]


def test_a_broken_history_is_told_by_row_and_spoils_no_other(swept, copy):
    _, store = swept
    path = file_of(copy, 0)
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table.slice(0, 40), table.slice(50)]), path)
    assert resume(copy) == judging.INVALID
    first, *others = table_of(copy)["runs"]
    assert first["ended"] == "unknown"
    assert first["trouble"] == (
        f"{path.resolve()}: row 40: there is no row of this index: rows were cut out, or are in a file "
        "that is not here"
    )
    assert others == table_of(store)["runs"][1:]


def test_a_bad_row_of_control_spoils_what_it_is_about_and_no_other_run(swept, copy):
    _, store = swept
    for number in range(2):
        table = pq.read_table(file_of(copy, number))
        values = table.to_pylist()
        bad = next(row for row in values if row["process"] == -1)
        bad["value"] = "no JSON"
        pq.write_table(pa.Table.from_pylist(values, schema=table.schema), file_of(copy, number))
    before, after = table_of(store)["runs"], (resume(copy), table_of(copy)["runs"])[1]
    assert after[2:] == before[2:]
    for was, now in zip(before[:2], after[:2], strict=True):
        if was["ended"] == "invalid":
            assert (now["ended"], now["grave"]) == ("invalid", was["grave"])
        else:
            assert now["ended"] == "unknown"
            assert now["trouble"].endswith("value is not a JSON object: 'no JSON'")


def test_a_broken_history_is_graver_than_an_unknown_one():
    ended = {"valid": 3, "invalid": 0, "unknown": 1, "crashed": 0}
    assert sweep.status(ended) == judging.VALID
    assert sweep.status(ended, broken=1) == judging.USAGE
    assert sweep.status({**ended, "crashed": 1}, broken=1) == judging.INTERNAL
    assert sweep.status({**ended, "invalid": 1}, broken=1) == judging.INVALID


def test_a_history_of_another_run_is_not_taken_for_it(swept, copy):
    table = pq.read_table(file_of(copy, 1))
    metadata = pq.read_schema(file_of(copy, 0)).metadata
    pq.write_table(table.replace_schema_metadata(metadata), file_of(copy, 0))
    resume(copy)
    first = table_of(copy)["runs"][0]
    assert first["ended"] == "unknown"
    assert (
        first["trouble"] == f"{file_of(copy, 0).resolve()} is not the history of run 0: it has rows of run 1"
    )


@pytest.mark.parametrize(
    ("content", "said"), [(b"PAR1", "is damaged"), (b"", "is damaged"), (None, "is not a run of a sweep")]
)
def test_a_file_that_is_no_run_is_named_before_anything_is_simulated(copy, capsys, content, said):
    path = file_of(copy, 3)
    if content is None:
        pq.write_table(SCHEMA.empty_table(), path)
    else:
        path.write_bytes(content)
    file_of(copy, 5).unlink()
    assert cli.run(["sweep", "--resume", str(copy)]) == judging.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"jepsen-run: {path} {said}")
    assert line.endswith("remove it, and the sweep simulates that run again with --resume")
    assert not file_of(copy, 5).exists()


def test_a_run_that_crashes_is_kept_as_its_own_trouble_and_run_again_on_resuming(
    swept, copy, capsys, monkeypatch
):
    def crash(spec, schedule, *, judge):
        raise RuntimeError("a bug of ours")

    plan = SweepPlan.load(copy)
    before = stamps(copy)
    number = next(run["number"] for run in table_of(swept[1])["runs"] if run["ended"] == "valid")
    with monkeypatch.context() as patched:
        patched.setattr(runs, "simulate", crash)
        record = histories.recorded(plan, copy / histories.DIRECTORY, number)
    assert "RuntimeError: a bug of ours" in record.bug
    # As it is judged beside the others, before it is tried again.
    with monkeypatch.context() as patched:
        patched.setattr(sweep, "_simulate", lambda *_: None)
        assert resume(copy) == judging.INVALID
    told = capsys.readouterr().out
    assert f"CRASHED  run {number} (a bug of jepsen-run): RuntimeError: a bug of ours" in told
    crashed, others = table_of(copy)["runs"], table_of(swept[1])["runs"]
    assert crashed[number]["ended"] == "crashed"
    assert [run for run in crashed if run["number"] != number] == [r for r in others if r["number"] != number]
    assert sum(row["crashed"] for row in table_of(copy)["table"]) == 1
    assert resume(copy) == judging.INVALID
    assert table_of(copy)["runs"] == others
    assert {name for name, stamp in stamps(copy).items() if stamp != before[name]} == {histories.name(number)}


def test_an_interrupt_keeps_what_ended_and_says_how_to_go_on(copy, capsys, monkeypatch):
    stopped = []

    def interrupted(*_):
        raise KeyboardInterrupt

    before = stamps(copy)
    monkeypatch.setattr(sweep, "_simulate", interrupted)
    monkeypatch.setattr(
        workers, "stop_spark", lambda: stopped.append(True)
    )  # the session is the other tests'
    assert resume(copy) == judging.INTERRUPTED
    assert stopped
    assert stamps(copy) == before
    assert capsys.readouterr().out.endswith(
        f"interrupted: {RUNS} of {RUNS} runs are kept; continue with: jepsen-run sweep --resume {copy}\n"
    )


@pytest.mark.parametrize("master", [None, "local[2]"])
def test_a_history_that_cannot_be_written_is_trouble_with_the_machine_and_leaves_nothing_half_done(
    spark, copy, master
):
    file_of(copy, 2).unlink()
    file_of(copy, 2).mkdir()  # nothing can take its place
    directory = copy / histories.DIRECTORY
    work = partial(histories.recorded, SweepPlan.load(copy), directory)
    with (
        workers.workers(work, 1, master) as some,
        pytest.raises(InfrastructureError, match=re.escape(f"run 2: {file_of(copy, 2)} cannot be written: ")),
    ):
        list(some.runs(iter([2]), last=lambda _: False))
    assert not list(directory.glob(".run-*"))


def test_an_error_of_spark_is_told_by_its_last_cause_in_one_line():
    error = ConnectionError(
        "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Job aborted\n\tat "
        "a.b(C.java)\n"
        "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\t... "
        "21 more\n"
    )
    with (
        pytest.raises(
            InfrastructureError, match=r"^Spark could not end its job: .*exited unexpectedly \(crashed\)$"
        ),
        workers.clusters_fault(),
    ):
        raise error


def test_json_is_one_document_that_says_what_the_table_file_says(copy, capsys):
    assert cli.run(["sweep", "--resume", str(copy), "--json"]) == judging.INVALID
    printed = capsys.readouterr()
    assert json.loads(printed.out) == table_of(copy)
    assert "policy" in printed.err


def test_the_exit_status_is_of_the_gravest_end():
    nothing = dict.fromkeys(("valid", "invalid", "unknown", "crashed"), 0)
    assert sweep.status({**nothing, "valid": 3, "invalid": 1, "crashed": 1}) == judging.INVALID
    assert sweep.status({**nothing, "valid": 3, "unknown": 1, "crashed": 1}) == judging.INTERNAL
    assert sweep.status({**nothing, "valid": 3, "unknown": 1}) == judging.VALID
    assert sweep.status({**nothing, "unknown": 1}) == judging.UNKNOWN


def test_a_sweep_of_another_version_is_not_mixed(copy, capsys):
    plan = SweepPlan.load(copy)
    other = msgspec.structs.replace(plan, versions={**plan.versions, "jepsen-run": "0.0.0"})
    (copy / SweepPlan.file()).write_bytes(msgspec.json.encode(other))
    assert cli.run(["sweep", "--resume", str(copy)]) == judging.USAGE
    assert "was made with jepsen-run 0.0.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nemesis", "kil"], 'did you mean "kill"?'),
        (["--policy", "replicaton"], 'did you mean "replication"?'),
        (["--policy", "standalone", "--pairs", "1", "--nemesis", "partition"], "too few"),
        (["--nemesis", "kill,kill"], "--nemesis kill,kill names one twice"),
        (["--time-limit", "0"], "must be more than 0"),
        (["--runs", "0"], "0"),
        (["--spark-master", "host:7077"], "--spark-master is host:7077: it must be spark://HOST:PORT"),
        (["--resume", "/nowhere"], "/nowhere is not the directory of a sweep: it has no sweep.json"),
        (["--resume", "/nowhere", "--pairs", "2"], "--pairs cannot be changed with --resume"),
        (["--set", "*:acceptor"], '--set "*:acceptor" is not NODE:property=value'),
        (["--set", "*:acceptr.connection-ttl=1"], "unknown property 'acceptr'"),
        (["--resume", "/nowhere", "--set", "*:journal.sync=1"], "--set cannot be changed with --resume"),
        (["--resume", "/nowhere", "--nemesis", "kill"], "--nemesis cannot be changed with --resume"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, capsys, arguments, said):
    assert cli.run(["sweep", "--store", str(tmp_path / "store"), *arguments]) == judging.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "store").exists()


def test_without_nemeses_each_policy_has_all_that_it_is_promised_to_survive():
    plan = plans.sweep_plan({"policies": ("replication", "standalone"), "pairs": 3}, 1)
    of = {
        policy: {c.nemesis for c in plan.cells if c.policy == policy}
        for policy in ("replication", "standalone")
    }
    assert {"partition", "kill", "pause"} <= of["replication"]
    assert "destroy" not in of["replication"]
    assert "kill" in of["standalone"]


def test_a_property_that_is_set_is_that_of_every_run_of_each_policy():
    settings = ("*:acceptor.connection-ttl=1234", "a1:acceptor.connection-ttl=2345")
    plan = plans.sweep_plan({"policies": ("replication", "standalone"), "settings": settings}, 4)
    for number in range(2 * len(plan.cells)):
        properties = plans.drawn(plan, number)[0].properties
        assert properties["*"]["acceptor.connection-ttl"] == 1234
        assert properties["a1"]["acceptor.connection-ttl"] == 2345


@pytest.fixture
def two_homes(tmp_path, monkeypatch, equipped):
    """The homes of two releases of Open MQ that have only names."""
    del equipped
    monkeypatch.setenv(given.HOME, "")  # which is put back behind the test
    for release in ("6.5.1", "6.7.0"):
        jars = tmp_path / release / "lib"
        (jars / "ext").mkdir(parents=True)
        with zipfile.ZipFile(jars / "imqbroker.jar", "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", f"Specification-Version: {release}\n")
        (jars / "ext" / "jolokia-agent-jvm-2.1.2-javaagent.jar").touch()
    return [str(tmp_path / release) for release in ("6.5.1", "6.7.0")]


def test_releases_are_swept_with_the_same_runs_each_with_its_own_distribution(
    two_homes, tmp_path, monkeypatch
):
    by_release = given.releases(registry.get("openmq"), two_homes)
    fields = {
        "system": "openmq",
        "policies": ("standalone",),
        "nemeses": ("kill", "pause"),
        "environment": "local",
    }
    plan = plans.sweep_plan(fields, 8, by_release)
    assert [str(cell) for cell in plan.cells] == [
        "6.5.1, standalone, kill",
        "6.7.0, standalone, kill",
        "6.5.1, standalone, pause",
        "6.7.0, standalone, pause",
    ]
    for number in range(0, 8, 2):
        assert plans.drawn(plan, number) == plans.drawn(plan, number + 1)
    assert plans.drawn(plan, 0) != plans.drawn(plan, 4)
    used = []

    def made(plan, number, *_):
        used.append(os.environ[given.HOME])
        return deployed.Deployed(run=swept_run(plan, number), store="")

    monkeypatch.setattr(deployed, "_made", made)
    (tmp_path / deployed.DIRECTORY).mkdir()
    for number in (0, 1):
        deployed.make(plan, number, tmp_path, None, by_release)
    assert used == two_homes
    assert os.environ[given.HOME] == two_homes[0]


def test_a_sweep_of_an_untried_release_says_so_once(two_homes, tmp_path):
    with zipfile.ZipFile(tmp_path / "6.7.0" / "lib" / "imqbroker.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Specification-Version: 6.99\n")
    by_release = given.releases(registry.get("openmq"), two_homes)
    fields = {"system": "openmq", "policies": ("standalone",), "environment": "local"}
    (line,) = deployed.warnings(plans.sweep_plan(fields, 8, by_release), by_release)
    assert line.startswith("Open MQ 6.99 is untried")


@pytest.mark.parametrize(("lossy", "status"), [("6.5.1", 0), ("6.7.0", 1)])
def test_what_is_accepted_of_one_release_is_new_in_another(
    two_homes, tmp_path, monkeypatch, capsys, lossy, status
):
    def made(plan, number, *_):
        run = swept_run(plan, number)
        if run.cell.release == lossy:
            lost = {"findings": {"lost": 2}, "grave": ("lost",), "exposed": True, "complete": True}
            run = msgspec.structs.replace(run, ended="invalid", **lost)
        return deployed.Deployed(run=run, store="")

    monkeypatch.setattr(deployed, "_made", made)
    monkeypatch.setattr(deployed, "warnings", lambda *_: ["6.99 is untried"])
    monkeypatch.setattr("checkers.api.start_in_background", lambda *_, **__: None)
    monkeypatch.setattr(sweep.stores, "load_run", lambda _: stores.RunRecord())
    accepted = tmp_path / "known.toml"
    accepted.write_text(
        '[[finding]]\nkind = "lost"\nsystem = "openmq"\nrelease = "6.5.*"\n'
        'why = "known"\nuntil = 9999-12-31\n'
    )
    words = ["--system", "openmq", "--policy", "standalone", "--nemesis", "kill", "--environment", "local"]
    words += [word for home in two_homes for word in ("--system-home", home)]
    words += ["--runs", "2", "--known", str(accepted), "--store", str(tmp_path / "store")]
    assert cli.run(["sweep", *words]) == status
    out = capsys.readouterr().out
    assert "\nwarning: 6.99 is untried\n" in out
    assert "releases of openmq: 6.5.1, 6.7.0" in out
    assert ("lost (known) " in out, "lost (known, not seen) " in out) == (not status, bool(status))
    (page,) = {path.resolve() for path in (tmp_path / "store").glob("*/*/table.html")}
    assert "<th>release</th>" in page.read_text()
    assert f"--system-home {two_homes[0]} --system-home {two_homes[1]} --runs 4" in out


@pytest.mark.parametrize(
    ("homes", "complaint"),
    [
        ((0, 0), "is openmq 6.5.1, and so is"),
        ((0, "nothing"), "no lib/imqbroker.jar"),
    ],
)
def test_releases_that_cannot_be_compared_are_one_line(two_homes, tmp_path, capsys, homes, complaint):
    words = [two_homes[home] if isinstance(home, int) else str(tmp_path / home) for home in homes]
    given_words = [word for home in words for word in ("--system-home", home)]
    assert (
        cli.run(
            ["sweep", "--system", "openmq", "--policy", "standalone", "--environment", "local", *given_words]
        )
        == 254
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_a_sweep_goes_on_with_the_releases_that_it_was_begun_with(two_homes, tmp_path, capsys):
    by_release = given.releases(registry.get("openmq"), two_homes)
    plan = plans.sweep_plan(
        {"system": "openmq", "policies": ("standalone",), "environment": "local"}, 2, by_release
    )
    store = plan.begin(tmp_path, "s", None)
    assert cli.run(["sweep", "--resume", str(store), "--system-home", two_homes[0]]) == 254
    (line,) = capsys.readouterr().err.splitlines()
    assert "the sweep is of openmq 6.5.1 and 6.7.0, not of 6.5.1: give --system-home of each" in line
    assert plan.resume_line(store, by_release.values()).endswith(
        f"--system-home {two_homes[0]} --system-home {two_homes[1]}"
    )


def swept_run(plan, number, trouble=""):
    return sweep_table.SweptRun(
        number=number, cell=plan.cell(number), ended="unknown", findings={}, grave=(), trouble=trouble,
        seed=1, faults=1, digest="", bit=False, exposed=False, complete=False,
    )  # fmt: skip


@pytest.mark.usefixtures("equipped")
def test_a_deployed_sweep_leaves_out_what_cannot_be_broken_there_and_says_no_more_than_one_line_of_a_run():
    plan = plans.sweep_plan({"environment": "local", "policies": ("replication", "shared-store")}, 1)
    broken = {policy: {each.nemesis for each in plan.cells if each.policy == policy} for policy in
              ("replication", "shared-store")}  # fmt: skip
    assert "power-loss" not in broken["shared-store"]
    assert broken["shared-store"] >= {"partition", "kill"}
    assert any(name.startswith("disk-") for name in broken["replication"])
    trouble = "broker b1 ended while it started; b1 logged last:\n\tat Main.java:1"
    assert (
        sweep._first_line(swept_run(plan, 0, trouble)) == "broker b1 ended while it started; b1 logged last:"
    )
