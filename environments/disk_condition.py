"""What faults of disks ask for, and what those in force mean for one disk together.

Faults overlap: a disk may be slowed by one fault and filled by another, and healing one must leave
the other in force. So a disk has no switches; its condition is always made anew from the faults in
force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from environments.fault_options import nothing_left, number
from environments.part import Part, PartFault
from filesystems.disk.condition import together
from harness.interface import DiskCondition, DiskDamage, UsageError

DISK_LEASES: Final = ("disk-slow", "disk-stall", "disk-full", "disk-error")
"""Disk faults by the names of ``harness.interface.Environment``, each of which lasts."""

DISK_MOMENTS: Final = ("disk-corrupt", "power-loss")
"""Those that happen at once and have nothing to heal."""


def condition_of(primitive: str, given: dict[str, Any]) -> DiskCondition:
    """One of DISK_LEASES with its options, which are taken out of ``given``.

    Raises UsageError, saying what would be right.
    """
    if primitive == "disk-stall":
        return DiskCondition(stalled=True)
    if primitive == "disk-full":
        return DiskCondition(full=True)
    if primitive == "disk-error":
        operation = given.pop("operation", "sync")
        if operation not in ("write", "sync"):
            raise UsageError(f"{primitive}: operation must be write or sync, not {operation!r}")
        return DiskCondition(failing=(operation,))
    delay_ms, jitter_ms = number(primitive, given, "delay_ms"), number(primitive, given, "jitter_ms", 0.0)
    if delay_ms < 0 or jitter_ms < 0 or not delay_ms + jitter_ms:
        raise UsageError(f"{primitive}: delay_ms and jitter_ms must be 0 or more, and not both 0")
    return DiskCondition(delay_ms=delay_ms, jitter_ms=jitter_ms)


def damage_of(given: Mapping[str, Any]) -> DiskDamage:
    """What "disk-corrupt" does. Raises UsageError."""
    try:
        return msgspec.convert(dict(given), DiskDamage)
    except msgspec.ValidationError as error:
        raise UsageError(f"disk-corrupt: {str(error).replace('`', '')}") from None


class DiskPart(Part):
    """The disks of nodes. A fault wants a DiskCondition, "disk-corrupt" a DiskDamage."""

    name = "disk"
    primitives = (*DISK_LEASES, *DISK_MOMENTS)
    momentary = DISK_MOMENTS

    def wanted(self, asked: PartFault) -> Any:
        """As above."""
        if asked.primitive == "disk-corrupt":
            return damage_of(asked.wanted)
        if asked.primitive == "power-loss":
            return super().wanted(asked)
        given = dict(asked.wanted)
        condition = condition_of(asked.primitive, given)
        nothing_left(asked.primitive, given)
        return condition

    def together(self, in_force: Sequence[PartFault], node: str) -> dict[str, Any]:
        """The fields of a DiskCondition: what all faults of this part mean for a node's disk."""
        conditions = [one.wanted for one in in_force if node in one.nodes and one.primitive in DISK_LEASES]
        return together(map(msgspec.structs.asdict, conditions))
