"""Faults, their targets and their schedules.

``registry`` has the kinds by name, ``schedule`` makes and checks schedules, ``conductor`` carries
a schedule out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from harness.interface import Fault, Schedule


def held_back(schedule: Schedule) -> frozenset[str]:
    """Return the nodes that must not be started with the others: a ``late-start`` starts them."""
    from nemesis.target import names_in  # noqa: PLC0415 - networkx is not needed to name the package

    return frozenset(name for fault in _late_starts(schedule) for name in names_in(fault.target or ""))


def suspended(schedule: Schedule) -> Mapping[str, float]:
    """Return the nodes that may be suspended until a ``late-start`` ends, and when it ends (s)."""
    return {
        name: math.inf if fault.duration_s is None else fault.duration_s
        for fault in _late_starts(schedule)
        for name in fault.options.get("suspends", ())
    }


def _late_starts(schedule: Schedule) -> Iterator[Fault]:
    return (fault for fault in schedule.faults if fault.kind == "late-start")
