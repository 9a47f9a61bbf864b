"""Faults, their targets and their schedules.

``registry`` has the kinds by name, ``schedule`` makes and checks schedules, ``conductor`` carries
a schedule out.
"""

from __future__ import annotations

from harness.interface import Schedule


def held_back(schedule: Schedule) -> frozenset[str]:
    """Return the nodes that must not be started with the others: a ``late-start`` starts them."""
    from nemesis.target import names_in  # noqa: PLC0415 - networkx is not needed to name the package

    return frozenset(
        name
        for fault in schedule.faults
        if fault.kind == "late-start"
        for name in names_in(fault.target or "")
    )
