"""The shared directories of a local deployment, as its environment sees them: where they lie.

```
nodes/store-a/data    what brokers of pair a share; with a server, what it exports
nodes/store-a/logs    a server's configuration, log and memory of its clients
nodes/a1/store        where a1 has mounted it; without a server there is no such place, and brokers
                      use the directory itself
```
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from environments.ganesha import times_s
from environments.local import stores
from environments.local.stores import MOUNTED, home
from environments.nfs_mounting import FUSE
from harness.interface import NodePlan, UsageError


def refuses(nodes: Sequence[NodePlan]) -> str:
    """Why the shared directories of these nodes cannot be had on this machine; "" if they can."""
    for node in nodes:
        if node.store is not None and node.store.nfs:
            try:
                times_s(node.store)
            except UsageError as error:
                return str(error)
            if lack := stores.missing():
                return f"brokers of this test have their data on NFS, and {lack}"
    return ""


class SharedDirectories:
    """Empty where no node shares a directory."""

    def __init__(self, nodes: Sequence[NodePlan]) -> None:
        self._plans = {node.name: node.store for node in nodes if node.store is not None}

    def __contains__(self, node: str) -> bool:
        return node in self._plans

    def data(self, node: str, place: Path) -> Path | None:
        """A node's data directory; None for one that shares none."""
        plan = self._plans.get(node)
        if plan is None:
            return None
        return place / node / MOUNTED if plan.nfs else place / home(plan) / "data"

    def logs(self, place: Path) -> dict[str, Path]:
        """Server -> where its log is."""
        return {home(plan): place / home(plan) / "logs" for plan in self._plans.values() if plan.nfs}

    def describe_services(self) -> dict[str, str]:
        """Store -> what it is and how it is mounted."""
        found: dict[str, str] = {}
        for plan in self._plans.values():
            if plan.nfs:
                lease_s, grace_s = times_s(plan)
                found[home(plan)] = (
                    f"{FUSE}, nfs-ganesha as a process, lease {lease_s} s, grace {grace_s} s, mounted "
                    f"{plan.mount_options}"
                )
            else:
                found[home(plan)] = "a plain directory of this machine, whose locks never expire"
        return found
