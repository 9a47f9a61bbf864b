"""The claims with the brokers of others: data that can be judged, results that are kept, a page
that says no more than they do.
"""

import json
from math import inf
from pathlib import Path

import msgspec
import pytest
import second_claims

import environments.registry
import nemesis.schedule
from checkers import api
from checkers.starting import Starting
from harness.claims.ran import Ran
from harness.claims.scenarios import SCENARIOS, named
from harness.claims.scenarios.expectations import Moved, SlowestSend, Takeovers
from harness.claims.scenarios.registry import OTHERS_ONLY, chosen
from harness.claims.systems import page, registry, results
from harness.claims.systems.ledger import Ledger
from harness.claims.systems.row import Departure
from harness.commands import cli
from harness.history import spec as specs
from harness.interface import UsageError
from harness.systems import registry as systems

DOCS = Path(__file__).parents[2] / "docs"
ROWS = [(system, row) for system in registry.CLAIMS for row in registry.of(system).rows]
PROMISES = ("required", "allowed", "roles")


def ids(value):
    return value if isinstance(value, str) else value.scenario.id


@pytest.mark.usefixtures("equipped")
@pytest.mark.parametrize(("system", "row"), ROWS, ids=ids)
def test_a_row_of_a_system_can_be_run_with_it_and_something_is_expected(system, row):
    scenario = row.scenario
    assert scenario.id in {each.id for each in (*SCENARIOS, *OTHERS_ONLY)}
    assert scenario.spec.system == system
    assert scenario.required or scenario.roles or scenario.besides or scenario.guards
    tested = systems.of(scenario.spec)
    nodes = tested.plan(scenario.spec)
    supports = environments.registry.create("local").supports()
    nemesis.schedule.validate(scenario.schedule, supports, nodes, tuple(tested.events))
    assert all(fault.start_s < scenario.spec.time_limit_s for fault in scenario.schedule.faults)


@pytest.mark.parametrize("system", registry.CLAIMS)
def test_what_is_recorded_is_of_the_rows_as_they_are(system):
    recorded = results.load(DOCS / "results" / f"claims-{system}.json", system)
    missed = [row.scenario.id for row in registry.of(system).rows if not recorded.of(row.scenario)]
    assert not missed, "run them again, or leave what came later out of the fingerprint, as by default"


def quicker(scenario):
    """How long its slowest send may take at most, in seconds; infinite where nothing is said."""
    return min((each.most_s for each in scenario.besides if isinstance(each, SlowestSend)), default=inf)


def slower(scenario):
    """How long its slowest send must take at least."""
    return max((each.least_s for each in scenario.besides if isinstance(each, SlowestSend)), default=0.0)


def takeovers(scenario):
    """Who is to go on with whose data."""
    return [each for each in scenario.besides if isinstance(each, Takeovers)]


def moved(scenario):
    """How many messages are to be delivered by another broker than took them."""
    return [(each.least, each.most) for each in scenario.besides if isinstance(each, Moved)]


@pytest.mark.parametrize(("system", "row"), ROWS, ids=ids)
def test_what_is_expected_is_what_the_documents_say_or_departs_with_reason_and_page(system, row):
    documents = named(row.scenario.id)
    anyway = registry.of(system).anyway
    allowed = tuple(name for name in row.scenario.allowed if name not in set(anyway) - set(documents.allowed))
    expected = msgspec.structs.replace(row.scenario, allowed=allowed)
    changed = [name for name in PROMISES if getattr(expected, name) != getattr(documents, name)]
    if row.departure is None:
        assert changed == [], "what the documents say is not softened silently"
    else:
        otherwise = changed or any(each(expected) != each(documents) for each in (takeovers, moved))
        assert otherwise or quicker(expected) <= slower(documents), "what it departs from is said there"
        assert row.departure.reason
        assert not row.departure.page or (DOCS / row.departure.page).is_file()


@pytest.mark.parametrize("system", registry.CLAIMS)
def test_what_brokers_do_without_any_fault_has_its_page_and_is_allowed_in_each_row(system):
    claims = registry.of(system)
    for name, departure in claims.anyway.items():
        assert departure.reason
        assert (DOCS / departure.page).is_file()
        assert all(name in row.scenario.allowed for row in claims.rows)


@pytest.mark.parametrize("system", registry.CLAIMS)
def test_every_row_of_a_systems_policies_is_run_or_left_out_by_name(system):
    claims, tested = registry.of(system), systems.get(system)
    rows = [row.scenario.id for row in claims.rows]
    assert len(set(rows)) == len(rows)
    known = {name for each in chosen([]) for name in (each.id, each.row)}
    assert set(claims.left_out) <= known
    assert not set(claims.left_out) & set(rows)
    for each in chosen([]):
        if claims.row(each.id) is None:
            assert claims.why_not(each, tested)


def test_a_probe_and_a_policy_that_is_not_there_say_so():
    claims, tested = second_claims.CLAIMS, systems.get("artemis")
    assert claims.why_not(named("RP4"), tested) == "they have no pairs"
    assert claims.why_not(named("HA1"), tested) == "brokers of artemis have no policy ha-database"
    assert claims.why_not(named("RP1"), tested) == "no run is prepared for artemis"
    (probe,) = (each for each in chosen(["HA8"]) if each.id == "HA8")
    assert claims.why_not(probe, tested) == "the steps are for brokers of own only"


FINDINGS = sorted((DOCS / "findings").glob("*/spec.json"))
SCRIPTS = sorted((DOCS / "findings").glob("*/repeat.py"))


@pytest.mark.usefixtures("equipped")
@pytest.mark.parametrize("finding", [path.parent for path in FINDINGS], ids=lambda path: path.name)
def test_a_finding_has_the_load_and_the_faults_that_its_page_repeats_it_with(finding):
    spec = specs.load(finding)
    tested = systems.of(spec)
    nodes = tested.plan(spec)
    line = f"jepsen-run --spec docs/findings/{finding.name}"
    if (finding / "schedule.json").exists():
        supports = environments.registry.create(spec.environment).supports()
        faults = nemesis.schedule.load(finding / "schedule.json")
        nemesis.schedule.validate(faults, supports, nodes, tuple(tested.events))
        line += f" --schedule docs/findings/{finding.name}"
    assert line in (finding / "README.md").read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_a_finding_without_a_fault_has_the_script_that_its_page_repeats_it_with(script):
    compile(script.read_text(), script, "exec")
    assert f"python {script.relative_to(DOCS.parent)}" in script.with_name("README.md").read_text()


def test_each_page_of_a_finding_stands_in_the_list_of_them():
    listed = (DOCS / "findings" / "README.md").read_text()
    findings = [path.name for path in (DOCS / "findings").iterdir() if path.is_dir()]
    assert [name for name in findings if f"]({name}/README.md)" not in listed] == []


# ---- what is written down


AS_EXPECTED = Ran(problem="", found=frozenset({"lost", "duplicate"}))
UNKNOWN = Ran(problem="no verdict: no Java", undecided=True)
ROW = second_claims.row()


def ledger(tmp_path, version="1.2"):
    return Ledger(tmp_path / "claims-echo.json", "echo", version)


def runs(tmp_path, row=ROW, version=""):
    return results.load(tmp_path / "claims-echo.json").of(row.scenario, version)


def test_a_run_is_written_down_with_what_it_was_of(tmp_path):
    ledger(tmp_path).write(ROW.scenario, AS_EXPECTED, 3, "local", "2026-11-23")
    (run,) = runs(tmp_path)
    assert (run.row, run.version, run.environment, run.date, run.seed, run.came) == (
        "RP11", "1.2", "local", "2026-11-23", 3, "as-expected",
    )  # fmt: skip
    (before,) = ledger(tmp_path).before(ROW.scenario)
    assert (before.problem, before.found) == ("", AS_EXPECTED.found)
    assert ledger(tmp_path, "1.3").before(ROW.scenario) == []
    ledger(tmp_path).write(ROW.scenario, UNKNOWN, 4, "local")
    assert len(ledger(tmp_path).before(ROW.scenario)) == 1  # what was unknown is made again
    assert len(runs(tmp_path)) == 2


def test_a_row_goes_on_with_the_seeds_that_have_no_run(tmp_path):
    under_test = ledger(tmp_path)
    assert under_test.seeds_left(ROW.scenario, 3) == [0, 1, 2]
    for seed, ran in ((0, AS_EXPECTED), (1, UNKNOWN), (2, AS_EXPECTED)):
        under_test.write(ROW.scenario, ran, seed, "local")
    assert ledger(tmp_path).seeds_left(ROW.scenario, 3) == [1]
    assert ledger(tmp_path).seeds_left(ROW.scenario, 5) == [1, 3, 4]
    assert ledger(tmp_path).seeds_left(ROW.scenario, 1) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"required": ("duplicate",)},
        {"allowed": ("duplicate",)},
        {"besides": (SlowestSend(most_s=1.0),)},
        {"schedule": named("RP4").schedule},
        {"spec": msgspec.structs.replace(ROW.scenario.spec, rate=41.0)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_run_of_a_row_that_was_changed_counts_for_nothing(tmp_path, changed):
    ledger(tmp_path).write(ROW.scenario, AS_EXPECTED, 0, "local")
    other = msgspec.structs.replace(ROW.scenario, **changed)
    assert ledger(tmp_path).before(other) == []
    ledger(tmp_path).write(other, AS_EXPECTED, 0, "local")
    assert runs(tmp_path) == ()
    assert len(runs(tmp_path, msgspec.structs.replace(ROW, scenario=other))) == 1


def test_a_row_whose_expectation_is_reworded_keeps_its_runs(monkeypatch):
    scenario = msgspec.structs.replace(ROW.scenario, besides=(Takeovers(),))
    before = results.fingerprint(scenario)
    monkeypatch.setattr(Takeovers, "__str__", lambda _: "other words")
    assert "other words" in scenario.expected
    assert results.fingerprint(scenario) == before


def test_where_and_with_which_seed_a_row_ran_makes_no_other_row():
    spec = msgspec.structs.replace(ROW.scenario.spec, environment="docker", seed=7)
    elsewhere = msgspec.structs.replace(ROW.scenario, spec=spec)
    assert results.fingerprint(elsewhere) == results.fingerprint(ROW.scenario)


def test_a_file_that_is_none_or_anothers_is_one_line(tmp_path):
    file = tmp_path / "claims-echo.json"
    file.write_text('{"system": "echo", "runs": [{"row": 1}]}')
    with pytest.raises(UsageError, match=r"--results .*claims-echo.json: Expected `str`"):
        results.load(file)
    file.write_text('{"system": "echo", "runs": []}')
    with pytest.raises(UsageError, match="has runs of echo, not of artemis"):
        results.load(file, "artemis")


# ---- what the page says of it


def run(row, came, found, words):
    return results.RowRun(
        row=row, fingerprint="f", version="1.2", environment="local", date="d", seed=0,
        came=came, found=found, words=words,
    )  # fmt: skip


def said(row, *some):
    ran = [run("RP11", *each) for each in some]
    return page.verdict(row, ran)


GOOD = ("as-expected", ("lost",), "")
BAD = ("otherwise", (), "found nothing and none of lost")
NOTHING = ("unknown", (), "no Java | no verdict")


def test_a_row_is_green_only_by_what_ran():
    plain = msgspec.structs.replace(ROW, departure=None)
    paged = msgspec.structs.replace(
        ROW, departure=Departure(reason="they forget", page="findings/echo-1/README.md")
    )
    assert said(plain) == "unknown: not run as it is"
    assert said(plain, NOTHING, NOTHING) == "unknown: no Java | no verdict"
    assert said(plain, GOOD, NOTHING) == "as the documents say"
    assert page.verdict(plain, [run("RP11", *GOOD)], {"lost"}) == "as the documents say, but for lost"
    assert said(plain, GOOD, BAD) == "not as expected: found nothing and none of lost"
    assert said(ROW, GOOD) == "departs: their queues are in memory"
    assert said(paged, GOOD) == "departs: they forget ([echo-1](findings/echo-1/README.md))"


def test_the_section_counts_runs_and_what_they_found(tmp_path, monkeypatch):
    monkeypatch.setitem(systems.SYSTEMS, "echo", "second_system:SecondSystem")
    for number in range(3):
        ledger(tmp_path).write(
            ROW.scenario, UNKNOWN if number == 2 else AS_EXPECTED, number, "local", "2026-11-23"
        )
    lines = page.section(second_claims.CLAIMS, results.load(tmp_path / "claims-echo.json"), "r.json")
    (row,) = (line for line in lines if line.startswith("| RP11 "))
    assert "| lost 2, duplicate 2 | 2/3 | departs: their queues are in memory | 1.2, 2026-11-23 |" in row
    assert "- they have no pairs: RP4" in lines
    assert any(line.startswith("- brokers of echo have no policy ha-database: HA1, ") for line in lines)


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("| RP11 | c | AMQ | lost \\| or not | lost | 1/1 | r |", "as the documents say; 1/1"),
        (
            "| RP11 | c | AMQ | lost | nothing 2 | 1/3 | r |",
            "not as expected: found nothing 2; 1/3 runs as expected",
        ),
        ("| RP4 | c | AMQ | split-brain | lost | 1/1 | r |", "not run"),
    ],
)
def test_verdicts_stand_beside_those_of_our_own_broker(line, own, monkeypatch):
    monkeypatch.setitem(systems.SYSTEMS, "echo", "second_system:SecondSystem")
    kept = msgspec.structs.replace(run("RP11", *GOOD), fingerprint=results.fingerprint(ROW.scenario))
    recorded = results.Results(system="echo", runs=(kept,))
    assert page.comparison(second_claims.CLAIMS, recorded, [line]) == []
    claims = msgspec.structs.replace(second_claims.CLAIMS, compared=("RP11", "HA1"))
    lines = page.comparison(claims, recorded, ["# Ours", "", line])
    assert any(
        row.startswith("| RP11 ")
        and row.endswith(f"| {own} | departs: their queues are in memory; 1.2, 1/1 |")
        for row in lines
    )
    assert any(
        row.startswith("| HA1 ") and row.endswith("| not run: brokers of echo have no policy ha-database |")
        for row in lines
    )


def test_a_bar_ends_no_cell(monkeypatch):
    monkeypatch.setitem(systems.SYSTEMS, "echo", "second_system:SecondSystem")
    nothing = results.Results(system="echo").add(run("RP11", *NOTHING))
    (kept,) = nothing.runs
    kept = msgspec.structs.replace(kept, fingerprint=results.fingerprint(ROW.scenario))
    lines = page.section(second_claims.CLAIMS, results.Results(system="echo", runs=(kept,)), "r.json")
    assert any("| unknown: no Java \\| no verdict |" in line for line in lines)


def test_what_stands_before_the_sections_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.CLAIMS, "echo", "second_claims:CLAIMS")
    monkeypatch.setitem(systems.SYSTEMS, "echo", "second_system:SecondSystem")
    (tmp_path / "results").mkdir()
    Ledger(tmp_path / "results/claims-echo.json", "echo", "1.2").write(ROW.scenario, AS_EXPECTED, 0, "local")
    file = tmp_path / "claims.md"
    file.write_text("# Ours\n\n| a |\n")
    page.renew(file)
    once = file.read_text()
    assert once.startswith("# Ours\n\n| a |\n\n## With other brokers\n")
    assert "### echo" in once
    page.renew(file)
    assert file.read_text() == once


def test_the_page_of_claims_has_what_was_recorded():
    text = (DOCS / "claims.md").read_text()
    before = text.partition(f"\n{page.HEADING}\n")[0].splitlines()
    assert text.endswith("\n".join(page.sections(DOCS / "claims.md", before)) + "\n"), (
        "run: jepsen-run claims --system artemis --runs 0 --results docs/results/claims-artemis.json "
        "--render docs/claims.md"
    )


# ---- the command


@pytest.fixture
def echo(monkeypatch, capsys):
    """Runs claims with the second system registered: (status, output, errors)."""
    monkeypatch.setitem(systems.SYSTEMS, "echo", "second_system:SecondSystem")
    monkeypatch.setitem(registry.CLAIMS, "echo", "second_claims:CLAIMS")
    monkeypatch.setattr(api, "start_in_background", lambda *_, **__: Starting(None, wanted=False))

    def run(*words):
        status = cli.run(("claims", *words, "--system", "echo"))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.cluster
def test_rows_run_with_a_system_and_are_kept_and_judged_again(echo, tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "claims.md").write_text("# Ours\n")
    file = tmp_path / "results/claims-echo.json"
    words = (
        "--results",
        str(file),
        "--render",
        str(tmp_path / "claims.md"),
        "--store",
        str(tmp_path / "store"),
    )
    status, out, err = echo("RP11", "RP4", *words)
    assert status == 0, out + err
    assert "left out: RP4: they have no pairs" in err
    assert "RP11  as expected: " in out
    assert "departs from the documents: their queues are in memory" in out
    (run,) = json.loads(file.read_text())["runs"]
    assert (run["row"], run["came"], run["environment"]) == ("RP11", "as-expected", "local")
    assert "### echo" in (tmp_path / "claims.md").read_text()

    # What is there is not run again.
    assert echo("RP11", *words)[0] == 0
    assert len(json.loads(file.read_text())["runs"]) == 1

    # A row that expects something else is judged again by what was recorded.
    other = msgspec.structs.replace(
        second_claims.CLAIMS, rows=(second_claims.row(required=("split-brain",)),)
    )
    monkeypatch.setattr(second_claims, "CLAIMS", other)
    status, out, _ = echo("RP11", *words, "--runs", "0", "--recorded")
    assert status == 1
    assert "none of split-brain" in out
    (run,) = json.loads(file.read_text())["runs"]
    assert run["came"] == "otherwise"
    assert "not as expected" in (tmp_path / "claims.md").read_text()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("RP4",), "--system echo: none of the chosen rows can run with it"),
        (("RP11", "--runs", "0"), "--runs 0 and --recorded need --results FILE"),
        (("RP11", "--recorded"), "--runs 0 and --recorded need --results FILE"),
        (("RP11", "--render", "x.md"), "are rendered from --results FILE"),
        (("RP11", "--results", "x.json", "--set", "*:a=1"), "--results is for another --system than own"),
        (
            ("RP11", "--results", "/nowhere/x.json"),
            "--results /nowhere/x.json: there is no directory /nowhere",
        ),
        (("RP11", "--environment", "simulation"), "cannot run in virtual time"),
    ],
)
def test_what_cannot_be_asked_is_one_line(echo, words, complaint):
    status, out, err = echo(*words)
    assert (status, out) == (254, "")
    assert complaint in err.splitlines()[-1]
