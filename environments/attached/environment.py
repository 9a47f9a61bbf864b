"""A cluster that already runs: clients reach it, hooks break it, and nothing else touches it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.agent_process import AgentProcess
from environments.attached import records
from environments.attached.cluster import PROCESS_HOOKS, AttachedCluster
from environments.labels import new_run_id
from environments.real_environment import SIMULATED_ONLY, RealEnvironment
from harness.interface import (
    Address,
    DataEdit,
    Effect,
    InfrastructureError,
    Link,
    NodePlan,
    System,
    TestSpec,
    UsageError,
)

LEASE_S: Final = 60.0
"""The length of a lease, to which the patience of a hook is added.

The agent notices at once through its pipe when the harness is gone. The lease is for a harness that
hangs.
"""

_RENEW_S: Final = 5.0
_OURS: Final = "jepsen-run never stops or wipes an attached cluster"
_NO_LINKS: Final = "jepsen-run cannot touch the links of an attached cluster: give a hook, and --nemesis hook"
_NO_CLOCKS: Final = (
    "jepsen-run cannot touch the clocks of an attached cluster: give a hook, and --nemesis hook"
)
_NO_COMMANDS: Final = (
    "jepsen-run never starts, configures or commands an attached cluster: give a hook, and --nemesis hook"
)


class AttachedEnvironment(RealEnvironment):
    """The environment "attached"; without ``cluster`` it claims to have all hooks, for the list."""

    name = "attached"

    def __init__(self, cluster: AttachedCluster | None = None) -> None:
        self._cluster = cluster
        self._agent: AgentProcess | None = None
        self._killed: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._gone: set[str] = set()

    def supports(self) -> Mapping[str, str]:
        """Return each fault primitive with "" if there is a hook for it, else the reason."""
        hooks = None if self._cluster is None else {hook.name for hook in self._cluster.hook}
        others = hooks is None or hooks - set(PROCESS_HOOKS)
        answers = dict.fromkeys(("cut", "reset", "slow", "stall"), _NO_LINKS)
        answers |= dict.fromkeys(("stop", "destroy-data", "copy-data", "edit-data", "power-loss"), _OURS)
        answers |= dict.fromkeys(("clock-skew", "clock-step", "clock-rate", "clock-strobe"), _NO_CLOCKS)
        answers |= dict.fromkeys(
            ("late-start", "reconfigure", "takeover", "quiesce", "administer", "restore-record"), _NO_COMMANDS
        )
        answers |= {
            name: _lack(name) if hooks is not None and name not in hooks else "" for name in PROCESS_HOOKS
        }
        return {**SIMULATED_ONLY, **answers, "hook": "" if others else _lack("of another name")}

    async def deploy(
        self, system: System, spec: TestSpec, nodes: Sequence[NodePlan], directory: Path
    ) -> None:
        """Start only the agent, and only if there are hooks."""
        del directory
        assert self._cluster is not None, "a test has a cluster"
        self._check_names(nodes)
        self._system = system
        self._deployed = spec, nodes
        if self._cluster.hook:
            record = records.create(new_run_id(), msgspec.to_builtins(self._cluster))
            self._agent = await AgentProcess.start("environments.attached.agent", str(record))

    def resolve(self, source: str, node: str, port: str) -> Address:
        """Return where clients reach the broker; for "admin" only its name.

        ``AttachedSystem`` knows more about the admin port.
        """
        del source
        assert self._cluster is not None, "a test has a cluster"
        found = self._cluster.named(node)
        return Address(found.name, 0) if port == "admin" else found.address

    async def start(self, node: str) -> None:
        """Undo our kill of the node if one is in force; no broker is ever started otherwise."""
        lease, renewing = self._killed.pop(node, ("", None))
        self._gone.discard(node)
        if renewing is not None:
            renewing.cancel()
            await self._heal(lease)

    async def wait_exit(self, node: str) -> int | None:
        """Wait for ever, because nothing reports the exit of the broker."""
        del node
        await asyncio.get_running_loop().create_future()
        return None

    async def running(self, node: str) -> bool:
        """Return whether the node runs: False while a probe has seen it gone by our kill."""
        return node not in self._gone

    async def kill(self, node: str) -> None:
        """Kill the broker by its hook, under a lease that is renewed until the node is started."""
        if node in self._killed:
            return
        lease = await self.inject("kill", nodes=[node])
        renewing = asyncio.get_running_loop().create_task(self._renewing(lease))
        self._killed[node] = lease, renewing

    async def terminate(self, node: str) -> None:
        """Raise UsageError: an attached cluster is not changed."""
        raise UsageError(f"{node}: {_OURS}")

    async def destroy_data(self, node: str) -> None:
        """Raise UsageError: an attached cluster is not changed."""
        raise UsageError(f"{node}: {_OURS}")

    async def copy_data(self, source: str, node: str) -> None:
        """Raise UsageError: an attached cluster is not changed."""
        raise UsageError(f"{node} from {source}: {_OURS}")

    async def edit_data(self, node: str, edit: DataEdit) -> None:
        """Raise UsageError: an attached cluster is not changed."""
        del edit
        raise UsageError(f"{node}: {_OURS}")

    async def reconfigure(self, node: str, configured: str) -> None:
        """Raise UsageError: an attached cluster is not changed."""
        raise UsageError(f"{node} as {configured}: {_OURS}")

    async def inject(
        self,
        primitive: str,
        *,
        links: Sequence[Link] = (),
        nodes: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a fault of nodes by its hook and return its lease; see `Environment.inject`."""
        if links:
            raise InfrastructureError(f"{primitive}: {_NO_LINKS}")
        lease: str = await self._asked.ask(
            "inject",
            timeout_s=self._patience_s,
            primitive=primitive,
            links=[],
            nodes=nodes,
            options=dict(options or {}),
            lease_s=LEASE_S + self._patience_s,
        )
        return lease

    async def renew(self, lease: str) -> None:
        """Keep a fault in force for another lease; see `Environment.renew`."""
        await self._asked.renew(lease)

    async def heal(self, lease: str) -> None:
        """End a fault; see `Environment.heal`."""
        await self._heal(lease)

    async def heal_all(self) -> None:
        """End every fault; see `Environment.heal_all`."""
        for _, renewing in self._killed.values():
            renewing.cancel()
        self._killed.clear()
        self._gone.clear()
        if self._agent is not None:
            await self._agent.ask("heal_all", timeout_s=self._patience_s)

    async def probe(self, links: Sequence[Link] = (), nodes: Sequence[str] = ()) -> Effect:
        """Return what the hooks' own probes say of the nodes."""
        if links:
            raise InfrastructureError(_NO_LINKS)
        if self._agent is None:
            return Effect(bit=False, observed=dict.fromkeys(nodes, "running"))
        observed = await self._agent.ask("probe", timeout_s=self._patience_s, links=[], nodes=nodes)
        for node, phrase in observed.items():
            if node in self._killed and phrase == "gone":
                self._gone.add(node)
        return Effect(bit=False, observed=observed)

    async def log_lines(self, node: str, position: int | None) -> tuple[Sequence[str], int]:
        """Return no lines, or wait for ever: the cluster's owner has its logs."""
        del node
        if position is not None:
            await asyncio.get_running_loop().create_future()
        return [], 0

    async def collect(self, destination: Path) -> None:
        """Copy nothing: the cluster's owner has its logs."""

    async def teardown(self) -> None:
        """Undo what is in force, and end the agent. The cluster stays."""
        with contextlib.suppress(InfrastructureError):
            await self.heal_all()
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.end(self._patience_s * 3)

    def _configure(self, plan: NodePlan) -> None:
        raise UsageError(f"{plan.name}: {_OURS}")

    async def _heal(self, lease: str) -> None:
        await self._asked.ask("heal", timeout_s=self._patience_s, lease=lease)

    async def _renewing(self, lease: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            with contextlib.suppress(InfrastructureError):  # later probes show whether the fault still holds
                await self._asked.renew(lease)

    @property
    def _patience_s(self) -> float:
        """The time for a request that begins a hook and, if that fails, ends it."""
        assert self._cluster is not None, "a test has a cluster"
        return 10.0 + 2 * max((hook.patience_s for hook in self._cluster.hook), default=0.0)

    @property
    def _asked(self) -> AgentProcess:
        if self._agent is None:
            raise InfrastructureError("no hooks are given: nothing of an attached cluster can be broken")
        return self._agent


def _lack(name: str) -> str:
    return f"an attached cluster is broken by hooks, and the file has no [[hook]] {name}"
