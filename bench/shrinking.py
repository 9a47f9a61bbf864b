"""How small failing runs become, and what that costs.

Shrinking as the program does it beside delta debugging first and greedy passes, on the same runs.

Three sorts of runs: a known cause among faults that have nothing to do with it, what an unbounded
search finds in the broker as it is, and what it found for bugs that were put in, in the broken
broker, both as they were drawn (``bench/failing``). Every way has the same candidates, bounds,
seeds and number of runs, and is charged the same CPU time for the same run (see
``shrinking_worker``). ``python -m bench.shrinking [--all] [--case NAME ...] [--way NAME ...]
[--runs 300] [--keep DIR]``; without --all a third of the cases, some of each sort. Exit status 1 if
the product's own way leaves more faults than another.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.mutant import Replacement  # noqa: E402 - the mutants are part of the tests, not of the product
from mutants.registry import MUTANTS  # noqa: E402
from mutants.workshop import Workshop  # noqa: E402

from harness.claims.scenarios import named  # noqa: E402
from harness.interface import Fault, Schedule, TestSpec  # noqa: E402

WAYS = ("hypothesis", "delta, hypothesis", "greedy", "greedy, cheap first")
MEASURES = (
    "faults",
    "described",
    "fault-s",
    "properties",
    "pairs",
    "clients",
    "groups",
    "off-default",
    "rate",
    "seconds",
)
"""What is left, the most important first.

A result is smaller that is smaller in the first of these that differs.
"""
EVERY = 3
"""Without --all every third case is measured."""


@dataclass(frozen=True, slots=True)
class Failing:
    """One failing run. ``among``: the anomalies it is known for, none being any."""

    name: str
    spec: TestSpec
    schedule: Schedule
    among: tuple[str, ...] = ()
    replacements: tuple[Replacement, ...] = ()


def noise(count: int) -> tuple[Fault, ...]:
    """Faults that a pair survives, at odd moments."""
    several = (
        Fault(kind="clock-skew", start_s=0.513, duration_s=2.2, target="one"),
        Fault(kind="disk-slow", start_s=1.137, duration_s=2.0, target="live", options={"delay_ms": 5.0}),
        Fault(
            kind="slow",
            start_s=2.011,
            duration_s=1.3,
            shape="pair-link",
            options={"delay_ms": 20.0, "pair": "a"},
        ),
        Fault(kind="pause", start_s=3.217, duration_s=0.3, target="live"),
        Fault(kind="clock-step", start_s=9.5, duration_s=1.0, target="one"),
        Fault(kind="kill", start_s=11.2, duration_s=1.1, target="backup"),
        Fault(kind="disk-slow", start_s=12.6, duration_s=1.0, target="one"),
        Fault(kind="clock-step", start_s=0.9, duration_s=0.7, target="one"),
        Fault(kind="disk-slow", start_s=2.6, duration_s=0.9, target="one", options={"delay_ms": 5.0}),
        Fault(kind="pause", start_s=10.4, duration_s=0.2, target="one"),
        Fault(kind="clock-skew", start_s=11.9, duration_s=1.2, target="one"),
    )
    return several[:count]


def hidden(scenario: str, count: int, *causes: Fault, **changes: Any) -> Failing:
    """A scenario whose verdict is known, hidden among what does not matter.

    Its faults (or ``causes``) are among ``count`` faults and three properties that do not matter.
    """
    known = named(scenario)
    faults = sorted((*noise(count), *(causes or known.schedule.faults)), key=lambda fault: fault.start_s)
    properties = {
        "*": {
            **known.spec.properties.get("*", {}),
            "journal.segment-size": 8192,
            "cluster.retry-interval": 300,
            "ha-policy.replication.vote-retries": 10,
        }
    }
    spec = msgspec.structs.replace(
        known.spec, **{"time_limit_s": 14.0, "rate": 60.0, "properties": properties, **changes}
    )
    return Failing(
        f"{scenario} among {len(faults)} faults", spec, Schedule(faults=tuple(faults)), known.required
    )


def scenarios() -> Iterator[Failing]:
    """Known causes."""
    cut = Fault(kind="partition", start_s=4.391, duration_s=5.617, shape="halves", options={"pair": "a"})
    yield hidden("RP4", 7, cut, prefetch=10)
    yield hidden("RP4", 11, cut, prefetch=2, hold_s=0.1)
    yield hidden("RP6", 7)
    yield hidden("RP11", 5)
    yield hidden("RP14-false", 4)


def recorded(prefix: str) -> Iterator[Failing]:
    """What searches found, kept as it was drawn.

    In the broker as it is, or in one with a bug put in.
    """
    for path in sorted((ROOT / "bench" / "failing").glob(f"{prefix}-*.json")):
        kept = json.loads(path.read_bytes())
        mutant = MUTANTS.get(kept.get("mutant"))
        yield Failing(
            path.stem,
            msgspec.convert(kept["spec"], TestSpec),
            msgspec.convert(kept["schedule"], Schedule),
            (kept["anomaly"],) if mutant is None else tuple(sorted(mutant.anomalies)),
            () if mutant is None else (*mutant.arena.clients, *mutant.replacements),
        )


def measured(failing: Failing, runs: int, ways: Sequence[str], keep: Path | None) -> dict[str, Any]:
    """One row; taken from ``keep`` if it is there already."""
    kept = None if keep is None else keep / f"{failing.name.replace(' ', '-')}.json"
    if kept is not None and kept.exists():
        known: dict[str, Any] = json.loads(kept.read_bytes())
        return known
    with Workshop(failing.replacements, "bench.shrinking_worker") as workshop:
        answer = workshop.ask(
            spec=msgspec.to_builtins(failing.spec),
            schedule=msgspec.to_builtins(failing.schedule),
            among=failing.among,
            runs=runs,
            ways=ways,
        )
    answer["name"] = failing.name
    if kept is not None:
        kept.write_text(json.dumps(answer))
    return answer


def size(answer: dict[str, Any]) -> tuple[float, ...]:
    """Comparable: the smaller the better."""
    return tuple(answer[name] for name in MEASURES)


def row(answer: dict[str, Any], ways: Sequence[str]) -> str:
    """What is left and what it took, in each way."""
    cells = [answer["name"], answer["anomaly"], f"{answer['start']['faults']}"]
    smallest = min(size(answer["ways"][way]) for way in ways)
    for way in ways:
        one = answer["ways"][way]
        mark = "" if size(one) > smallest else "*"
        cells.append(
            f"{one['faults']} f {one['described']} d {one['fault-s']:g} s, {one['properties']} p, "
            f"{one['clients']} c {one['groups']} g, "
            f"{one['seconds']:g} s{mark}; {one['runs']} r {one['cpu-s']:.0f} "
            f"s{'' if one['complete'] else ' (cut)'}"
        )
    return f"| {' | '.join(cells)} |"


def summary(answers: Sequence[dict[str, Any]], ways: Sequence[str]) -> Iterator[str]:
    """Totals: the sums that matter and how often each way was (as good as) the smallest."""
    yield f"| of {len(answers)} runs | {' | '.join(ways)} |"
    yield f"|---|{'---|' * len(ways)}"
    best = {answer["name"]: min(size(answer["ways"][way]) for way in ways) for answer in answers}
    rows: dict[str, list[str]] = {
        "smallest, or as small": [
            f"{sum(size(answer['ways'][way]) == best[answer['name']] for answer in answers)}" for way in ways
        ]
    }
    for measure in MEASURES:
        rows[measure] = [f"{sum(answer['ways'][way][measure] for answer in answers):g}" for way in ways]
    for measure in ("runs", "cpu-s"):
        each = [[answer["ways"][way][measure] for answer in answers] for way in ways]
        rows[measure] = [f"{sum(one):.0f} (median {statistics.median(one):.0f})" for one in each]
    for name, cells in rows.items():
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all cases: about an hour")
    parser.add_argument("--case", action="append", help="only those whose names have this in them")
    parser.add_argument("--way", action="append", choices=WAYS, help="only these")
    parser.add_argument("--runs", type=int, default=300, help="of each way at the most")
    parser.add_argument(
        "--keep", type=Path, help="a directory for each answer: a measurement that was interrupted goes on"
    )
    arguments = parser.parse_args()
    if arguments.keep is not None:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    ways = arguments.way or WAYS
    answers = []
    print(f"| run | anomaly | faults | {' | '.join(ways)} |\n|---|---|---|{'---|' * len(ways)}", flush=True)
    for place, failing in enumerate(
        case for sort in (scenarios(), recorded("search"), recorded("mutant")) for case in sort
    ):
        if arguments.case:
            if not any(text in failing.name for text in arguments.case):
                continue
        elif not arguments.all and place % EVERY:
            continue
        answer = measured(failing, arguments.runs, ways, arguments.keep)
        if answer["anomaly"] is None:
            print(f"{failing.name} no longer fails", file=sys.stderr, flush=True)
            continue
        answers.append(answer)
        print(row(answer, ways), flush=True)
    print()
    print("\n".join(summary(answers, ways)))
    product, *others = (sum(answer["ways"][way]["faults"] for answer in answers) for way in ways)
    return 1 if any(product > other for other in others) else 0


if __name__ == "__main__":
    sys.exit(main())
