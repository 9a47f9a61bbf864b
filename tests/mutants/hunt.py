"""The hunt for one mutant.

Schedules drawn from an arena, by the search itself, until an expected anomaly is found.

Nothing in here knows a mutant, and nothing draws but ``harness.explore.swarm``, which is what
``jepsen-run search`` draws with: what finds the bugs that are known to be there is what looks for
those that are not. Its bounds are in force, so that the hunt does not find the documented
weaknesses of every broker (RP4, RP13) in place of the mutant's bug.
"""

from __future__ import annotations

from typing import Any, Final

from harness.explore import swarm
from harness.explore.plans import run_seed
from harness.interface import Schedule, TestSpec
from mutants.mutant import Arena

BUDGET: Final = 1000
"""Schedules after which a mutant counts as not found."""

FIELDS: Final[dict[str, Any]] = {"policy": "replication", "pairs": 3, "workload": "groups"}
"""What an arena does not say.

With three pairs, six producers: each pair has one in either client zone, so that a cut-off live
keeps some.
"""


def spec_of(arena: Arena, seed: int) -> TestSpec:
    """The arena's test without faults."""
    fields = swarm.defaults({**FIELDS, **arena.fields})
    return TestSpec(**{"name": "mutant", **fields, "nemeses": arena.kinds, "seed": seed})


def attempt(arena: Arena, seed: int, number: int) -> tuple[TestSpec, Schedule]:
    """The test and the schedule of one attempt of one hunt: the same for the same numbers.

    What the arena says is not drawn.
    """
    drawn_from = swarm.swarm(spec_of(arena, 0), fixed=frozenset(arena.fields))
    return swarm.draw(drawn_from, run_seed(seed, number))
