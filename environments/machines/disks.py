"""The disks of machines that can break.

Each node of a test with disk faults has such a file system in front of its data.

A killed container takes the memory of its disk with it: what had been written stays, synced or not,
as `kill` promises. "power-loss" lets the disk forget what was not synced first.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from environments.disk_condition import DISK_LEASES, DISK_MOMENTS, condition_of, damage_of
from environments.machines.deployment import Deployment
from environments.machines.faults import at_once
from environments.machines.furniture import Furniture
from environments.machines.node import Node, NodeDownError
from harness.interface import InfrastructureError, Layout, NodePlan, UsageError

PRIMITIVES: Final = (*DISK_LEASES, *DISK_MOMENTS)


class MachineDisks(Furniture):
    """The disks that can break; ``of`` has the nodes that have one, which may be none."""

    part = "disk"
    primitives = PRIMITIVES

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self.of: frozenset[str] = frozenset()

    def plan(self, nodes: Sequence[NodePlan]) -> None:
        """Take note of the nodes that have such a disk."""
        self.of = frozenset(node.name for node in nodes if node.disk)

    def layout(self, node: Node) -> Layout | None:
        """Return a layout with the broker's data on the disk; None if the node has no such disk."""
        if node.plan.name not in self.of:
            return None
        return msgspec.structs.replace(node.layout, data=f"{node.machine.root}/disk")

    async def begin(self, node: Node) -> None:
        """Mount the disk of a node whose container runs, unless it is mounted."""
        if node.plan.name in self.of:
            await node.ask("disk")

    def faults(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return what each agent has to do for a fault.

        Raises UsageError for a node without such a disk, and for wrong options.
        """
        self._require(primitive, nodes)
        given = dict(options)
        condition: dict[str, Any] = {}
        if primitive == "disk-corrupt":
            damage_of(given)
            given.clear()
        elif primitive in DISK_LEASES:
            condition = msgspec.to_builtins(condition_of(primitive, given))
        if given:
            raise UsageError(f"{primitive}: unknown option {min(given)!r}")
        return {node: {"disk": condition} for node in nodes}

    async def strike(
        self,
        primitive: str,
        nodes: Sequence[str],
        options: Mapping[str, Any],
        boot: Callable[[Node], Awaitable[None]],
    ) -> None:
        """Let all machines lose their power, or damage each disk; do nothing for other faults.

        ``boot`` starts a container's agent.
        """
        if primitive not in DISK_MOMENTS:
            return
        corrupt = functools.partial(self._corrupt, boot, dict(options))
        strike = self._power_lost if primitive == "power-loss" else corrupt
        await at_once(strike(self._deployment.nodes[name]) for name in nodes)

    async def look(self, name: str) -> str:
        """Return the state of a node's disk; "gone" if its machine does not run."""
        self._require("a look at a disk", (name,))
        return await self._deployment.nodes[name].look("look_at_disk")

    async def _power_lost(self, node: Node) -> None:
        async with node.lock:
            try:
                await node.ask("lose_power")
            except NodeDownError:
                return  # the machine was off
            await node.kill()

    async def _corrupt(
        self, boot: Callable[[Node], Awaitable[None]], damage: dict[str, Any], node: Node
    ) -> None:
        async with node.lock:
            await boot(node)
            await self.begin(node)
            if (await node.ask("corrupt", damage=damage))["where"] is None:
                raise InfrastructureError(f"the disk of {node.plan.name} has nothing that could be damaged")

    def _require(self, what: str, nodes: Sequence[str]) -> None:
        for node in nodes:
            if node not in self.of:
                raise UsageError(
                    f"{what}: {node} uses its machine's own disk, where no fault can be injected"
                )
