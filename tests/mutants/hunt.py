"""The hunt for one mutant: schedules drawn from an arena until an expected anomaly is found.

Swarm testing (Groce et al., ISSTA 2012): each attempt draws which kinds of faults there are at all, how long, how often and on whom, because a
run with everything in it hides what needs one thing often. Nothing in here knows a mutant.

Faults are bounded so that a sound pair survives them. What ends brokers is not mixed with what silences them, and one pair gets time to recover before the next
blow: a broker that is restarted inside a partition, or before the one that went on without it, serves old data (RP13), and the hunt would find that documented
weakness in every broker instead of the mutant's bug.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from harness.interface import Fault, NodePlan, Schedule, TestSpec, UsageError
from harness.systems.registry import for_policy
from mutants.mutant import Arena
from nemesis import registry as kinds
from nemesis import schedule as schedules

BUDGET: Final = 300
"""Schedules after which a mutant counts as not found."""

FIELDS: Final[dict[str, Any]] = {
    "environment": "simulation",
    "policy": "replication",
    "pairs": 3,
    "workload": "groups",
    "time_limit_s": 8.0,
    "rate": 40.0,
    "producers": 6,  # with three pairs: each has one in either client zone, so that a cut-off live keeps some
    "consumers": 6,
    "groups": 6,
}
TARGETS: Final = ("live", "backup", "lives", "one", "minority", "all")
PAIRED: Final = ("replication",)
"""Policies under which one broker takes over from another."""
ENDING: Final = ("kill", "stop", "power-loss")
MILD: Final = ("disk-slow",)
SETTLE_S: Final = 1.5
"""From the end of a fault that ended a broker to the next: a restart, a synchronisation and a failback."""
DURATIONS_S: Final = (0.5, 2.5, 5.0)
"""Below and above what the brokers in these tests take for a silence (2 s) and need for a vote (1 s)."""
INTERVALS_S: Final = (0.5, 1.5, 3.0)


def spec_of(arena: Arena, seed: int) -> TestSpec:
    """The arena's test without faults."""
    return TestSpec(**{"name": "mutant", **FIELDS, **arena.fields, "seed": seed})


def attempt(arena: Arena, seed: int, number: int) -> tuple[TestSpec, Schedule]:
    """The test and the schedule of one attempt of one hunt: the same for the same numbers."""
    chance = random.Random(f"{seed}/{number}")
    base = spec_of(arena, chance.getrandbits(32))
    if not arena.kinds:
        return base, Schedule()
    nodes = for_policy(base.policy).plan(base)
    family = _family(arena.kinds, chance) if base.policy in PAIRED else arena.kinds
    chosen = tuple(kind for kind in family if chance.random() < 0.5) or (chance.choice(family),)
    targets = base.targets or tuple(chance.sample(TARGETS, chance.randint(1, 3)))
    spec = msgspec.structs.replace(
        base,
        nemeses=chosen,
        targets=tuple(target for target in targets if _possible(target, nodes)),
        duration_s=round(chance.choice(DURATIONS_S) * chance.uniform(0.7, 1.3), 3),
        interval_s=round(chance.choice(INTERVALS_S) * chance.uniform(0.7, 1.3), 3),
    )
    drawn = schedules.generate(spec, nodes, chance)
    if base.policy in PAIRED:
        drawn = Schedule(faults=tuple(_apart(drawn.faults)))
    if chance.random() < 0.5:
        pair = chance.choice(sorted({node.pair for node in nodes}))
        drawn = Schedule(faults=tuple(_focused(fault, pair, nodes) for fault in drawn.faults))
    return spec, drawn


def _family(arena: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    """The kinds of one attempt: those that end brokers or those that silence them, and the mild ones with either."""
    ends = chance.choice([kind for kind in arena if kind not in MILD]) in ENDING
    return tuple(kind for kind in arena if kind in MILD or (kind in ENDING) is ends)


def _apart(faults: Sequence[Fault]) -> Iterator[Fault]:
    """Those faults that leave a pair the time to recover from the one before, if that ended a broker."""
    free_s = 0.0
    for fault in faults:
        if fault.kind in ENDING:
            if fault.start_s < free_s:
                continue
            free_s = fault.start_s + (fault.duration_s or 0.0) + SETTLE_S
        yield fault


def _possible(target: str, nodes: Sequence[NodePlan]) -> bool:
    """Is the cluster large enough?"""
    try:
        kinds.get("kill").validate(Fault(kind="kill", start_s=0.0, target=target), nodes)
    except UsageError:
        return False
    return True


def _focused(fault: Fault, pair: str, nodes: Sequence[NodePlan]) -> Fault:
    """The same fault, of that pair where a fault can be of one: a sequence of blows hits hardest in one place."""
    focused = msgspec.structs.replace(fault, options={**fault.options, "pair": pair})
    try:
        kinds.get(fault.kind).validate(focused, nodes)
    except UsageError:
        return fault
    return focused
