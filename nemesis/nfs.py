"""Faults of shared directories: nfs-stall, nfs-disconnect, nfs-restart.

These faults silence brokers as a partition does. Unlike in a partition, the file server decides
meanwhile which broker holds a lock. A fault is observed where it matters: probes ask the store from
the machines that the fault hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.interface import Fault, NodePlan
from nemesis.kind import CannotBeginError, Impact, Situation
from nemesis.node import NodeKind
from nemesis.target import resolve_target

STORE: Final = "store"


class StoreKind(NodeKind):
    """A kind of fault of the way to a shared directory, or of its file server."""

    part = STORE
    seen_as = "silent"

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: a shared directory."""
        if any(node.store is not None for node in nodes):
            return ""
        return (
            "no broker of this test has its data in a shared directory: use --policy shared-store or "
            "multi-instance"
        )


class FileServerKind(StoreKind):
    """A kind of fault of the file server.

    It hits every node that shares a directory with a node of the target.
    """

    default_target = "one"

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose all nodes that share a directory with those of the target."""
        chosen = resolve_target(fault, self.default_target, situation)
        shared = {
            node.store.name for node in situation.nodes if node.name in chosen and node.store is not None
        }
        nodes = tuple(
            node.name for node in situation.nodes if node.store is not None and node.store.name in shared
        )
        if not nodes:
            raise CannotBeginError(f"{', '.join(chosen)} share no directory")
        return Impact(f"the store of {', '.join(nodes)}", nodes=nodes, part=self.part)


class NfsStall(FileServerKind):
    """A file server that stands still and then goes on (SS7, SS9).

    Its clients wait, or give up on a soft mount; leases may expire unnoticed.
    """

    name = "nfs-stall"
    description = "the file server of a shared store stalls, and handles waiting requests at the end"
    primitives = ("nfs-stall",)


class NfsRestart(FileServerKind):
    """A file server that is down and comes back.

    While its grace period lasts, only locks that were held before can be obtained.
    """

    name = "nfs-restart"
    description = "the file server of a shared store is down; it is restarted at the end, with a grace period"
    primitives = ("nfs-restart",)


class NfsDisconnect(StoreKind):
    """A machine that loses its connection to the store and no other.

    Its locks expire while its clients still reach it.
    """

    name = "nfs-disconnect"
    description = "nodes lose their connection to the shared store, but to nothing else"
    primitives = ("nfs-disconnect",)
