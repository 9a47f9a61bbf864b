"""A failing run made smaller: fewer faults, clients, properties and seconds, simpler numbers, and the anomaly keeps its name.

Why: what search finds has a dozen faults of which one or two matter, and nobody reads a history of a dozen faults. Every fault
of a schedule stands for itself, so any subset is a test; the simulation decides each in about a second.

How: delta debugging (Zeller and Hildebrandt, IEEE TSE 2002) over the faults, then over the properties; then each field towards what a reader expects
(defaults, one group, whole seconds), greedily, until nothing more can be taken away. Every step is strictly simpler, so it ends. A
smaller run interleaves otherwise and may need other luck, so what takes away something large is tried with several seeds.

Kept while shrinking: the name of the anomaly; and the bounds of ``harness.swarm.promised`` if the run kept them to begin with. Without the
second, a bug of a vote between three pairs would shrink to the split brain of one pair, which the documents admit.

Why not Hypothesis: it shrinks what it has drawn itself, so a run that is known to fail must first be drawn again. Measured with the split brain of one pair among
eight faults: this takes 9 runs to the one fault that matters and 56 to the end; ``hypothesis.find`` over the same subsets and numbers took 18 to
fail at all, and after 38 had 7 of the 8 faults left. A run costs a second, so that decides it (and a program need not ship its test tools).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from harness import swarm
from harness.interface import Fault, Schedule, TestSpec, UsageError
from harness.simulate import Simulated, simulate

T = TypeVar("T")

RUNS: Final = 300
SECONDS: Final = 180.0
SEEDS: Final = 3
"""Seeds that are tried for what takes away something large, the run's own first."""

_DEFAULTS: Final = TestSpec(name="")
_UNUSED: Final = ("nemeses", "targets", "shapes", "interval_s", "duration_s")
"""What made the schedule, and decides nothing when there is one."""
_OFF_DEFAULT: Final = (
    "prefetch",
    "hold_s",
    "payload_bytes",
    "operation_timeout_s",
    "unavailable_bound_s",
    "recovery_bound_s",
    "quiet_period_s",
)
_COUNTS: Final = ("groups", "queues", "producers", "consumers")
_SECONDS: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0)
_RATES: Final = (5.0, 10.0, 20.0, 40.0, 100.0)
_SIMPLER_KINDS: Final = {"power-loss": "kill", "stop": "kill", "stall": "partition", "disk-stall": "pause"}
_SIMPLER_SHAPES: Final = ("pair-link", "isolate-live", "isolate-backup", "halves")


@dataclass(frozen=True, slots=True)
class Case:
    """A test and its faults: what becomes smaller."""

    spec: TestSpec
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Step:
    """A simpler case. ``large`` ones are worth several seeds."""

    case: Case
    large: bool = False


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
    """The smallest case that was found, what running it gave, and what it took. ``complete`` is False where the budget ended it."""

    case: Case
    evidence: T
    runs: int
    seconds: float
    complete: bool


def shrink(
    run: Simulated, anomaly: str, *, budget: Budget | None = None, tell: Callable[[str], None] | None = None
) -> Shrunk[Simulated]:
    """Make an invalid simulated run smaller.

    Args:
        run: what was found.
        anomaly: the name that must be among what breaks the guarantee of every smaller run.
        budget: what it may cost; a run that is begun is ended.
        tell: told of each success.
    """
    assert anomaly in run.grave, f"{anomaly} is none of {sorted(run.grave)}"
    start = Case(run.spec, run.schedule)
    bounded = swarm.promised(run.spec, run.schedule)

    def find(case: Case) -> Simulated | None:
        again = simulate(case.spec, case.schedule)
        return again if anomaly in again.grave else None

    def allowed(case: Case) -> bool:
        return not bounded or swarm.promised(case.spec, case.schedule)

    return reduce(start, run, find, PASSES, allowed=allowed, budget=budget, tell=tell)


def reduce(
    start: Case,
    evidence: T,
    find: Callable[[Case], T | None],
    passes: Sequence[Callable[[Case], Iterator[Step]]],
    *,
    allowed: Callable[[Case], bool] = lambda _: True,
    seeds: int = SEEDS,
    budget: Budget | None = None,
    tell: Callable[[str], None] | None = None,
) -> Shrunk[T]:
    """The greedy loop: take the first simpler case that still fails, until a round of all passes finds none.

    Args:
        start: a case that fails.
        evidence: what running it gave.
        find: runs a case; None if it does not fail. UsageError says that there is no such case.
        passes: each gives the steps from a case, the largest first.
        allowed: which cases may be run at all.
        seeds: tried for a large step.
        budget: runs of ``find``, and seconds.
        tell: told of each success.
    """
    spending = budget or Budget()
    best, proof = start, evidence
    failed: set[bytes] = set()

    def attempt(step: Step) -> bool:
        nonlocal best, proof
        for case in _seeded(step, seeds):
            key = msgspec.json.encode((case.spec, case.schedule))
            if spending.over:
                return False
            if key in failed:
                continue
            failed.add(key)
            if not _possible(case, allowed):
                continue
            spending.spent += 1
            try:
                found = find(case)
            except UsageError:
                continue
            if found is not None:
                best, proof = case, found
                if tell is not None:
                    tell(f"{describe(best)}, after {spending.spent} runs")
                return True
        return False

    improved = True
    while improved and not spending.over:
        improved = False
        for steps in passes:
            while not spending.over and any(attempt(step) for step in steps(best)):
                improved = True
    return Shrunk(best, proof, spending.spent, time.monotonic() - spending.began, complete=not spending.over)


def describe(case: Case) -> str:
    """ "2 faults, 1 property, 1 pair, 6 groups, 8 s"."""
    properties = sum(len(values) for values in case.spec.properties.values())
    return (
        f"{_counted(len(case.schedule.faults), 'fault')}, {_counted(properties, 'property')}, "
        f"{_counted(case.spec.pairs, 'pair')}, {_counted(case.spec.groups, 'group')}, {case.spec.time_limit_s:g} s"
    )


def _counted(number: int, thing: str) -> str:
    many = thing[:-1] + "ies" if thing.endswith("y") else thing + "s"
    return f"{number} {thing if number == 1 else many}"


def _seeded(step: Step, seeds: int) -> Iterator[Case]:
    yield step.case
    if step.large:
        for seed in range(seeds - 1):
            yield Case(msgspec.structs.replace(step.case.spec, seed=seed), step.case.schedule)


def _possible(case: Case, allowed: Callable[[Case], bool]) -> bool:
    try:
        return allowed(case)
    except UsageError:
        return False


# ------------------------------------------------------------------------------------------------------------- passes


def fewer_faults(case: Case) -> Iterator[Step]:
    """None at all; then without ever smaller parts of them."""
    for kept in _without_parts(case.schedule.faults):
        yield Step(Case(case.spec, Schedule(faults=kept)), large=True)


def without_traces(case: Case) -> Iterator[Step]:
    """The fields that made the schedule, which say nothing any more."""
    spec = msgspec.structs.replace(case.spec, **{name: getattr(_DEFAULTS, name) for name in _UNUSED})
    if spec != case.spec:
        yield Step(Case(spec, case.schedule))


def shorter(case: Case) -> Iterator[Step]:
    """Less time under load."""
    for value in _below(case.spec.time_limit_s, _SECONDS):
        yield _with(case, large=True, time_limit_s=value)


def default_properties(case: Case) -> Iterator[Step]:
    """None of them set; then without ever smaller parts."""
    flat = tuple(
        (node, name, value) for node, values in case.spec.properties.items() for name, value in values.items()
    )
    for kept in _without_parts(flat):
        properties: dict[str, dict[str, Any]] = {}
        for node, name, value in kept:
            properties.setdefault(node, {})[name] = value
        yield _with(case, properties=properties)
    if not flat and case.spec.properties:
        yield _with(case, properties={})


def default_fields(case: Case) -> Iterator[Step]:
    """What the clients do, as by default."""
    for name in _OFF_DEFAULT:
        if getattr(case.spec, name) != getattr(_DEFAULTS, name):
            yield _with(case, **{name: getattr(_DEFAULTS, name)})


def fewer_clients(case: Case) -> Iterator[Step]:
    """One of each, or half of them; fewer sends."""
    for name in _COUNTS:
        count = getattr(case.spec, name)
        for value in dict.fromkeys((1, 2, count // 2, count - 1)):
            if 1 <= value < count:
                yield _with(case, large=value <= 2, **{name: value})
    for rate in _below(case.spec.rate, _RATES):
        yield _with(case, rate=rate)


def fewer_pairs(case: Case) -> Iterator[Step]:
    """A smaller cluster."""
    for pairs in range(1, case.spec.pairs):
        yield _with(case, large=True, pairs=pairs)


def simpler_faults(case: Case) -> Iterator[Step]:
    """Each fault for itself: a simpler kind or shape, no options, whole seconds, shorter, at an early moment."""
    for place, fault in enumerate(case.schedule.faults):
        for simpler in _simpler(fault):
            faults = [*case.schedule.faults]
            faults[place] = simpler
            faults.sort(key=lambda one: one.start_s)
            yield Step(Case(case.spec, Schedule(faults=tuple(faults))))


PASSES: Final = (
    fewer_faults,
    without_traces,
    shorter,
    default_properties,
    fewer_pairs,
    default_fields,
    fewer_clients,
    simpler_faults,
)


def _with(case: Case, *, large: bool = False, **changes: Any) -> Step:
    return Step(Case(msgspec.structs.replace(case.spec, **changes), case.schedule), large=large)


def _without_parts(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Delta debugging's complements: without everything, each half, each quarter, ... each one."""
    size = len(items)
    while size:
        for begin in range(0, len(items), size):
            yield items[:begin] + items[begin + size :]
        size = size // 2 if size > 1 else 0


def _below(value: float, simple: Sequence[float]) -> Iterator[float]:
    """Simple numbers that are smaller, the smallest first; then the number without its fraction."""
    yield from (one for one in simple if one < value)
    for digits in (0, 1):
        rounded = round(value, digits)
        if 0 < rounded < value:
            yield rounded


def _simpler(fault: Fault) -> Iterator[Fault]:
    if fault.kind in _SIMPLER_KINDS:
        yield msgspec.structs.replace(fault, kind=_SIMPLER_KINDS[fault.kind], options=_shared(fault))
    if fault.shape is not None:
        simple = _SIMPLER_SHAPES
        rank = simple.index(fault.shape) if fault.shape in simple else len(simple)
        for shape in simple[:rank]:
            yield msgspec.structs.replace(fault, shape=shape, options=_shared(fault))
    if fault.options:
        yield msgspec.structs.replace(fault, options={})
        if len(fault.options) > 1:
            for name in fault.options:
                rest = {other: value for other, value in fault.options.items() if other != name}
                yield msgspec.structs.replace(fault, options=rest)
    if fault.target is not None:
        for target in (None, "live", "one")[: 3 if fault.target not in ("live", "one") else 1]:
            yield msgspec.structs.replace(fault, target=target)
    if fault.duration_s is not None:
        for duration_s in _below(fault.duration_s, _SECONDS):
            yield msgspec.structs.replace(fault, duration_s=duration_s)
    for start_s in _below(fault.start_s, (1.0, 2.0, 3.0)):
        yield msgspec.structs.replace(fault, start_s=start_s)


def _shared(fault: Fault) -> dict[str, Any]:
    """The options that every kind and shape has."""
    return {name: value for name, value in fault.options.items() if name == "pair"}


__all__ = ["PASSES", "Budget", "Case", "Shrunk", "Step", "describe", "fewer_faults", "reduce", "shrink"]
