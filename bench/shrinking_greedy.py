"""Greedy passes as a shrinker of failing runs.

What ``harness.explore.shrink.shrink`` is measured against, and what it was before.

Delta debugging over faults, then over properties; then each field towards its simplest, the first
candidate that still fails being taken, pass by pass, until a round of all passes finds none.
Bounds, seeds and candidates are the product's: what is compared is only the way through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from harness.explore.shrink import delta
from harness.explore.shrink.case import COUNTS, Attempts, ShrinkCase
from harness.explore.shrink.simpler import OFF_DEFAULT, Place, form
from harness.interface import Schedule, TestSpec

T = TypeVar("T")

DEFAULTS = TestSpec(name="")


def faults_first(attempts: Attempts[T]) -> None:
    """The passes in the order they once had: faults, then what makes runs cheap, then the rest."""
    _reduce(attempts, FAULTS_FIRST)


def cheap_first(attempts: Attempts[T]) -> None:
    """The same passes in today's order, to tell the order from the shrinker."""
    _reduce(attempts, CHEAP_FIRST)


def _reduce(attempts: Attempts[T], passes: Sequence[Callable[[ShrinkCase], Iterator[ShrinkCase]]]) -> None:
    before = None
    while attempts.best != before and not attempts.budget.over:
        before = attempts.best
        for steps in passes:
            while not attempts.budget.over and any(attempts.fails(case) for case in steps(attempts.best)):
                pass


def fewer_faults(case: ShrinkCase) -> Iterator[ShrinkCase]:
    """None at all; then without ever smaller parts of them."""
    for kept in delta.without_parts(case.schedule.faults):
        yield ShrinkCase(case.spec, Schedule(faults=kept))


def fewer_properties(case: ShrinkCase) -> Iterator[ShrinkCase]:
    """None of them set; then without ever smaller parts."""
    properties = form(case).properties
    for kept in delta.without_parts(properties):
        nodes: dict[str, dict[str, Any]] = {}
        for node, name, value in kept:
            nodes.setdefault(node, {})[name] = value
        yield ShrinkCase(msgspec.structs.replace(case.spec, properties=nodes), case.schedule)


def simpler_fields(*names: str) -> Callable[[ShrinkCase], Iterator[ShrinkCase]]:
    """Those fields of the spec, one after the other."""

    def steps(case: ShrinkCase) -> Iterator[ShrinkCase]:
        places = form(case)
        first = len(places.sizes) - len(places.fields)
        for name in names:
            for number, place in enumerate(places.fields):
                if place.name == name:
                    yield from _lower(case, first + number, place)

    return steps


def simpler_faults(case: ShrinkCase) -> Iterator[ShrinkCase]:
    """Each fault for itself.

    A simpler kind or shape, no options, another target, shorter, at an early moment.
    """
    number = 0
    for described in form(case).described:
        for offset, place in reversed([*enumerate(described)]):
            yield from _lower(case, number + offset, place)
        number += len(described)


def _lower(case: ShrinkCase, number: int, place: Place) -> Iterator[ShrinkCase]:
    places = form(case)
    present = places.present
    for choice in range(len(place.candidates) - 1):
        yield places.filled([*present[:number], choice, *present[number + 1 :]])


FAULTS_FIRST = (
    fewer_faults,
    simpler_fields("traces"),
    simpler_fields("time_limit_s"),
    fewer_properties,
    simpler_fields("pairs"),
    simpler_fields(*OFF_DEFAULT),
    simpler_fields(*COUNTS, "rate"),
    simpler_faults,
)
CHEAP_FIRST = (
    simpler_fields("time_limit_s"),
    simpler_fields("pairs"),
    simpler_fields(*COUNTS, "rate"),
    simpler_fields(*OFF_DEFAULT),
    simpler_fields("traces"),
    fewer_properties,
    fewer_faults,
    simpler_faults,
)
