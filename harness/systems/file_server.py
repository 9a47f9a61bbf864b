"""Which shared directories of a test on real machines are to lie on a file server, with its leases
and its faults.

Why not all: without one, brokers on one machine share a plain directory, which needs no root and no
FUSE, and whose locks never expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

import nemesis.registry
from harness.interface import NodePlan, Schedule, TestSpec
from harness.systems import store
from nemesis.nfs import StoreKind

NFS: Final = "nfs"

_OF_A_SERVER: Final = ("mount-options", "lease-ms", "grace-ms")


def with_server(spec: TestSpec, nodes: Sequence[NodePlan], schedule: Schedule) -> tuple[NodePlan, ...]:
    """The nodes, with their stores on NFS if a fault of the schedule is to hit a file server, or
    the spec says something of one.
    """
    given = spec.properties.get(store.NAME, {})
    asked = given.get(store.TYPE) == NFS or any(name in given for name in _OF_A_SERVER)
    faults = any(isinstance(nemesis.registry.get(fault.kind), StoreKind) for fault in schedule.faults)
    if not asked and not faults:
        return tuple(nodes)
    return tuple(
        node
        if node.store is None
        else msgspec.structs.replace(node, store=msgspec.structs.replace(node.store, nfs=True))
        for node in nodes
    )
