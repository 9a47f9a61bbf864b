"""The verdict of whole histories, each a file that is named by what it proves.

``verdict_cases/expected.tsv`` has the right verdict of each: "valid", "unknown", or "invalid" with
what is found at least, and grave; of a warning, "valid" with what is found. Where a case needs
promises of its own, a third column has those that differ from ``PROMISES``, as JSON. Columns and
reference must both say so.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest
from checker_rows import lay_out

from checkers import judge
from checkers.schema import COLUMNS
from checkers.verdict import CheckOptions, Promises
from harness.history import plain_judge

CASES = Path(__file__).parent / "verdict_cases"
ROWS = [*csv.DictReader((CASES / "expected.tsv").read_text().splitlines(), delimiter="\t", quotechar="'")]
EXPECTED = {row["file"]: row["expected"] for row in ROWS}
BESIDE = {row["file"]: json.loads(row["promises"] or "{}") for row in ROWS}
VALID = {"valid": True, "invalid": False, "unknown": None}
PROMISES = Promises(
    nack="requeue", delivery_attempts=4, most_attempts=4, attempts="refused", keeps_dead_letters=True
)


def options_of_case(file: str) -> CheckOptions:
    """What the brokers of a case promised."""
    return CheckOptions(broker=msgspec.structs.replace(PROMISES, **BESIDE[file]))


def rows_of(file: str):
    return [json.loads(line) for line in (CASES / file).read_text().splitlines()]


def expected(file: str) -> tuple[bool | None, set[str]]:
    word, _, names = EXPECTED[file].partition(": ")
    return VALID[word], {name.strip() for name in names.split(",") if name}


def test_every_case_has_a_verdict():
    assert set(EXPECTED) == {path.name for path in CASES.glob("*.jsonl")}


@pytest.mark.parametrize("file", sorted(EXPECTED))
@pytest.mark.slow
def test_verdict_on_columns(file, tmp_path):
    valid, names = expected(file)
    verdict = judge.judge(
        lay_out(tmp_path / "history", rows_of(file), slice_rows=1000), options_of_case(file)
    )
    found = {finding.name for finding in verdict.findings if valid or finding.severity == "grave"}
    assert (verdict.valid, names - found) == (valid, set()), verdict.reasons


@pytest.mark.parametrize("file", sorted(EXPECTED))
def test_verdict_of_the_reference(file):
    valid, names = expected(file)
    whole = [{name: row.get(name) for name in COLUMNS} for row in rows_of(file)]
    decision = plain_judge.judge_as_promised(whole, options_of_case(file)).decision
    found = decision.severities.keys() if valid else decision.grave
    assert (decision.valid, names - found) == (valid, set()), decision.reasons
