"""The state of a shrinking: the smallest case so far, the budget that is left, and the runs made.

Why apart from the ways of choosing what to try next: delta debugging and Hypothesis both ask "does
this simpler case still fail?", and the rules for an answer must be the same for both. Nothing is
run twice, and nothing that leaves the bounds is run at all. A step that takes away something large
is tried with several seeds, and the budget ends both in the same way.
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
"""The number of seeds tried for a step that takes away something large, the run's own first.

A smaller run interleaves differently and may need another seed to fail.
"""
COUNTS: Final = ("groups", "queues", "producers", "consumers")
"""The fields of a spec that count clients, and what they use."""
_FEW: Final = 2


@dataclass(frozen=True, slots=True)
class ShrinkCase:
    """A test and its faults, which together are made smaller."""

    spec: TestSpec
    schedule: Schedule

    @property
    def key(self) -> bytes:
        """A key that is the same for equal cases only."""
        return msgspec.json.encode((self.spec, self.schedule))


@dataclass(slots=True)
class Budget:
    """The limits of a shrinking: runs, and seconds of real time."""

    runs: int = RUNS
    seconds: float = SECONDS
    spent: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """True if no further run may be begun."""
        return self.spent >= self.runs or time.monotonic() - self.began >= self.seconds


@dataclass(frozen=True, slots=True)
class Shrunk(Generic[T]):
    """The smallest case that was found, its evidence, and the cost of finding it.

    ``evidence`` is what running the case gave. ``complete`` is False if the budget ended the
    shrinking.
    """

    case: ShrinkCase
    evidence: T
    runs: int
    seconds: float
    complete: bool


class Attempts(Generic[T]):
    """The attempts of a shrinking.

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
            seeds: the number of seeds tried for a large step.
            budget: runs of ``find``, and seconds.
            tell: is called with a line about each success.
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
        """Return whether a simpler case fails with any of the seeds that are tried for it.

        If it does, it becomes the best case. False when the budget is over. The case's own seed is
        ignored: the seed of the best case is tried first.
        """
        for seeded in self._seeded(case):
            if self.budget.over:
                return False
            outcome = self._outcome(seeded)
            if outcome is not None:
                self.best, self.evidence = seeded, outcome
                words = describe(seeded)
                if self._tell is not None and words != self._told:  # the words may not show the change
                    self._told = words
                    self._tell(f"{words}, after {counted(self.budget.spent, 'run')}")
                return True
        return False

    def restart(self, case: ShrinkCase, evidence: T) -> None:
        """Continue from another case that fails.

        The results of earlier runs stay known, and the budget is what is left of it.
        """
        self.best, self.evidence = case, evidence

    def ended(self) -> Shrunk[T]:
        """Return the result of the shrinking."""
        budget = self.budget
        return Shrunk(
            self.best,
            self.evidence,
            budget.spent,
            time.monotonic() - budget.began,
            complete=not budget.over,
        )

    def _outcome(self, case: ShrinkCase) -> T | None:
        """Return what running a case gives, or gave before; None if it does not fail."""
        key = case.key
        if key not in self._known:
            self._known[key] = None
            if self._possible(case):
                self.budget.spent += 1
                with contextlib.suppress(UsageError):
                    self._known[key] = self._find(case)
        return self._known[key]

    def _seeded(self, case: ShrinkCase) -> Iterator[ShrinkCase]:
        best_seed = self.best.spec.seed
        yield _with_seed(case, best_seed)
        if large(case, self.best):
            for seed in range(self._seeds - 1):
                yield _with_seed(case, seed)

    def _possible(self, case: ShrinkCase) -> bool:
        try:
            return self._allowed(case)
        except UsageError:
            return False


def large(case: ShrinkCase, best: ShrinkCase) -> bool:
    """Return whether the step to ``case`` takes away so much that it is worth several seeds.

    That is faults, pairs, time, or all but a few clients or groups.
    """
    new, old = case.spec, best.spec
    return (
        len(case.schedule.faults) < len(best.schedule.faults)
        or new.pairs < old.pairs
        or new.time_limit_s < old.time_limit_s
        or any(getattr(new, name) < getattr(old, name) and getattr(new, name) <= _FEW for name in COUNTS)
    )


def size(case: ShrinkCase) -> tuple[float, ...]:
    """Return a comparable size: smaller cases are easier to read; faults count first."""
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
    """Return a case in words: "2 faults, 1 property, 1 pair, 6 groups, 8 s"."""
    properties = sum(len(values) for values in case.spec.properties.values())
    return (
        f"{counted(len(case.schedule.faults), 'fault')}, {counted(properties, 'property')}, "
        f"{counted(case.spec.pairs, 'pair')}, {counted(case.spec.groups, 'group')}, "
        f"{case.spec.time_limit_s:g} s"
    )


def _with_seed(case: ShrinkCase, seed: int) -> ShrinkCase:
    return ShrinkCase(msgspec.structs.replace(case.spec, seed=seed), case.schedule)
