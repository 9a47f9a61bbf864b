"""A failing test while it is made smaller.

The smallest case so far, what may still be spent, and the runs that were made.

Why apart from the ways of choosing what to try next: delta debugging and Hypothesis both ask "does
this simpler case still fail?", and the rules for an answer must be the same for both: nothing is
run twice, nothing that leaves the bounds is run at all, what takes away something large is tried
with several seeds, and the budget ends every way alike.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgspec

from harness.explore.talk import counted
from harness.interface import Schedule, TestSpec, UsageError

T = TypeVar("T")

RUNS: Final = 300
SECONDS: Final = 180.0
SEEDS: Final = 3
"""Seeds that are tried for what takes away something large, the run's own first.

A smaller run interleaves otherwise and may need other luck.
"""
COUNTS: Final = ("groups", "queues", "producers", "consumers")
"""Fields of a spec that count what the clients are and use."""
_FEW: Final = 2


@dataclass(frozen=True, slots=True)
class ShrinkCase:
    """A test and its faults: what becomes smaller."""

    spec: TestSpec
    schedule: Schedule

    @property
    def key(self) -> bytes:
        """What tells it from another."""
        return msgspec.json.encode((self.spec, self.schedule))


@dataclass(slots=True)
class Budget:
    """How much may be spent: runs, and seconds of real time."""

    runs: int = RUNS
    seconds: float = SECONDS
    spent: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether no run may be begun any more."""
        return self.spent >= self.runs or time.monotonic() - self.began >= self.seconds


@dataclass(frozen=True, slots=True)
class Shrunk(Generic[T]):
    """The smallest case that was found, what running it gave, and what it took.

    ``complete`` is False where the budget ended it.
    """

    case: ShrinkCase
    evidence: T
    runs: int
    seconds: float
    complete: bool


class Attempts(Generic[T]):
    """What shrinking has tried.

    ``best`` is the smallest case that failed, ``evidence`` what running it gave.
    """

    def __init__(
        self,
        start: ShrinkCase,
        evidence: T,
        find: Callable[[ShrinkCase], T | None],
        *,
        allowed: Callable[[ShrinkCase], bool] = lambda _: True,
        seeds: int = SEEDS,
        budget: Budget | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Begin with a case that fails.

        Args:
            start: that case.
            evidence: what running it gave.
            find: runs a case; None if it does not fail. UsageError says that there is no such case.
            allowed: which cases may be run at all.
            seeds: tried for a large step.
            budget: runs of ``find``, and seconds.
            tell: told of each success.
        """
        self.best = start
        self.evidence = evidence
        self.budget = budget or Budget()
        self._find = find
        self._allowed = allowed
        self._seeds = seeds
        self._tell = tell
        self._told = ""
        self._known: dict[bytes, T | None] = {}

    def fails(self, case: ShrinkCase) -> bool:
        """Whether a simpler case fails with any of the seeds that it is worth.

        If so, it is the best. False when the budget is over.

        The case's own seed says nothing: the best one's is tried first.
        """
        for seeded in self._seeded(case):
            if self.budget.over:
                return False
            found = self._found(seeded)
            if found is not None:
                self.best, self.evidence = seeded, found
                words = describe(seeded)
                if self._tell is not None and words != self._told:  # what became smaller may not show
                    self._told = words
                    self._tell(f"{words}, after {self.budget.spent} runs")
                return True
        return False

    def restart(self, case: ShrinkCase, evidence: T) -> None:
        """Go on from another case that fails.

        What was run is still known, and the budget is what is left of it.
        """
        self.best, self.evidence = case, evidence

    def ended(self) -> Shrunk[T]:
        """What it came to."""
        budget = self.budget
        return Shrunk(
            self.best,
            self.evidence,
            budget.spent,
            time.monotonic() - budget.began,
            complete=not budget.over,
        )

    def _found(self, case: ShrinkCase) -> T | None:
        """What running it gave, now or before; None if it does not fail."""
        key = case.key
        if key not in self._known:
            self._known[key] = None
            if self._possible(case):
                self.budget.spent += 1
                with contextlib.suppress(UsageError):
                    self._known[key] = self._find(case)
        return self._known[key]

    def _seeded(self, case: ShrinkCase) -> Iterator[ShrinkCase]:
        own = self.best.spec.seed
        yield _with_seed(case, own)
        if large(case, self.best):
            for seed in range(self._seeds - 1):
                yield _with_seed(case, seed)

    def _possible(self, case: ShrinkCase) -> bool:
        try:
            return self._allowed(case)
        except UsageError:
            return False


def large(case: ShrinkCase, best: ShrinkCase) -> bool:
    """Whether the step to ``case`` takes away so much that it is worth several seeds.

    Faults, pairs, time, or all but a few clients or groups.
    """
    new, old = case.spec, best.spec
    return (
        len(case.schedule.faults) < len(best.schedule.faults)
        or new.pairs < old.pairs
        or new.time_limit_s < old.time_limit_s
        or any(getattr(new, name) < getattr(old, name) and getattr(new, name) <= _FEW for name in COUNTS)
    )


def size(case: ShrinkCase) -> tuple[float, ...]:
    """Comparable: what is smaller is easier to read, faults first."""
    spec, faults = case.spec, case.schedule.faults
    return (
        len(faults),
        sum(len(values) for values in spec.properties.values()),
        spec.pairs,
        spec.producers + spec.consumers,
        spec.groups,
        spec.time_limit_s,
        sum(len(fault.options) for fault in faults),
    )


def describe(case: ShrinkCase) -> str:
    """ "2 faults, 1 property, 1 pair, 6 groups, 8 s"."""
    properties = sum(len(values) for values in case.spec.properties.values())
    return (
        f"{counted(len(case.schedule.faults), 'fault')}, {counted(properties, 'property')}, "
        f"{counted(case.spec.pairs, 'pair')}, {counted(case.spec.groups, 'group')}, "
        f"{case.spec.time_limit_s:g} s"
    )


def _with_seed(case: ShrinkCase, seed: int) -> ShrinkCase:
    return ShrinkCase(msgspec.structs.replace(case.spec, seed=seed), case.schedule)
