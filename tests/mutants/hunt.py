"""The hunt for one mutant: schedules drawn from an arena until an expected anomaly is found.

Swarm testing (Groce et al., ISSTA 2012): each attempt draws which kinds of faults there are at all, how long, how often and on whom, because a
run with everything in it hides what needs one thing often. Nothing in here knows a mutant.
"""

from __future__ import annotations

import random
from typing import Any, Final

from harness.interface import Schedule, TestSpec
from harness.systems.registry import for_policy
from mutants.mutant import Arena
from nemesis import schedule as schedules

BUDGET: Final = 300
"""Schedules after which a mutant counts as not found."""

FIELDS: Final[dict[str, Any]] = {
    "environment": "simulation",
    "policy": "replication",
    "pairs": 3,
    "workload": "groups",
    "time_limit_s": 14.0,
    "rate": 100.0,
    "producers": 6,
    "consumers": 6,
    "groups": 12,
}


def spec_of(arena: Arena, seed: int) -> TestSpec:
    """The arena's test without faults."""
    return TestSpec(**{"name": "mutant", **FIELDS, **arena.fields, "seed": seed})


def attempt(arena: Arena, seed: int, number: int) -> tuple[TestSpec, Schedule]:
    """The test and the schedule of one attempt of one hunt: the same for the same numbers."""
    chance = random.Random(f"{seed}/{number}")
    base = spec_of(arena, chance.getrandbits(32))
    if not arena.kinds:
        return base, Schedule()
    kinds = tuple(kind for kind in arena.kinds if chance.random() < 0.5) or (chance.choice(arena.kinds),)
    fields = {
        "nemeses": kinds,
        "duration_s": round(chance.choice((0.3, 1.0, 3.0, 6.0)) * chance.uniform(0.7, 1.3), 3),
        "interval_s": round(chance.choice((0.5, 1.5, 4.0)) * chance.uniform(0.7, 1.3), 3),
    }
    values = {field: getattr(base, field) for field in base.__struct_fields__}
    spec = TestSpec(**{**values, **fields})
    return spec, schedules.generate(spec, for_policy(spec.policy).plan(spec), chance)
