"""The times that tests shorten: the product's own default beside the value of a test.

A race between two brokers ends as it does in production only if their times keep their proportions.
So the times of a group are divided by one number, and each that is not says why.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

TOLERANCE: Final = 0.05
"""How far a time may be from its proportion, as a share of it: properties are whole numbers."""


class Time(NamedTuple):
    """A time: its property, the product's default, and the value of a test, in one unit.

    ``reason`` says why it is not in the proportion of its group.
    """

    name: str
    product: float
    test: float
    reason: str = ""


class Group(NamedTuple):
    """Times that decide together; a test divides each of them by ``divisor``."""

    purpose: str
    divisor: float
    times: tuple[Time, ...]

    def departing(self) -> list[Time]:
        """Return the times that are not in proportion."""
        return [
            time
            for time in self.times
            if abs(time.test * self.divisor - time.product) > TOLERANCE * time.product
        ]


def groups_of(system: str) -> Sequence[Group] | None:
    """Return the groups of a system, which are in its module ``times``; None if it has none."""
    place = f"harness.systems.{system}.times"
    if importlib.util.find_spec(place) is None:
        return None
    groups: Sequence[Group] = importlib.import_module(place).GROUPS
    return groups


def settings(groups: Iterable[Group], prefix: str) -> dict[str, Any]:
    """Return a test's values of the properties with this prefix, by the rest of their names."""
    return {
        time.name.removeprefix(prefix): time.test
        for group in groups
        for time in group.times
        if time.name.startswith(prefix)
    }
