"""Repeat the scenarios with known verdicts and print the table: how often each was judged as the documents say.

Why repeated: a verdict on real processes depends on timing, and a weakness that shows in one run of three is a different thing
from one that shows always. ``python bench/scenarios.py --environment local --runs 10``; exit status 1 if any run was not as expected.
"""

from __future__ import annotations

import argparse
import collections
import io
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from checkers import api
from harness import session
from harness.compose import compose
from harness.scenarios import SCENARIOS, Scenario


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default="local")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--scenario", action="append", help="only these ids")
    parser.add_argument("--store", type=Path, default=Path(tempfile.gettempdir()) / "scenarios")
    arguments = parser.parse_args()
    spark = api.start_in_background()
    chosen = [each for each in SCENARIOS if not arguments.scenario or each.id in arguments.scenario]
    surprises = 0
    rows = []
    for scenario in chosen:
        found: collections.Counter[str] = collections.Counter()
        wrong: list[str] = []
        began = time.monotonic()
        for number in range(arguments.runs):
            problem, names = once(scenario, arguments.environment, number, arguments.store, spark)
            found.update(names or ["nothing"])
            if problem:
                wrong.append(problem)
        surprises += len(wrong)
        expected = " or ".join(scenario.required) or "valid" + (
            f" (or {', '.join(scenario.allowed)})" if scenario.allowed else ""
        )
        seen = ", ".join(f"{name} {count}" for name, count in found.most_common())
        seconds = (time.monotonic() - began) / arguments.runs
        rows.append(
            (
                scenario.id,
                arguments.environment,
                expected,
                f"{arguments.runs - len(wrong)}/{arguments.runs}",
                seen,
                f"{seconds:.0f} s",
            )
        )
        print("  ".join(rows[-1]), flush=True)
    print(
        "\n| scenario | environment | expected | as expected | findings (runs) | a run |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return 1 if surprises else 0


def once(
    scenario: Scenario, environment: str, number: int, store: Path, spark: api.Starting
) -> tuple[str, frozenset[str]]:
    """Run a scenario once: what was wrong with the verdict ("" if nothing), and what was found."""
    spec = msgspec.structs.replace(scenario.spec, environment=environment, seed=number)
    talk = io.StringIO()
    outcome = session.execute(compose(spec, scenario.schedule), store, talk, spark=spark)
    verdict = outcome.verdict
    names = (
        frozenset(each.name for each in verdict.findings if each.severity == "grave")
        if verdict
        else frozenset()
    )
    problem = scenario.judge(verdict.valid if verdict else None, names)
    if problem:
        reasons = "; ".join(verdict.reasons) if verdict else talk.getvalue()[-400:]
        print(
            f"  {scenario.id} run {number}: {problem}. {reasons} {outcome.store}", file=sys.stderr, flush=True
        )
    return problem, names


if __name__ == "__main__":
    sys.exit(main())
