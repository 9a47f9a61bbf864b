"""The simpler tests than a failing one, as choices: Hypothesis' shrinker chooses from them.

Why choices: Hypothesis' shrinker knows nothing of brokers and faults; it lowers numbers and tries
whether the test still fails. So a test is written as a row of numbers. Each is an index into the
candidates for one thing (a fault's kind, the seconds under load ...), simplest first and the
present one last. The failing test is then the largest number everywhere, every smaller number is a
simpler test, and zero everywhere is the emptiest test there is.

The order matters. The shrinker lowers the last number first, so what makes runs cheap comes last
(seconds, pairs, clients). Before that comes each property, present or not. Before that come all
faults, each half of them, each quarter, ... each one, as delta debugging takes them away (Zeller
and Hildebrandt, IEEE TSE 2002), because of dozens of faults one or two matter. What describes a
single fault comes first of all, because by then most faults are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from harness.explore.shrink.case import COUNTS, ShrinkCase
from harness.explore.shrink.delta import parts
from harness.interface import FIELDS, Fault, Schedule, TestSpec
from workloads.registry import parts as workloads_of

_DEFAULTS: Final = TestSpec(name="")
_UNUSED: Final = ("nemeses", "targets", "shapes", "interval_s", "duration_s")
"""The fields that made the schedule, and decide nothing if there is one."""
NOT_RESET: Final = {
    *("name", "system", "policy", "environment", "hosts", "guarantee", "ordered", "attached", "imported"),
    *("seed", "workload", "rate", "pairs", "time_limit_s", "properties", *COUNTS, *_UNUSED),
}
"""The fields that say what is tested, or that are made simpler in steps of their own."""
OFF_DEFAULT: Final = tuple(name for name in FIELDS if name not in NOT_RESET)
"""The fields that are simplest at their default."""
_SECONDS: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0)
_STARTS_S: Final = (1.0, 2.0, 3.0)
_RATES: Final = (5.0, 10.0, 20.0, 40.0, 100.0)
_SIMPLER_KINDS: Final = {"power-loss": "kill", "stop": "kill", "stall": "partition", "disk-stall": "pause"}
_SIMPLER_SHAPES: Final = ("pair-link", "isolate-live", "isolate-backup", "halves")
_SIMPLER_TARGETS: Final = (None, "live", "one")


@dataclass(frozen=True, slots=True)
class Place:
    """A choice: its candidates, at least two, simplest first, the present one last."""

    name: str
    candidates: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """A failing case as places to fill in; made by ``form``."""

    case: ShrinkCase
    described: tuple[tuple[Place, ...], ...]
    """The places that describe each fault."""
    properties: tuple[tuple[str, str, Any], ...]
    """(node, name, value) of each property."""
    fields: tuple[Place, ...]

    @property
    def parts(self) -> tuple[range, ...]:
        """The parts of the faults: each fault alone, then ever larger parts, all of them last."""
        count = len(self.case.schedule.faults)
        return tuple(reversed([*parts(count)]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of candidates of each place, in the order of the choices."""
        return (
            *(len(place.candidates) for places in self.described for place in places),
            *(2 for _ in self.parts),
            *(2 for _ in self.properties),
            *(len(place.candidates) for place in self.fields),
        )

    @property
    def present(self) -> tuple[int, ...]:
        """The choices that give the case itself."""
        return tuple(size - 1 for size in self.sizes)

    def filled(self, choices: Sequence[int]) -> ShrinkCase:
        """Return the case that these choices give, one for each place."""
        assert len(choices) == len(self.sizes), f"{len(choices)} choices for {len(self.sizes)} places"
        remaining = iter(choices)
        described = [_chosen(places, remaining) for places in self.described]
        away = {number for part in self.parts if not next(remaining) for number in part}
        faults = [
            _made(fault, values)
            for number, (fault, values) in enumerate(zip(self.case.schedule.faults, described, strict=True))
            if number not in away
        ]
        properties: dict[str, dict[str, Any]] = {}
        kept_properties = [property_place for property_place in self.properties if next(remaining)]
        changes = _chosen(self.fields, remaining)
        if changes.pop(_ANY_PROPERTY, True):
            properties = {node: {} for node, values in self.case.spec.properties.items() if not values}
            for node, name, value in kept_properties:
                properties.setdefault(node, {})[name] = value
        if not changes.pop(_TRACES, True):
            changes |= {name: getattr(_DEFAULTS, name) for name in _UNUSED}
        spec = msgspec.structs.replace(self.case.spec, properties=properties, **changes)
        return ShrinkCase(spec, Schedule(faults=tuple(sorted(faults, key=lambda fault: fault.start_s))))


_ANY_PROPERTY: Final = "any property"
_TRACES: Final = "traces"


def form(case: ShrinkCase) -> Form:
    """Return the places of a case."""
    spec = case.spec
    properties = tuple(
        (node, name, value) for node, values in spec.properties.items() for name, value in values.items()
    )
    return Form(
        case=case,
        described=tuple(tuple(_describing(fault)) for fault in case.schedule.faults),
        properties=properties,
        fields=tuple(_fields(spec)),
    )


def _chosen(places: Sequence[Place], choices: Iterator[int]) -> dict[str, Any]:
    return {place.name: place.candidates[next(choices)] for place in places}


def _fields(spec: TestSpec) -> Iterator[Place]:
    """Yield what can be simpler in a spec; what changes the cost of a run most comes last."""
    if any(getattr(spec, name) != getattr(_DEFAULTS, name) for name in _UNUSED):
        yield Place(_TRACES, (False, True))
    for name in OFF_DEFAULT:
        yield from _place(spec, name, [getattr(_DEFAULTS, name)])
    if len(several := [*workloads_of(spec.workload)]) > 1:
        yield from _place(spec, "workload", several)
    yield from _place(spec, "rate", [*_below(spec.rate, _RATES)])
    for name in reversed(COUNTS):
        count = getattr(spec, name)
        yield from _place(
            spec, name, sorted({fewer for fewer in (1, 2, count // 2, count - 1) if 1 <= fewer < count})
        )
    if spec.properties:
        yield Place(_ANY_PROPERTY, (False, True))
    yield from _place(spec, "pairs", range(1, spec.pairs))
    yield from _place(spec, "time_limit_s", [*_below(spec.time_limit_s, _SECONDS)])


def _describing(fault: Fault) -> Iterator[Place]:
    """Yield what can be simpler in a fault that stays."""
    yield from _place(fault, "start_s", [*_below(fault.start_s, _STARTS_S)])
    if fault.duration_s is not None:
        yield from _place(fault, "duration_s", [*_below(fault.duration_s, _SECONDS)])
    if fault.target is not None:
        targets = _SIMPLER_TARGETS[:1] if fault.target in _SIMPLER_TARGETS else _SIMPLER_TARGETS
        yield from _place(fault, "target", targets)
    for name in fault.options:
        yield Place(f"{_OPTION}{name}", (False, True))
    if fault.shape is not None:
        simple = _SIMPLER_SHAPES
        yield from _place(
            fault, "shape", simple[: simple.index(fault.shape)] if fault.shape in simple else simple
        )
    if fault.kind in _SIMPLER_KINDS:
        yield Place("kind", (_SIMPLER_KINDS[fault.kind], fault.kind))


_OPTION: Final = "option "


def _made(fault: Fault, values: dict[str, Any]) -> Fault:
    """Return the fault with the chosen values.

    A fault that has become another kind or shape keeps only the option that all kinds have.
    """
    fields = {name: value for name, value in values.items() if not name.startswith(_OPTION)}
    made = msgspec.structs.replace(fault, **fields)
    same = (made.kind, made.shape) == (fault.kind, fault.shape)
    options = {
        name: value
        for name, value in fault.options.items()
        if values[f"{_OPTION}{name}"] and (same or name == "pair")
    }
    return msgspec.structs.replace(made, options=options)


def _place(owner: TestSpec | Fault, name: str, simpler: Sequence[Any]) -> Iterator[Place]:
    """Yield the place of a field, if there is anything to choose."""
    present = getattr(owner, name)
    candidates = tuple(dict.fromkeys(value for value in simpler if value != present))
    if candidates:
        yield Place(name, (*candidates, present))


def _below(value: float, simple: Sequence[float]) -> Iterator[float]:
    """Yield smaller simple numbers, the smallest first, then the number without its fraction."""
    yield from (number for number in simple if number < value)
    for digits in (0, 1):
        rounded = round(value, digits)
        if 0 < rounded < value:
            yield rounded
