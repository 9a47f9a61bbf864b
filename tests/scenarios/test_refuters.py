"""Every row has a refuter that is a change of today's broker, and the machinery that tries it
can say no.
"""

import ast
import asyncio
import datetime as dt

import pytest
from mutants import refutation
from mutants.changed import ROOT, Replacement, texts
from mutants.refutation_worker import Outcome, Tried, tried
from mutants.refuters import REFUTERS
from mutants.refuters.refuter import Refuter

from harness.claims import refuters
from harness.claims.scenarios import PROBES, SCENARIOS, named
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
    assert {row.id for row in ROWS} == set(REFUTERS)


@pytest.mark.row
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_refuter_is_a_change_of_the_broker_or_of_the_public_client_and_it_compiles(row):
    changed = texts(REFUTERS[row.id].changes)
    assert changed
    for path, text in changed.items():
        assert path.startswith(("broker/", "stomp_protocol/client/"))
        assert text != (ROOT / path).read_text()
        compile(text, path, "exec")


def sample():
    """A few scenarios, others each day: probes start processes, and take longer."""
    return [SCENARIOS[(TODAY * SAMPLE + number) % len(SCENARIOS)] for number in range(SAMPLE)]


@pytest.mark.parametrize("row", sample(), ids=lambda row: row.id)
def test_without_what_it_is_about_the_row_fails(row, tmp_path):
    teeth = asyncio.run(refutation.refute(row, REFUTERS[row.id], 1, tmp_path))
    assert str(teeth).startswith(refutation.AS_IT_SHOULD)


@pytest.mark.cluster
def test_without_what_it_is_about_a_probe_fails_at_its_step(tmp_path):
    (probe,) = (row for row in chosen(["HA8"]) if row.id == "HA8")
    teeth = asyncio.run(refutation.refute(probe, REFUTERS[probe.id], 1, tmp_path))
    assert str(teeth).startswith(
        f"{refutation.AS_IT_SHOULD}: {REFUTERS[probe.id].fails}: expected 1, found 0"
    )


def test_what_a_scenario_leaves_undrained_is_no_fault_of_the_changed_broker(tmp_path):
    row = named("CL5-strict")
    assert row.spec.drain_at
    assert tried(row, 1, tmp_path) == Tried("", (AS_EXPECTED,))


def changed_by(old, new, path="broker/policies/shared_store/live.py"):
    """Another change of the broker for SS4-true."""
    return Refuter(without="made", fails="a2 did not become live", changes=(Replacement(path, old, new),))


@pytest.mark.parametrize(
    ("refuter", "status", "words"),
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
        (None, 1, "no refuter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_change_that_shows_nothing_is_no_refuter(refuter, status, words, tmp_path):
    teeth = asyncio.run(refutation.refute(named("SS4-true"), refuter, 1, tmp_path))
    assert (teeth.status, str(teeth)[: len(words)]) == (status, words)


def test_it_counts_only_if_the_named_expectation_fails_in_every_run():
    failed = Outcome("a2 did not become live")

    def decided(*runs, before=""):
        return refutation.decide(REFUTER, Tried(before, runs))

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


def test_outside_of_a_checkout_the_command_says_where_the_refuters_are(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(refuters, "_TESTS", tmp_path)
    assert cli.run(["claims", "SS1", "--refute"]) == 254
    assert capsys.readouterr().err.endswith(
        "--refute: the changed brokers are in tests/mutants of the project's repository; "
        "run this in a checkout that was installed with: pip install -e .\n"
    )
    assert refuters.refuter_words(named("SS1")) == ""


def sources(directory):
    return {path: path.read_text() for path in sorted((ROOT / directory).rglob("*.py"))}


def test_no_module_of_the_harness_has_source_text_of_the_broker():
    """A change of the broker then breaks tests, and no command of the product."""
    broker = "\n".join(sources("broker").values())
    quoted = [
        (path.name, node.value)
        for path, text in sources("harness").items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if "\n" in node.value.strip() and node.value.strip() in broker
    ]
    assert quoted == []
