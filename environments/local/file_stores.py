"""The shared directories of a local deployment, as its environment sees them.

Where they lie, and what makes them.

```
nodes/store-a/data    what brokers of pair a share; with a server, what it exports
nodes/store-a/logs    a server's configuration, log and memory of its clients
nodes/a1/store        where a1 has mounted it; without a server there is no such place, and brokers
                      use the directory itself
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from environments.agent_process import AgentProcess
from environments.ganesha import times_s
from environments.local import stores
from harness.interface import NodePlan, StorePlan, UsageError

MOUNTED: Final = "store"
PATIENCE_S: Final = 180.0
"""For a server to be started, or mounted; on an idle machine both take a second."""


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


class FileStores:
    """Empty where no node shares a directory."""

    def __init__(self) -> None:
        self._plans: dict[str, StorePlan] = {}
        self._mounted: dict[str, str] = {}

    def __contains__(self, node: str) -> bool:
        return node in self._plans

    async def make(self, nodes: Sequence[NodePlan], place: Path, agent: AgentProcess) -> None:
        """Start the servers and mount them, where there are to be any.

        Raises InfrastructureError.
        """
        self._plans = {node.name: node.store for node in nodes if node.store is not None}
        for name, plan in self._servers().items():
            lease_s, grace_s = times_s(plan)
            home = place / name
            await agent.ask(
                "store",
                timeout_s=PATIENCE_S,
                store=plan.name,
                directory=str(home / "data"),
                state=str(home / "logs"),
                lease_s=lease_s,
                grace_s=grace_s,
            )
        for node, plan in self._plans.items():
            if plan.nfs:
                logs = place / node / "logs"
                logs.mkdir(parents=True, exist_ok=True)
                self._mounted[node] = await agent.ask(
                    "mount",
                    timeout_s=PATIENCE_S,
                    node=node,
                    store=plan.name,
                    directory=str(place / node / MOUNTED),
                    options=plan.mount_options,
                    log=str(logs / "nfs-client.log"),
                )

    def data(self, node: str, place: Path) -> Path | None:
        """A node's data directory; None for one that shares none."""
        plan = self._plans.get(node)
        if plan is None:
            return None
        return place / node / MOUNTED if plan.nfs else place / _home(plan) / "data"

    def logs(self, place: Path) -> dict[str, Path]:
        """Server -> where its log is."""
        return {name: place / name / "logs" for name in self._servers()}

    def describe_services(self) -> dict[str, str]:
        """Store -> what it is and how it is mounted."""
        found: dict[str, str] = {}
        for node, plan in self._plans.items():
            if not plan.nfs:
                found[_home(plan)] = "a plain directory of this machine, whose locks never expire"
            elif node in self._mounted:
                lease_s, grace_s = times_s(plan)
                found[_home(plan)] = (
                    f"{self._mounted[node]}, nfs-ganesha as a process, lease {lease_s} s, grace "
                    f"{grace_s} s, mounted {plan.mount_options}"
                )
        return found

    def _servers(self) -> Mapping[str, StorePlan]:
        return {_home(plan): plan for plan in self._plans.values() if plan.nfs}


def _home(plan: StorePlan) -> str:
    return f"store-{plan.name}"
