"""The options of disk faults, and the condition of a disk under all faults in force.

Faults overlap: one fault may slow a disk and another fill it, and healing one must leave the other
in force. So a disk has no switches: its condition is always made anew from the faults in force.
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
"""The disk faults that last, named as in ``harness.interface.Environment``."""

DISK_MOMENTS: Final = ("disk-corrupt", "power-loss")
"""The disk faults that happen at once and leave nothing to heal."""


def condition_of(primitive: str, given: dict[str, Any]) -> DiskCondition:
    """Return the condition that one of DISK_LEASES asks for; takes its options out of ``given``.

    Raises UsageError, which says what would be right.
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
    """Return the damage that "disk-corrupt" asks for. Raises UsageError."""
    try:
        return msgspec.convert(dict(given), DiskDamage)
    except msgspec.ValidationError as error:
        raise UsageError(f"disk-corrupt: {str(error).replace('`', '')}") from None


class DiskPart(Part):
    """The disks of nodes. A fault asks for a DiskCondition, "disk-corrupt" for a DiskDamage."""

    name = "disk"
    primitives = (*DISK_LEASES, *DISK_MOMENTS)
    momentary = DISK_MOMENTS

    def wanted(self, asked: PartFault) -> Any:
        """Return the condition or damage that a fault asks for; None for "power-loss"."""
        if asked.primitive == "disk-corrupt":
            return damage_of(asked.wanted)
        if asked.primitive == "power-loss":
            return super().wanted(asked)
        given = dict(asked.wanted)
        condition = condition_of(asked.primitive, given)
        nothing_left(asked.primitive, given)
        return condition

    def together(self, in_force: Sequence[PartFault], node: str) -> dict[str, Any]:
        """Return a disk's condition under all its faults in force: DiskCondition's fields."""
        conditions = [one.wanted for one in in_force if node in one.nodes and one.primitive in DISK_LEASES]
        return together(map(msgspec.structs.asdict, conditions))
