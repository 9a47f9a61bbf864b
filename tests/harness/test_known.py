"""Accepted findings keep a run green; new ones, those of others, and those that are over do not."""

import dataclasses
import datetime as dt
import io
import json
from xml.etree import ElementTree as ET

import msgspec
import pytest
from fake_cluster import composition
from test_run_session import deciding, no_spark  # noqa: F401 - a fixture
from test_sweep_table import run_row

from checkers.verdict import Finding, Verdict, Witness
from harness.claims import runner
from harness.claims.ran import Ran
from harness.claims.scenarios import named
from harness.claims.scenarios.scenario import FOLLOWS_TWO_LIVES
from harness.commands import cli
from harness.explore import plans
from harness.explore.sweep import sweep, table
from harness.history import known, spec
from harness.history import store as stores
from harness.run import session

TODAY = dt.date(2026, 11, 23)
SPEC = spec.build({"system": "artemis", "policy": "replication", "nemeses": ("kill",)})


def finding(name, severity="grave"):
    return Finding(
        name=name, severity=severity, count=1, sentence=f"{name}!", witness=Witness(indexes=(), rows=())
    )


def invalid(*names, reasons=()):
    found = tuple(finding(name) for name in names)
    said = tuple(f"{one.name}: {one.sentence}" for one in found)
    return Verdict(valid=False, findings=found, reasons=(*said, *reasons))


def entry(kind="lost", **more):
    fields = {"system": "artemis", "why": "ARTEMIS-1", "until": TODAY, **more}
    return known.KnownFinding(kind=kind, **fields)


def status(verdict, *entries, today=TODAY):
    return known.exit_status(verdict, known.review(verdict, SPEC, entries, today))


def test_what_is_known_is_green_until_its_last_day_has_passed():
    assert status(invalid("lost"), entry()) == 0
    assert status(invalid("lost"), entry(), today=TODAY + dt.timedelta(days=1)) == 1
    over = known.review(invalid("lost"), SPEC, [entry()], TODAY + dt.timedelta(days=1))
    assert str(over.review_of("lost")) == "was known until 2026-11-23, which is over: ARTEMIS-1"


def test_of_two_entries_the_one_that_lasts_counts():
    later = entry(until=TODAY + dt.timedelta(days=2), why="again")
    reviewed = known.review(invalid("lost"), SPEC, [later, entry()], TODAY + dt.timedelta(days=1))
    assert (reviewed.known, reviewed.review_of("lost").why) == (True, "again")


@pytest.mark.parametrize(
    "other",
    [{"kind": "stuck"}, {"system": "own"}, {"policy": "shared-store"}, {"test": "artemis-replication-pause"}],
)
def test_an_entry_of_something_else_keeps_nothing_green(other):
    assert status(invalid("lost"), entry(**other)) == 1


@pytest.mark.parametrize("same", [{"policy": "replication"}, {"test": "artemis-*-kill"}])
def test_an_entry_may_be_narrower(same):
    assert status(invalid("lost"), entry(**same)) == 0


@pytest.mark.parametrize(
    ("claim", "names"),
    [
        ("RP14", {"rp14-true", "rp14-false", "rp14"}),
        ("RP14-true", {"rp14-true"}),
        ("RP1", {"rp1", "rp1-large"}),
    ],
)
def test_an_entry_of_a_claim_holds_for_its_runs_alone(claim, names):
    tests = ("rp14-true", "rp14-false", "rp14", "rp1", "rp1-large", "artemis-replication-kill")
    covered = {name for name in tests if entry(claim=claim).covers(msgspec.structs.replace(SPEC, name=name))}
    assert covered == names


def row():
    """A claim with another system's brokers that expects nothing but duplicates."""
    of = named("RP4")
    its = msgspec.structs.replace(of.spec, system="artemis")
    return msgspec.structs.replace(of, spec=its, required=(), allowed=("duplicate",))


LOST = Ran(problem="found lost besides", found=frozenset({"lost", "duplicate"}))


@pytest.mark.parametrize(
    ("entries", "ran", "expected"),
    [
        ([], LOST, 1),
        ([entry(claim="RP4", until=dt.date.max)], LOST, 0),
        ([entry(until=dt.date.max)], LOST, 0),
        ([entry(claim="RP5", until=dt.date.max)], LOST, 1),
        ([entry(release="2.44.*", until=dt.date.max)], dataclasses.replace(LOST, release="2.44.0"), 0),
        ([entry(system="own", until=dt.date.max)], LOST, 1),
        ([entry(claim="RP4", until=dt.date.min)], LOST, 1),
        (
            [entry(until=dt.date.max)],
            Ran(problem="found lost, stuck besides", found=frozenset({"lost", "stuck"})),
            1,
        ),
        (
            [entry(until=dt.date.max)],
            Ran(problem="found lost besides; a2 did not become live", found=frozenset({"lost"})),
            1,
        ),
        ([entry(until=dt.date.max)], Ran(problem="the run ended unknown", undecided=True), 2),
        ([entry(until=dt.date.max)], Ran(problem=""), 0),
    ],
)
def test_a_claim_is_otherwise_but_known_where_only_known_findings_are_wrong(
    entries, ran, expected, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(runner, "once", lambda *_: ran)
    monkeypatch.setattr(runner.api, "start_in_background", lambda **_: None)
    asked = runner.ClaimsRequest(
        scenarios=[row()], environment="local", runs=2, root=tmp_path, known=entries, as_json=True
    )
    assert runner.run(asked) == expected
    told = capsys.readouterr()
    accepted = bool(ran.problem) and expected == 0
    assert ("2 otherwise but known" in told.err) is accepted
    assert ("lost: known until 9999-12-31: ARTEMIS-1" in told.err) is (accepted or "stuck" in ran.found)
    assert ("which is over" in told.err) is (dt.date.min in {one.until for one in entries})
    assert ("lost of artemis: matched nothing here" in told.err) is (bool(entries) and not ran.found)
    assert json.loads(told.out)["scenarios"][0]["known"] is accepted


@pytest.mark.spark
def test_what_a_run_of_a_claim_found_is_what_its_entry_is_held_against(tmp_path, monkeypatch, capsys):
    """RP4 in the simulation, as if the split brain that it is about were forbidden."""
    forbidden = msgspec.structs.replace(
        named("RP4"), required=(), allowed=tuple(set(FOLLOWS_TWO_LIVES) - {"split-brain"})
    )
    monkeypatch.setattr(stores.RunRecord, "release", lambda *_: "9.9")
    of_row = entry("split-brain", system="own", claim="RP4", release="9.9", until=dt.date.max)
    for entries, expected in (([of_row], 0), ([msgspec.structs.replace(of_row, claim="RP6")], 1)):
        asked = runner.ClaimsRequest(
            scenarios=[forbidden], environment="simulation", runs=1, root=tmp_path, known=entries
        )
        assert runner.run(asked) == expected
        assert ("RP4  NOT AS EXPECTED, BUT KNOWN: " in capsys.readouterr().out) is (expected == 0)


def test_a_sweep_is_green_where_all_is_known_and_sound(tmp_path):
    plan = plans.sweep_plan({"pairs": 1, "nemeses": ("partition", "kill"), "time_limit_s": 6.0}, 4)
    lost = {"cell": plan.cells[0], "ended": "invalid", "findings": {"lost": 2}, "grave": ("lost",)}
    fine = run_row(0, cell=plan.cells[1])
    unknown = run_row(2, cell=plan.cells[1], ended="unknown", exposed=False, bit=False)

    def kept(entries, *rows):
        request = plans.ExploreRequest(plan=plan, known=entries)
        swept = sweep._result(tmp_path, request, rows, (), {})
        return swept, list(sweep._closing(swept, request))

    of_cut = [entry(system="own", test="replication-partition", until=dt.date.max)]
    red, _ = kept(None, fine, run_row(1, **lost))
    green, told = kept(of_cut, fine, run_row(1, **lost))
    assert (red.exit_status, red.known) == (1, ())
    assert (green.exit_status, green.known) == (0, (1,))
    assert "lost (known)" in table.text(green.table)
    assert "1 invalid; of the invalid ones 1 as known" in told[0]
    assert "  lost: known until 9999-12-31: ARTEMIS-1" in told
    over = [entry(system="own", until=dt.date.min)]
    for entries, changes in (
        (of_cut, {"cell": plan.cells[1]}),
        (over, {}),
        (of_cut, {"grave": ("lost", "stuck")}),
    ):
        assert kept(entries, run_row(1, **{**lost, **changes}))[0].exit_status == 1
    assert kept(of_cut, run_row(1, **lost, doubts=("the disk is full",)))[0].exit_status == 2
    assert kept(of_cut, run_row(1, **lost), unknown)[0].exit_status == 0
    _, told = kept(of_cut, run_row(1, cell=plan.cells[0]))
    assert "Known    lost of own replication-partition: matched nothing here" in told


def test_the_runs_of_a_sweep_are_called_as_tests_are():
    plan = plans.sweep_plan({"nemeses": ("kill",), "workload": "queue"}, 1)
    assert plan.swarm(0).base.name == "replication-kill-queue"


def test_one_that_is_new_beside_a_known_one_is_red():
    verdict = invalid("lost", "split-brain")
    assert status(verdict, entry()) == 1
    assert status(verdict, entry(), entry("split-brain")) == 0
    assert [str(one)[:5] for one in known.review(verdict, SPEC, [entry()], TODAY).findings] == [
        "known",
        "new: ",
    ]


def test_a_run_that_was_spoilt_is_not_green_by_what_is_known():
    assert status(invalid("lost", reasons=("the disk is full",)), entry()) == 2
    assert status(invalid("lost", reasons=("diverged: not judged, nobody tells",)), entry()) == 0
    assert status(invalid("lost", "stuck", reasons=("the disk is full",)), entry()) == 1


def test_valid_and_unknown_stay_what_they_are():
    assert status(Verdict(valid=True), entry()) == 0
    assert status(Verdict(valid=None, reasons=("?",)), entry()) == 2
    warned = Verdict(valid=True, findings=(finding("lost", "warning"),))
    assert known.review(warned, SPEC, [entry()], TODAY).findings == ()


def test_entries_that_matched_nothing_are_told_over_a_whole_batch():
    entries = [entry(), entry("stuck"), entry("split-brain", system="rabbitmq")]
    runs = [known.JudgedRun(SPEC, ()), known.JudgedRun(SPEC, ("lost",))]
    assert list(known.entry_lines(entries, runs)) == [
        "Known    stuck of artemis: matched nothing here",
        "Known    1 of 3 entries are of other systems or tests",
    ]
    assert next(known.entry_lines(entries, runs[:1])) == "Known    lost of artemis: matched nothing here"


def test_an_entry_of_one_release_is_missed_where_that_release_mended_it_and_covers_no_other():
    entries = [entry(release="2.44.*"), entry(release="2.56.0")]
    runs = [known.JudgedRun(SPEC, ("lost",), "2.44.0"), known.JudgedRun(SPEC, (), "2.56.0")]
    assert list(known.entry_lines(entries, runs)) == ["Known    lost of artemis 2.56.0: matched nothing here"]
    for release, is_known in (("2.44.0", True), ("2.44.1", True), ("2.56.0", False), ("", False)):
        review = known.review(invalid("lost"), SPEC, entries[:1], TODAY, release)
        assert review.known is is_known, release


FILE = """
[[finding]]
kind = "lost"
system = "own"
why = "an experiment"
until = {until}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(FILE.format(until="9999-12-31"))
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("finding = 3", "each entry begins with [[finding]]"),
        ("[[findings]]\nkind = 'lost'", 'unknown key "findings": did you mean "finding"?'),
        ("[[finding]]\nkind = 'lost'", "[[finding]] 1: object missing required field system"),
        (
            FILE.format(until="9999-12-31").replace("lost", "lots"),
            'unknown kind "lots": did you mean "lost"?',
        ),
        (FILE.format(until="'soon'"), '"until": invalid'),
        (FILE.format(until="9999-12-31").replace("an experiment", " "), '"why" is empty'),
        (FILE.format(until="9999-12-31") + "polcy = 'x'", 'unknown key "polcy": did you mean "policy"?'),
        (
            FILE.format(until="9999-12-31") + "claim = 'RP'",
            'unknown claim "RP": give a row of "jepsen-run claims"',
        ),
        (
            FILE.format(until="9999-12-31") + "claim = 'RP14-treu'",
            '[[finding]] 1: unknown claim "RP14-treu": did you mean "RP14-true"?',
        ),
        (FILE.format(until="9999-12-31") + "claim = 'RP99'", '[[finding]] 1: unknown claim "RP99"'),
        (
            FILE.format(until="9999-12-31").replace("an experiment", "x") + "policy = 'replicaton'",
            '[[finding]] 1: unknown policy "replicaton": did you mean "replication"?',
        ),
        ("[[finding]", "is not TOML"),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line_before_anything_starts(tmp_path, capsys, text, complaint):
    path = tmp_path / "known.toml"
    path.write_text(text)
    for command in ([], ["claims", "RP1"], ["sweep"]):
        assert cli.run([*command, "--known", str(path), "--store", str(tmp_path / "store")]) == 254
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert complaint.lower() in err.lower()
        assert not (tmp_path / "store").exists()


def test_a_run_shows_it_everywhere_and_a_check_without_the_file_forgets_it(
    tmp_path, monkeypatch, file, capsys
):
    deciding(monkeypatch, **msgspec.structs.asdict(invalid("lost")))
    talk = io.StringIO()
    outcome = session.execute(composition(system="own"), tmp_path, talk, entries=known.load(file))
    assert outcome.status == 0
    assert outcome.verdict.valid is False
    assert (
        "INVALID, BUT KNOWN  fake: lost (1)\n  lost: known until 9999-12-31: an experiment\n"
        in talk.getvalue()
    )
    store = outcome.store

    def junit():
        return ET.parse(store / "junit.xml").getroot()

    assert (junit().get("failures"), junit().get("skipped")) == ("0", "1")
    assert junit().find("testcase[@name='lost']/skipped").get("message").endswith("an experiment")
    page = (store / stores.REPORT).read_text()
    assert "<h1>invalid, but known</h1>" in page
    assert "known until 9999-12-31: an experiment" in page

    assert cli.run(["check", str(store), "--known", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exit-status"] == 0
    assert told["runs"][0]["known"]["findings"][0]["state"] == "known"

    assert cli.run(["check", str(store)]) == 1
    assert "INVALID  fake" in capsys.readouterr().out
    assert (junit().get("failures"), junit().get("skipped")) == ("1", "0")
    assert "known until" not in (store / stores.REPORT).read_text()


@pytest.mark.parametrize(("release", "status"), [("9.*", 0), ("8.*", 1)])
def test_a_run_and_a_check_of_it_ask_for_the_release_of_its_brokers(
    tmp_path, monkeypatch, file, capsys, release, status
):
    monkeypatch.setattr(stores.RunRecord, "release", lambda *_: "9.9")
    file.write_text(FILE.format(until="9999-12-31") + f'release = "{release}"\n')
    deciding(monkeypatch, **msgspec.structs.asdict(invalid("lost")))
    outcome = session.execute(composition(system="own"), tmp_path, io.StringIO(), entries=known.load(file))
    assert outcome.status == status
    assert cli.run(["check", str(outcome.store), "--known", str(file)]) == status
    assert ("1 of 1 entries are of other systems or tests" in capsys.readouterr().out) is bool(status)


def test_what_is_over_is_a_failure_that_says_so(tmp_path, monkeypatch, file):
    file.write_text(FILE.format(until="2020-01-01"))
    deciding(monkeypatch, **msgspec.structs.asdict(invalid("lost")))
    outcome = session.execute(composition(system="own"), tmp_path, io.StringIO(), entries=known.load(file))
    assert outcome.status == 1
    failure = ET.parse(outcome.store / "junit.xml").getroot().find("testcase[@name='lost']/failure")
    assert "was known until 2020-01-01, which is over: an experiment" in failure.text
