"""A process that simulates scenarios and prints what came out.

To be run several times under different hash seeds.

``simulated_process.py SEED ID...`` prints a line for each as soon as it is known, a JSON object: id
-> [history digest, trace digest]. ``--rows`` prints every row and every event instead.
"""

import json
import sys

import msgspec

from harness.claims.scenarios import SCENARIOS
from harness.interface import Fault, Schedule, TestSpec
from harness.run.simulate import simulate

EVERYTHING = "everything"
"""Beside the scenarios: one test with a fault of every kind."""


def plan_of(identifier):
    for scenario in SCENARIOS:
        if scenario.id == identifier:
            return scenario.spec, scenario.schedule
    kinds = {
        "partition": {"shape": "isolate-backup"},
        "slow": {"shape": "pair-link"},
        "stall": {"shape": "pair-link"},
        **{kind: {"target": "a2"} for kind in ("kill", "disk-stall", "destroy", "disk-corrupt")},
        **{kind: {"target": "b1"} for kind in ("pause", "stop", "power-loss", "disk-error", "disk-full")},
        **{
            kind: {"target": "a1"}
            for kind in ("disk-slow", "clock-skew", "clock-step", "clock-strobe", "clock-rate")
        },
    }
    # Time enough between them for brokers that ended themselves to be started again.
    faults = tuple(
        Fault(kind=kind, start_s=1.0 + 4.5 * place, duration_s=1.5, **rest)
        for place, (kind, rest) in enumerate(kinds.items())
    )
    return TestSpec(name=EVERYTHING, pairs=2, time_limit_s=4.5 * len(kinds), rate=30.0), Schedule(
        faults=faults
    )


def main():
    words = sys.argv[1:]
    rows = "--rows" in words
    seed, *identifiers = [word for word in words if word != "--rows"]
    for identifier in identifiers:
        spec, schedule = plan_of(identifier)
        run = simulate(msgspec.structs.replace(spec, seed=int(seed)), schedule, judge=False, trace=rows)
        if rows:
            print(*(json.dumps(row, default=str) for row in run.recorded), sep="\n")
            print(run.trace)
        else:
            print(json.dumps({identifier: [run.digest, run.trace_digest]}), flush=True)


if __name__ == "__main__":
    main()
