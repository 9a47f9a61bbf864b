"""The verdict of whole histories, each a file that is named by what it proves.

``verdict_cases/expected.tsv`` has the right verdict of each: "valid", "unknown", or "invalid" with
what is found at least, and grave. Columns and reference must both say so.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from checker_rows import lay_out

from checkers import judge
from checkers.schema import COLUMNS
from checkers.verdict import CheckOptions, Promises
from harness.history import plain_judge

CASES = Path(__file__).parent / "verdict_cases"
EXPECTED = {
    row["file"]: row["expected"]
    for row in csv.DictReader((CASES / "expected.tsv").read_text().splitlines(), delimiter="\t")
}
VALID = {"valid": True, "invalid": False, "unknown": None}
OPTIONS = CheckOptions(
    broker=Promises(
        nack="requeue", delivery_attempts=4, most_attempts=4, attempts="refused", keeps_dead_letters=True
    )
)


def rows_of(file: str):
    return [json.loads(line) for line in (CASES / file).read_text().splitlines()]


def expected(file: str) -> tuple[bool | None, set[str]]:
    word, _, names = EXPECTED[file].partition(": ")
    return VALID[word], {name.strip() for name in names.split(",") if name}


def test_every_case_has_a_verdict():
    assert set(EXPECTED) == {path.name for path in CASES.glob("*.jsonl")}


@pytest.mark.parametrize("file", sorted(EXPECTED))
def test_verdict_on_columns(file, tmp_path):
    valid, names = expected(file)
    verdict = judge.judge(lay_out(tmp_path / "history", rows_of(file), slice_rows=1000), OPTIONS)
    grave = {finding.name for finding in verdict.findings if finding.severity == "grave"}
    assert (verdict.valid, names - grave) == (valid, set()), verdict.reasons


@pytest.mark.parametrize("file", sorted(EXPECTED))
def test_verdict_of_the_reference(file):
    valid, names = expected(file)
    whole = [{name: row.get(name) for name in COLUMNS} for row in rows_of(file)]
    decision = plain_judge.judge_as_promised(whole, OPTIONS).decision
    assert (decision.valid, names - decision.grave) == (valid, set()), decision.reasons
