"""Every row has a refuter that is a change of today's broker, and the machinery that tries it
can say no.
"""

import asyncio
import datetime as dt

import msgspec
import pytest

from harness.claims import refute
from harness.claims.changed import ROOT, Replacement, texts
from harness.claims.refute_worker import Outcome, Tried
from harness.claims.scenarios import PROBES, SCENARIOS, Refuter, named
from harness.claims.scenarios.registry import chosen
from harness.commands import cli
from harness.history import judge as judging

ROWS = (*SCENARIOS, *PROBES)
TODAY = dt.datetime.now(dt.UTC).toordinal()
SAMPLE = 3
"""Rows that are really tried with each run of the tests, others each day.

``jepsen-run claims --refute`` tries all.
"""

REFUTER = Refuter(without="something", fails="a2 did not become live", changes=())
AS_EXPECTED = Outcome()


def test_every_row_of_the_claims_has_a_refuter():
    assert [row.id for row in ROWS if row.refuter is None] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_refuter_is_a_change_of_the_broker_alone_and_what_comes_of_it_compiles(row):
    changed = texts(row.refuter.changes)
    assert changed
    for path, text in changed.items():
        assert path.startswith("broker/")
        assert text != (ROOT / path).read_text()
        compile(text, path, "exec")


def sample():
    """A few scenarios, others each day: probes start processes, and take longer."""
    return [SCENARIOS[(TODAY * SAMPLE + number) % len(SCENARIOS)] for number in range(SAMPLE)]


@pytest.mark.parametrize("row", sample(), ids=lambda row: row.id)
def test_without_what_it_is_about_the_row_fails(row, tmp_path):
    teeth = asyncio.run(refute.refute(row, 1, tmp_path))
    assert str(teeth).startswith(refute.AS_IT_SHOULD)


@pytest.mark.cluster
def test_without_what_it_is_about_a_probe_fails_at_its_step(tmp_path):
    (probe,) = (row for row in chosen(["HA8"]) if row.id == "HA8")
    teeth = asyncio.run(refute.refute(probe, 1, tmp_path))
    assert str(teeth).startswith(f"{refute.AS_IT_SHOULD}: {probe.refuter.fails}: expected 1, found 0")


def changed_by(old, new, path="broker/policies/shared_store/live.py"):
    """SS4-true with another change of the broker."""
    refuter = Refuter(without="made", fails="a2 did not become live", changes=(Replacement(path, old, new),))
    return msgspec.structs.replace(named("SS4-true"), refuter=refuter)


@pytest.mark.parametrize(
    ("row", "status", "words"),
    [
        (
            changed_by(
                "self.live: Live | None = None",
                "self.live: Live | None = None  # the same",
                "broker/policies/policy.py",
            ),
            1,
            "NO TEETH",
        ),
        (changed_by('"""Everything that', '"""'), 2, "the refuter is older than the broker"),
        (
            changed_by(
                "self._serving = True",
                "self._serving = True; self.live = None",
                "broker/policies/ownership/contender.py",
            ),
            1,
            "REFUTES EVERYTHING",
        ),
        (
            changed_by("from __future__ import annotations", "raise ImportError('gone')", "broker/config.py"),
            2,
            "could not be tried",
        ),
        (msgspec.structs.replace(named("SS4-true"), refuter=None), 1, "no refuter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_change_that_shows_nothing_is_no_refuter(row, status, words, tmp_path):
    teeth = asyncio.run(refute.refute(row, 1, tmp_path))
    assert (teeth.status, str(teeth)[: len(words)]) == (status, words)


def test_it_counts_only_if_the_named_expectation_fails_in_every_run():
    failed = Outcome("a2 did not become live")

    def decided(*runs, before=""):
        return refute.decide(REFUTER, Tried(before, runs))

    assert decided(failed, failed).status == judging.VALID
    assert str(decided(failed, AS_EXPECTED)) == "NO TEETH: still as expected (seed 1)"
    assert decided(Outcome("found lost")).words.startswith("FAILED OTHERWISE")
    assert decided(failed, Outcome(undecided="no drain")).status == judging.UNKNOWN
    assert str(decided(failed, before="lost")) == "REFUTES EVERYTHING, the run without faults too: lost"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("--environment", "local"),
            "--refute cannot be combined with --environment: refuters run in the simulation",
        ),
        (
            ("--render", "x.md"),
            "--refute cannot be combined with --render: the table shows the unchanged broker",
        ),
        (("--set", "*:x=1"), "--refute cannot be combined with --set: a refuter needs the unchanged row"),
    ],
)
def test_what_would_make_another_row_of_it_is_refused(words, why, capsys):
    assert cli.run(["claims", "SS1", "--refute", *words]) == 254
    assert why in capsys.readouterr().err
