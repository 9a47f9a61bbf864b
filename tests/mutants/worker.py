"""What runs inside a process with a (possibly) mutated product.

One JSON job a line in, one JSON answer a line out.

Jobs: {"arena": mutant's name, "seed", "anomalies", "first", "budget"} hunts; {"spec", "schedule"}
runs one schedule and says what was found; with "anomalies" it is shrunk first, with "origin" the
answer is what ``jepsen-run replay`` takes. Standard output is for answers only; what the product
logs is not shown.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from typing import Any, Final

import msgspec

from harness.interface import Schedule, TestSpec
from harness.run import reproduction
from harness.run import run as life
from harness.run.simulate import simulate
from mutants import hunt
from mutants.registry import MUTANTS

DRAIN_S: Final = 10.0
"""A message that a mutant made unreadable is delivered again and again.

Nobody waits here as long for the end of that as a test does.
"""

UNDRAINED: Final = "could not be drained"


def run(spec: TestSpec, schedule: Schedule) -> dict[str, Any]:
    """One schedule, and what the plain reference checkers found."""
    began = time.perf_counter()
    simulated = simulate(spec, schedule)
    return {
        "spec": msgspec.to_builtins(spec),
        "schedule": msgspec.to_builtins(schedule),
        "anomalies": dict(sorted(Counter(finding.name for finding in simulated.findings).items())),
        "valid": simulated.valid,
        "trouble": simulated.trouble,
        "digest": simulated.digest,
        "virtual-s": simulated.virtual_s,
        "real-s": time.perf_counter() - began,
    }


def shows(answer: dict[str, Any], wanted: set[str]) -> bool:
    """Is one of these found, in a run that has an end?

    One that could not be drained takes whoever replays it minutes.
    """
    return UNDRAINED not in (answer["trouble"] or "") and bool(wanted & answer["anomalies"].keys())


def search(arena: str, seed: int, anomalies: list[str], first: int, budget: int) -> dict[str, Any]:
    """Schedules of that arena, from number ``first`` on, until one of the anomalies is found.

    The answer of ``run`` for it, with how many it took.

    Without a success the last answer, and "schedules" is null. "also" counts what else was seen on
    the way.
    """
    wanted = set(anomalies)
    also: Counter[str] = Counter()
    answer: dict[str, Any] = {}
    began = time.perf_counter()
    for number in range(first, budget):
        answer = run(*hunt.attempt(MUTANTS[arena].arena, seed, number))
        found = shows(answer, wanted)
        also.update(answer["anomalies"].keys())
        also[f"trouble: {answer['trouble']}"] += bool(answer["trouble"])
        if found or number == budget - 1:
            answer |= {
                "schedules": number + 1 if found else None,
                "also": {k: v for k, v in also.items() if v},
            }
            break
    return answer | {"hunt-s": time.perf_counter() - began}


def shrunk(spec: TestSpec, schedule: Schedule, anomalies: list[str]) -> dict[str, Any]:
    """The answer of ``run`` for a schedule from which no fault can be taken without losing the
    anomaly; parts are taken in halves first.
    """
    wanted = set(anomalies)
    best = run(spec, schedule)
    faults = schedule.faults
    size = max(1, len(faults) // 2)
    while True:
        start = 0
        while start < len(faults):
            fewer = faults[:start] + faults[start + size :]
            answer = run(spec, Schedule(faults=fewer))
            if shows(answer, wanted):
                best, faults = answer, fewer
            else:
                start += size
        if size == 1:
            return best
        size //= 2


def kept(spec: TestSpec, schedule: Schedule, origin: str) -> dict[str, Any]:
    """The run as a reproduction.

    Where all that was found is a warning under the guarantee, that is what it names.
    """
    simulated = simulate(spec, schedule)
    found = reproduction.of_simulated(simulated, origin)
    if not found.findings:
        names = reproduction.ordered({finding.name for finding in simulated.findings})
        found = msgspec.structs.replace(found, findings=names)
    built: dict[str, Any] = msgspec.to_builtins(found)
    return built


def main() -> None:
    """Answer until standard input ends."""
    logging.disable(logging.CRITICAL)
    life.DRAIN_S = DRAIN_S  # type: ignore[misc] - a constant for everybody else
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = json.loads(line)
        if "spec" in job:
            one = (msgspec.convert(job["spec"], TestSpec), msgspec.convert(job["schedule"], Schedule))
            if "anomalies" in job:
                answer = shrunk(*one, job["anomalies"])
            else:
                answer = kept(*one, job["origin"]) if "origin" in job else run(*one)
        else:
            answer = search(job["arena"], job["seed"], job["anomalies"], job["first"], job["budget"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
