"""The equipment of the nodes of a test on real machines, which its faults need.

It is a disk that can break, a file server, or a database server.

Why not always: such a disk costs time for every write. Without a file server brokers of one machine
share a plain directory, which needs no root and no FUSE, and whose locks never expire. And a file
is a database that needs no server, but it cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

import nemesis.registry
from environments.disk_condition import DISK_LEASES, DISK_MOMENTS
from harness.interface import DatabasePlan, NodePlan, Schedule, TestSpec, UsageError
from harness.systems import store
from nemesis.database import DatabaseKind
from nemesis.nfs import StoreKind

NFS: Final = "nfs"
SERVER: Final = "server"
"""A type of ``DatabasePlan``: a server, not a file, whatever the environment has."""

_OF_A_FILE_SERVER: Final = ("mount-options", "lease-ms", "grace-ms")


def breaks_disks(kind: str) -> bool:
    """Return whether faults of this kind need a disk that can break."""
    return bool({*DISK_LEASES, *DISK_MOMENTS} & set(nemesis.registry.get(kind).primitives))


def equip(spec: TestSpec, nodes: Sequence[NodePlan], schedule: Schedule) -> tuple[NodePlan, ...]:
    """Return the nodes with what the faults of the schedule are to hit.

    If the spec leaves the kind of a database or shared directory open, it becomes one that can be
    hit. Raises UsageError if a disk is to be hit and nodes keep their data elsewhere.
    """
    kinds = [nemesis.registry.get(fault.kind) for fault in schedule.faults]
    server = any(isinstance(kind, DatabaseKind) for kind in kinds)
    broken = [fault.kind for fault in schedule.faults if breaks_disks(fault.kind)]
    assigned = spec.properties.get(store.NAME, {})
    file_server = (
        assigned.get(store.TYPE) == NFS
        or any(name in assigned for name in _OF_A_FILE_SERVER)
        or any(isinstance(kind, StoreKind) for kind in kinds)
    )
    equipped = []
    for node in nodes:
        if broken and (node.store is not None or node.database is not None):
            raise UsageError(
                f"{broken[0]}: {node.name} keeps its data in a shared store, and only disks of single "
                "brokers can be broken here; use --environment simulation"
            )
        database, directory = node.database, node.store
        if database is not None and (database.type == SERVER or (server and not database.type)):
            database = DatabasePlan(type="postgresql")
        if directory is not None and file_server:
            directory = msgspec.structs.replace(directory, nfs=True)
        equipped.append(
            msgspec.structs.replace(node, database=database, store=directory, disk=node.disk or bool(broken))
        )
    return tuple(equipped)
