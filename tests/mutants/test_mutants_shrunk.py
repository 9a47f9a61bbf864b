"""What a search drew for a bug becomes small in the broken broker.

Faults that are needed, and little else.

Bars as in tests/harness/test_shrink_quality.py, for the runs that shrinking is for: drawn at
random, found in a broker with a bug, kept as they were drawn.
"""

import json
from pathlib import Path

import msgspec
import pytest

from harness.explore import swarm
from harness.explore.shrink import shrink
from harness.explore.shrink.case import Attempts, Budget, ShrinkCase
from harness.interface import Schedule, TestSpec
from mutants.registry import MUTANTS
from mutants.workshop import Workshop

DRAWN = Path(__file__).parents[2] / "bench" / "failing"
TRIES = 10
UNLIMITED = 1e9
"""Seconds: runs alone are bounded, so that a loaded machine gives the same result."""


def drawn(workshop, mutant):
    """The schedule that found it, as it was drawn, or the first of a few others, should a change
    of the product have turned its history into another one.
    """
    known = json.loads((DRAWN / f"mutant-{mutant.name}.json").read_bytes())
    answer = workshop.ask(spec=known["spec"], schedule=known["schedule"])
    if not mutant.anomalies & answer["anomalies"].keys():
        answer = workshop.ask(
            arena=mutant.name, seed=0, anomalies=sorted(mutant.anomalies), first=0, budget=TRIES
        )
    (anomaly, *_) = sorted(mutant.anomalies & answer["anomalies"].keys())
    case = ShrinkCase(
        msgspec.convert(answer["spec"], TestSpec), msgspec.convert(answer["schedule"], Schedule)
    )
    return case, anomaly


@pytest.mark.parametrize("name", ["deletion-not-journalled", "recovery-forgets-the-last-record"])
def test_the_find_of_a_known_bug_shrinks_to_the_fault_that_it_takes(name):
    mutant = MUTANTS[name]
    with Workshop((*mutant.arena.clients, *mutant.replacements)) as workshop:
        start, anomaly = drawn(workshop, mutant)
        bounded = swarm.promised(start.spec, start.schedule)

        def allowed(case):
            return not bounded or swarm.promised(case.spec, case.schedule)

        def find(case):
            answer = workshop.ask(
                spec=msgspec.to_builtins(case.spec), schedule=msgspec.to_builtins(case.schedule)
            )
            return answer["digest"] if anomaly in answer["anomalies"] else None

        attempts = Attempts(start, "as drawn", find, allowed=allowed, budget=Budget(seconds=UNLIMITED))
        shrink.reduce(attempts)
        small = attempts.best
        assert attempts.ended().complete
        assert find(small) == attempts.evidence
        left = small.schedule.faults
        assert len(left) == 1
        assert small.spec.properties == {}
        assert small.spec.producers + small.spec.consumers <= 4
        assert small.spec.groups <= 3
        assert small.spec.time_limit_s <= 6.0
        for place in range(len(left)):
            fewer = ShrinkCase(small.spec, Schedule(faults=left[:place] + left[place + 1 :]))
            assert not allowed(fewer) or find(fewer) is None, "a fault was left that can go alone"
