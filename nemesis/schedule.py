"""Schedules of faults: made from a seed, kept as JSON, checked before anything starts.

A schedule is a list of intervals (start, duration, kind, target). Faults do not depend on each
other, so that deleting any of them leaves a valid schedule, which shrinking needs. The same seed
makes the same schedule, byte for byte.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.interface import Fault, NodePlan, Schedule, TestSpec, UsageError
from harness.interface.texts import json_value
from nemesis import registry
from nemesis.kind import Kind
from nemesis.link import LinkKind
from nemesis.near import near
from nemesis.node import LateStart
from nemesis.partition import SHAPES
from nemesis.target import names_in

JITTER: Final = 0.25
"""The share of the interval by which starts vary.

Why: faults of two nemeses then meet in different phases, instead of always in the same one.
"""

SHORTEST_S: Final = 0.1


def generate(spec: TestSpec, nodes: Sequence[NodePlan], chance: random.Random) -> Schedule:
    """Return a schedule of the faults of ``spec.nemeses``.

    The faults of each nemesis last for ``duration_s``, with ``interval_s`` of peace between them.

    The first fault begins at about half the interval. Several nemeses each keep their own rhythm,
    evenly displaced. All faults end half an interval before the time limit, so that the recovery
    can be seen; a time limit too short for one fault gives one shorter fault in its middle. Shapes
    and targets come in shuffled turns, so that each is used before any comes twice. A fault that
    nothing heals comes once, and has no duration.

    Raises UsageError for an unknown nemesis, shape or target, or one that the cluster is too small
    for.
    """
    faults: list[Fault] = []
    for place, name in enumerate(spec.nemeses):
        kind = registry.get(name)
        if isinstance(kind, LateStart):
            faults.append(_late_start(spec, nodes, chance))
            continue
        shapes = _turns(_shapes(kind, spec, nodes), chance)
        targets = _turns(spec.targets if kind.targets else (), chance)
        times = _intervals(spec, place, chance)
        for start_s, duration_s in itertools.islice(times, 1) if kind.for_good else times:
            faults.append(
                Fault(
                    kind=name,
                    start_s=round(start_s, 3),
                    duration_s=None if kind.for_good else round(duration_s, 3),
                    target=next(targets) or kind.default_target,
                    shape=next(shapes),
                )
            )
    faults.sort(key=lambda fault: fault.start_s)
    return Schedule(faults=tuple(faults))


def load(path: Path) -> Schedule:
    """Return the schedule in a JSON file; raises UsageError with the file and the place in it."""
    try:
        return json_value(path.read_bytes(), Schedule)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no schedule: {error}") from None


def save(schedule: Schedule, path: Path) -> None:
    """Write a schedule as JSON that a person can edit; ``load`` returns the same schedule."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(schedule), indent=2) + b"\n")


def validate(
    schedule: Schedule, supports: Mapping[str, str], nodes: Sequence[NodePlan], events: Collection[str] = ()
) -> None:
    """Check that a schedule can be carried out on this cluster.

    Raises UsageError with the first fault that is wrong, that the cluster is too small for, or that
    the environment cannot inject.

    ``events`` are those that a fault can wait for.
    """
    late: set[str] = set()
    for place, fault in enumerate(schedule.faults, 1):
        where = f"fault {place} ({fault.kind})"
        try:
            kind = registry.get(fault.kind)
            _validate_times(fault)
            _validate_event(fault, events)
            kind.validate(fault, nodes)
            if isinstance(kind, LateStart):
                _hold(names_in(fault.target or ""), late)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        reason = registry.unsupported(fault.kind, supports)
        if reason:
            raise UsageError(f"{where}: this environment cannot do it: {reason}")


def _hold(names: list[str], late: set[str]) -> None:
    for name in names:
        if name in late:
            raise UsageError(f"{name} is held back twice")
        late.add(name)


def _validate_times(fault: Fault) -> None:
    if not (math.isfinite(fault.start_s) and fault.start_s >= 0):
        raise UsageError(f"start-s is {fault.start_s:g}: it must be 0 or more")
    if fault.duration_s is not None and not (math.isfinite(fault.duration_s) and fault.duration_s > 0):
        raise UsageError(f"duration-s is {fault.duration_s:g}: it must be more than 0")


def _validate_event(fault: Fault, events: Collection[str]) -> None:
    if fault.after is not None and fault.after not in events:
        raise UsageError(f'after: unknown event "{fault.after}": {near(fault.after, events)}')


def _intervals(spec: TestSpec, place: int, chance: random.Random) -> Iterator[tuple[float, float]]:
    """Yield the start and the duration (s) of each fault of the nemesis at ``place``."""
    period = spec.interval_s + spec.duration_s
    margin = min(spec.interval_s / 2, spec.time_limit_s / 4)
    end = spec.time_limit_s - margin
    start = spec.interval_s / 2 + place * period / len(spec.nemeses)
    if start + spec.duration_s > end:
        # The fault begins as late as it fits. If not even one of the asked length fits, a shorter
        # one is made in the middle of the time limit.
        start = min(start, max(end - spec.duration_s, spec.time_limit_s / 4))
        yield start, max(SHORTEST_S, min(spec.duration_s, end - start))
        return
    while True:
        swing = JITTER * spec.interval_s
        begin = max(0.0, start + chance.uniform(-swing, swing) / 2)
        if begin + spec.duration_s > end:
            if start + spec.duration_s > end:
                return
            begin = end - spec.duration_s
        yield begin, spec.duration_s
        start += period


def _shapes(kind: Kind, spec: TestSpec, nodes: Sequence[NodePlan]) -> tuple[str, ...]:
    """Return the shapes that take turns: those asked for, else all that the cluster allows."""
    if not isinstance(kind, LinkKind):
        return ()
    if spec.shapes:
        for shape in spec.shapes:
            kind.validate(Fault(kind=kind.name, start_s=0, shape=shape), nodes)
        return spec.shapes
    shapes = tuple(shape for shape in kind.default_shapes if not SHAPES[shape].lacks(nodes))
    if not shapes:
        raise UsageError(f"{kind.name}: {len(nodes)} nodes are too few for any shape")
    return shapes


def _turns(choices: Sequence[str], chance: random.Random) -> Iterator[str | None]:
    """Yield all choices in a shuffled order, again and again; None for ever if there are none."""
    while True:
        if not choices:
            yield None
        yield from chance.sample(choices, len(choices))


def _late_start(spec: TestSpec, nodes: Sequence[NodePlan], chance: random.Random) -> Fault:
    """Return a fault that lets nodes join under load.

    The node is one that the targets name, else a backup-to-be. Where no broker has a backup, it is
    any broker but the first, or two of them. It is never the master broker: without it the others
    would be suspended.
    """
    named = [target for target in spec.targets if target in {node.name for node in nodes}]
    backups = [node.name for node in nodes if node.configured == "slave"]
    later = [node.name for node in nodes[1:] if node.broker and not node.master]
    candidates = named or backups or later
    if not candidates:
        raise UsageError(f"late-start: {len(nodes)} node is too few, one must start with the load")
    couples = [] if named or backups else [",".join(couple) for couple in itertools.pairwise(later)]
    duration_s = min(spec.interval_s / 2 + spec.duration_s, spec.time_limit_s / 2)
    return Fault(
        kind="late-start",
        start_s=0.0,
        duration_s=round(duration_s, 3),
        target=chance.choice([*candidates, *couples]),
    )
