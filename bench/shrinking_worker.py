"""What runs inside a process with a (possibly) mutated product for ``bench/shrinking.py``.

One failing run a line in, what each way of shrinking made of it a line out.

Each simulated run is made once, and its answer and its CPU time are given to every way that asks
for it: so all ways are charged alike for the same run, and a machine that is busy for a minute
spoils no comparison.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bench import shrinking_greedy
from harness.explore import swarm
from harness.explore.shrink import delta, shrink
from harness.explore.shrink.case import Attempts, Budget, ShrinkCase
from harness.explore.shrink.simpler import OFF_DEFAULT, form
from harness.interface import Schedule, TestSpec, UsageError
from harness.run import reproduction
from harness.run.simulate import simulate

DEFAULTS = TestSpec(name="")
SECONDS = 1e9
"""Of real time: runs alone bound each way."""


class Bench:
    """One failing run: what its simpler cases gave, and what asking cost."""

    def __init__(self, start: ShrinkCase, anomaly: str) -> None:
        self._anomaly = anomaly
        self._bounded = swarm.promised(start.spec, start.schedule)
        self._known: dict[bytes, tuple[bool | None, float]] = {}
        self.cpu_s = 0.0

    def find(self, case: ShrinkCase) -> bool | None:
        """True if the case fails in the same way; the cost is added up."""
        key = msgspec.json.encode((case.spec, case.schedule))
        if key not in self._known:
            began = time.process_time()
            try:
                fails: bool | None = self._anomaly in simulate(case.spec, case.schedule).grave or None
            except UsageError:
                fails = None
            self._known[key] = (fails, time.process_time() - began)
        fails, cost_s = self._known[key]
        self.cpu_s += cost_s
        return fails

    def allowed(self, case: ShrinkCase) -> bool:
        """Within the bounds that the failing run kept."""
        return not self._bounded or swarm.promised(case.spec, case.schedule)

    def attempts(self, start: ShrinkCase, runs: int) -> Attempts[bool]:
        """Nothing tried yet."""
        return Attempts(start, True, self.find, allowed=self.allowed, budget=Budget(runs, SECONDS))


def delta_first(attempts: Attempts[bool]) -> None:
    """Delta debugging over the faults, then Hypothesis for the rest, in turns."""
    before = None
    while attempts.best != before and not attempts.budget.over:
        before = attempts.best
        delta.fewer_faults(attempts)
        shrink.lower(form(attempts.best), attempts)


WAYS: Mapping[str, Callable[[Attempts[bool]], None]] = {
    "hypothesis": shrink.reduce,
    "delta, hypothesis": delta_first,
    "greedy": shrinking_greedy.faults_first,
    "greedy, cheap first": shrinking_greedy.cheap_first,
}
"""How a failing run is made smaller, by name; the product's own way first."""


def sizes(case: ShrinkCase) -> dict[str, float]:
    """What is left, the most important first."""
    spec, faults = case.spec, case.schedule.faults
    described = sum(
        (fault.target is not None) + (fault.shape is not None) + len(fault.options) for fault in faults
    )
    return {
        "faults": len(faults),
        "described": described,
        "fault-s": round(sum(fault.duration_s or 0.0 for fault in faults), 3),
        "properties": sum(len(values) for values in spec.properties.values()),
        "pairs": spec.pairs,
        "clients": spec.producers + spec.consumers,
        "groups": spec.groups,
        "off-default": sum(getattr(spec, name) != getattr(DEFAULTS, name) for name in OFF_DEFAULT),
        "rate": spec.rate,
        "seconds": spec.time_limit_s,
    }


def compare(
    spec: TestSpec, schedule: Schedule, among: list[str], runs: int, ways: list[str]
) -> dict[str, Any]:
    """Shrink one failing run in every way.

    ``among`` are the anomalies it may be shrunk to; none: all grave ones.
    """
    run = simulate(spec, schedule)
    names = [name for name in reproduction.ordered(run.grave) if not among or name in among]
    if not names:
        return {"anomaly": None}
    start = ShrinkCase(run.spec, run.schedule)
    bench = Bench(start, names[0])
    answers: dict[str, Any] = {}
    for name in ways:
        bench.cpu_s = 0.0
        attempts = bench.attempts(start, runs)
        WAYS[name](attempts)
        result = attempts.ended()
        answers[name] = {
            **sizes(result.case),
            "runs": result.runs,
            "cpu-s": round(bench.cpu_s, 2),
            "complete": result.complete,
            "case": msgspec.to_builtins((result.case.spec, result.case.schedule)),
        }
    return {"anomaly": names[0], "start": sizes(start), "ways": answers}


def main() -> None:
    """Answer until standard input ends."""
    logging.disable(logging.CRITICAL)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = json.loads(line)
        answer = compare(
            msgspec.convert(job["spec"], TestSpec),
            msgspec.convert(job["schedule"], Schedule),
            job["among"],
            job["runs"],
            job["ways"],
        )
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
