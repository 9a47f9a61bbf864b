"""Accepted findings keep a run green; new ones, those of others, and those that are over do not."""

import datetime as dt
import io
import json
from xml.etree import ElementTree as ET

import msgspec
import pytest
from fake_cluster import composition
from test_run_session import deciding, no_spark  # noqa: F401 - a fixture

from checkers.verdict import Finding, Verdict, Witness
from harness.commands import cli
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
    assert str(over.of("lost")) == "was known until 2026-11-23, which is over: ARTEMIS-1"


def test_of_two_entries_the_one_that_lasts_counts():
    later = entry(until=TODAY + dt.timedelta(days=2), why="again")
    reviewed = known.review(invalid("lost"), SPEC, [later, entry()], TODAY + dt.timedelta(days=1))
    assert (reviewed.known, reviewed.of("lost").why) == (True, "again")


@pytest.mark.parametrize(
    "other",
    [{"kind": "stuck"}, {"system": "own"}, {"policy": "shared-store"}, {"test": "artemis-replication-pause"}],
)
def test_an_entry_of_something_else_keeps_nothing_green(other):
    assert status(invalid("lost"), entry(**other)) == 1


@pytest.mark.parametrize("same", [{"policy": "replication"}, {"test": "artemis-*-kill"}])
def test_an_entry_may_be_narrower(same):
    assert status(invalid("lost"), entry(**same)) == 0


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
    runs = [(SPEC, Verdict(valid=True)), (SPEC, invalid("lost"))]
    assert list(known.told(entries, runs)) == [
        "Known    stuck of artemis: matched nothing here",
        "Known    1 of 3 entries are of other systems, policies or tests",
    ]
    assert next(known.told(entries, runs[:1])) == "Known    lost of artemis: matched nothing here"


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
        ("[[finding]", "is not TOML"),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line_before_anything_starts(tmp_path, capsys, text, complaint):
    path = tmp_path / "known.toml"
    path.write_text(text)
    assert cli.run(["--known", str(path), "--store", str(tmp_path / "store")]) == 254
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


def test_what_is_over_is_a_failure_that_says_so(tmp_path, monkeypatch, file):
    file.write_text(FILE.format(until="2020-01-01"))
    deciding(monkeypatch, **msgspec.structs.asdict(invalid("lost")))
    outcome = session.execute(composition(system="own"), tmp_path, io.StringIO(), entries=known.load(file))
    assert outcome.status == 1
    failure = ET.parse(outcome.store / "junit.xml").getroot().find("testcase[@name='lost']/failure")
    assert "was known until 2020-01-01, which is over: an experiment" in failure.text
