"""Faults of shared directories: nfs-stall, nfs-disconnect, nfs-restart.

What they have in common with a partition is silence; what they do not, that the file server decides
meanwhile who holds a lock. A fault is seen where it matters: the store is asked from the machines
it hits.
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
    """A fault of the way to a shared directory, or of its server."""

    part = STORE
    seen_as = "silent"

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """A shared directory, where there is none."""
        if any(node.store is not None for node in nodes):
            return ""
        return (
            "no broker of this test has its data in a shared directory: use --policy shared-store or "
            "multi-instance"
        )


class FileServerKind(StoreKind):
    """A fault of the server.

    It hits every node that shares the directory with one of the target's.
    """

    default_target = "one"

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """All nodes that share a directory with the target's."""
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
    """A server that stands still and goes on (SS7, SS9).

    Its clients wait, or give up on a soft mount; leases may run out unseen.
    """

    name = "nfs-stall"
    description = (
        "the file server of a shared store stands still, and goes on at the end with what it "
        "was sent meanwhile"
    )
    primitives = ("nfs-stall",)


class NfsRestart(FileServerKind):
    """A server that is away and comes back.

    Only what was held before can be had while its grace period lasts.
    """

    name = "nfs-restart"
    description = (
        "the file server of a shared store is down; restarted at the end, it begins with a grace period"
    )
    primitives = ("nfs-restart",)


class NfsDisconnect(StoreKind):
    """One machine that loses its store and nothing else.

    Its locks expire while its clients still reach it.
    """

    name = "nfs-disconnect"
    description = "nodes are cut off from their shared store, and only from it"
    primitives = ("nfs-disconnect",)
