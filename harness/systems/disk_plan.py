"""Which nodes of a test on real machines get a disk that can break.

Why not all: such a disk costs time for every write, and only a test that breaks it needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

import nemesis.registry
from environments.disk_condition import DISK_LEASES, DISK_MOMENTS
from harness.interface import NodePlan, Schedule, UsageError


def breaks_disks(kind: str) -> bool:
    """Whether faults of this kind need a disk that can break."""
    return bool({*DISK_LEASES, *DISK_MOMENTS} & set(nemesis.registry.get(kind).primitives))


def with_disks(nodes: Sequence[NodePlan], schedule: Schedule) -> tuple[NodePlan, ...]:
    """The nodes, with disks of their own if a fault of the schedule is to hit one.

    Raises UsageError where their data lies elsewhere.
    """
    broken = [fault.kind for fault in schedule.faults if breaks_disks(fault.kind)]
    if not broken:
        return tuple(nodes)
    elsewhere = next(
        (node.name for node in nodes if node.store is not None or node.database is not None), None
    )
    if elsewhere is not None:
        raise UsageError(
            f"{broken[0]}: {elsewhere} keeps its data in a shared store, and only disks of single "
            "brokers can be broken here; use --environment simulation"
        )
    return tuple(msgspec.structs.replace(node, disk=True) for node in nodes)
