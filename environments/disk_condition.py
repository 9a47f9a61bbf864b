"""What faults in force mean for one disk together.

Faults overlap: a disk may be slowed by one fault and filled by another, and healing one must leave
the other in force. So a disk has no switches; its condition is always `combine`d anew from the
faults in force.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from filesystems.disk.condition import together
from harness.interface import Damage, DiskCondition, UsageError

DISK_LEASES: Final = ("disk-slow", "disk-stall", "disk-full", "disk-error")
"""Disk faults by the names of ``harness.interface.Environment``, each of which lasts."""

DISK_MOMENTS: Final = ("disk-corrupt", "power-loss")
"""Those that happen at once and have nothing to heal."""

SOUND: Final = DiskCondition()


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
    delay_ms, jitter_ms = (
        number(primitive, given, "delay_ms"),
        number(primitive, given, "jitter_ms", 0.0),
    )
    if delay_ms < 0 or jitter_ms < 0 or not delay_ms + jitter_ms:
        raise UsageError(f"{primitive}: delay_ms and jitter_ms must be 0 or more, and not both 0")
    return DiskCondition(delay_ms=delay_ms, jitter_ms=jitter_ms)


def damage_of(given: Mapping[str, Any]) -> Damage:
    """What "disk-corrupt" does. Raises UsageError."""
    try:
        return msgspec.convert(dict(given), Damage)
    except msgspec.ValidationError as error:
        raise UsageError(f"disk-corrupt: {str(error).replace('`', '')}") from None


def number(primitive: str, given: dict[str, Any], name: str, default: float | None = None) -> float:
    """Take a number out of the options of a fault. Raises UsageError for what is none."""
    value = given.pop(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{primitive}: {name} must be a number, not {value!r}")
    return float(value)


def combine(conditions: Iterable[DiskCondition]) -> DiskCondition:
    """All at once: delays add up, whatever one refuses is refused."""
    return DiskCondition(**together(msgspec.structs.asdict(one) for one in conditions))
