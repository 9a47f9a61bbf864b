"""Repeat the scenarios with known outcomes where brokers can run, and write one table.

How often each came out as the documents say, and where.

Why repeated, and everywhere: an outcome on real processes depends on timing, and a weakness that
shows in one run of three is a different thing from one that shows always; what comes in the
simulation alone would be a weakness of the simulation. ``python bench/scenarios.py --environment
local --runs 3`` measures and keeps what it saw after every scenario; with ``--render FILE`` the
table of all environments measured so far is written. Exit status 1 if a run was not as expected.
"""

from __future__ import annotations

import argparse
import collections
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from checkers import api
from harness.claims.runner import once
from harness.claims.scenarios import Scenario
from harness.claims.scenarios.registry import chosen
from harness.run.reproduction import ordered

ENVIRONMENTS = ("simulation", "local", "docker")


class Share(msgspec.Struct, frozen=True, rename="kebab"):
    """A scenario's runs in one environment.

    How many were as expected, what they found, and what was wrong.
    """

    runs: int
    as_expected: int
    found: dict[str, int]
    problems: dict[str, int]


class Measured(msgspec.Struct, rename="kebab"):
    """What was measured in one environment; ``shares`` is by the scenario's id."""

    environment: str
    date: str
    command: str
    machine: str
    commit: str = ""
    shares: dict[str, Share] = {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", choices=ENVIRONMENTS, help="where to measure; none renders only")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--scenario", action="append", default=[], help="only these rows or families")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="as jepsen-run's")
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "jepsen-bench-scenarios")
    parser.add_argument("--render", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    scenarios = tuple(
        each.with_settings(arguments.settings) if isinstance(each, Scenario) else each
        for each in chosen(arguments.scenario)
    )
    arguments.kept.mkdir(parents=True, exist_ok=True)
    surprises = 0
    if arguments.environment:
        surprises = measure(
            scenarios, arguments.environment, arguments.runs, arguments.kept, arguments.settings
        )
    table = "\n".join(render(scenarios, [load(arguments.kept, name) for name in ENVIRONMENTS])) + "\n"
    if arguments.render:
        arguments.render.write_text(table, encoding="utf-8")
    else:
        print(table)
    return 1 if surprises else 0


def measure(
    scenarios: tuple[Scenario, ...], environment: str, runs: int, kept: Path, settings: list[str]
) -> int:
    """Run each so often, with the seeds 0, 1, ...; how many runs were not as expected.

    What was seen is kept after each scenario.
    """
    measured = load(kept, environment) or Measured(environment, "", "", "")
    measured.date = f"{datetime.now(UTC):%-d %B %Y}"
    said = "".join(f" --set {each}" for each in settings)
    measured.command = f"python bench/scenarios.py --environment {environment}{said}"
    measured.commit = _commit()
    measured.machine = f"{platform.machine()}, Python {platform.python_version()}"
    spark = api.start_in_background()
    surprises = 0
    for scenario in scenarios:
        ran = [once(scenario, environment, seed, kept / environment, spark) for seed in range(runs)]
        found = collections.Counter(name for one in ran for name in ordered(one.found) or ("nothing",))
        problems = collections.Counter(one.problem for one in ran if one.problem)
        surprises += problems.total()
        share = Share(runs, runs - problems.total(), dict(found.most_common()), dict(problems))
        measured.shares[scenario.id] = share
        (kept / f"{environment}.json").write_bytes(msgspec.json.format(msgspec.json.encode(measured)))
        told = ", ".join(f"{name} {count}" for name, count in share.found.items())
        print(f"{scenario.id:14} {environment} {share.as_expected}/{runs}: {told}", flush=True)
        for problem, count in problems.items():
            places = ", ".join(str(one.store) for one in ran if one.problem == problem)
            print(f"  {count} x {problem}: {places}", file=sys.stderr, flush=True)
    return surprises


def load(kept: Path, environment: str) -> Measured | None:
    """What was measured there before; None if nothing was."""
    try:
        return msgspec.json.decode((kept / f"{environment}.json").read_bytes(), type=Measured)
    except FileNotFoundError:
        return None


def render(scenarios: tuple[Scenario, ...], measured: list[Measured | None]) -> list[str]:
    """The page of what was measured.

    The table, its dates and commands, and every run that was not as expected.
    """
    there = [each for each in measured if each is not None]
    lines = [
        "# The claims in three environments",
        "",
        (
            "The same scenarios ([what they claim](../claims.md)), the same faults at the same moments: in "
            "the simulation, on processes of one machine, and on containers with a network"
        ),
        (
            "of their own. A claim that promises is refuted by a finding, one that admits a weakness by a "
            "run without it."
        ),
        "",
        f"| scenario | claim | expected | {' | '.join(each.environment for each in there)} |",
        f"|---|---|---|{'---|' * len(there)}",
    ]
    for scenario in scenarios:
        cells = [_share(each.shares.get(scenario.id)) for each in there]
        if any(cell != "-" for cell in cells):
            lines.append(f"| {scenario.id} | {scenario.claim} | {scenario.expected} | {' | '.join(cells)} |")
    lines += [
        "",
        (
            "k/n: k of n runs were as expected, with the seeds 0, 1, ...; below what they found, and in how "
            "many runs. Measured:"
        ),
        "",
    ]
    lines += [
        f"- {each.environment}: {each.date}, `{each.command}`, {each.machine}, commit "
        f"{each.commit or 'unknown'}"
        for each in there
    ]
    wrong = [
        f"- {name}, {each.environment}, {count} of {share.runs}: {problem}"
        for each in there
        for name, share in each.shares.items()
        for problem, count in share.problems.items()
    ]
    if wrong:
        lines += ["", "## Not as expected", "", *wrong]
    return lines


def _commit() -> str:
    """Of what was measured; empty outside a checkout."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _share(share: Share | None) -> str:
    if share is None:
        return "-"
    found = ", ".join(f"{name} {count}" for name, count in share.found.items())
    return f"{share.as_expected}/{share.runs}<br>{found}"


if __name__ == "__main__":
    sys.exit(main())
