"""The disks of one local deployment that can break.

One for each node that is to have one, run by the agent, so that they heal without the harness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from environments.disk_condition import DISK_LEASES, DISK_MOMENTS, condition_of, damage_of
from filesystems.disk.condition import together
from filesystems.disk.conversation import DiskFailedError
from filesystems.disk.faulty_disk import FaultyDisk
from filesystems.fuse import device as fuse_device
from harness.interface import DiskCondition, InfrastructureError, UsageError


def supports() -> dict[str, str]:
    """Disk fault -> why this machine cannot do it; "" if it can."""
    lack = fuse_device.missing()
    reason = (
        f"the brokers' disks are put behind FUSE for it, and {lack}; use --environment simulation"
        if lack
        else ""
    )
    return dict.fromkeys((*DISK_LEASES, *DISK_MOMENTS), reason)


class Disks:
    """A ``part.Part``. All methods raise InfrastructureError when a disk's process is gone."""

    name = "disk"
    primitives = (*DISK_LEASES, *DISK_MOMENTS)
    momentary = DISK_MOMENTS

    def __init__(self) -> None:
        self._disks: dict[str, FaultyDisk] = {}

    async def mount(self, node: str, behind: Path, directory: Path, log: Path) -> None:
        """Put a node's directory onto a disk of its own."""
        try:
            self._disks[node] = await FaultyDisk.mount(behind, directory, log)
        except DiskFailedError as error:
            raise InfrastructureError(f"the disk of {node}: {error}") from None

    def fault(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], DiskCondition]:
        """The nodes and the condition of their disks."""
        self._require(primitive, nodes)
        given = dict(options)
        condition = DiskCondition()
        if primitive == "disk-corrupt":
            damage_of(given)
            given.clear()
        elif primitive not in self.momentary:
            condition = condition_of(primitive, given)
        if given:
            raise UsageError(f"{primitive}: unknown option {min(given)!r}")
        return tuple(nodes), condition

    async def strike(self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]) -> None:
        """Of stopped brokers: forget what was not synced, or damage each disk."""
        do = "power-loss" if primitive == "power-loss" else "corrupt"
        for node, answer in zip(
            nodes, await asyncio.gather(*(self._ask(node, do, options) for node in nodes)), strict=True
        ):
            if answer is None:
                raise InfrastructureError(f"nothing is on the disk of {node} that could be damaged")

    async def obey(self, in_force: Sequence[tuple[tuple[str, ...], DiskCondition]]) -> None:
        """Every disk; to be told the same again is nothing."""
        await asyncio.gather(
            *(
                self._ask(
                    node,
                    "condition",
                    together(
                        msgspec.structs.asdict(condition) for nodes, condition in in_force if node in nodes
                    ),
                )
                for node in self._disks
            )
        )

    async def look(self, nodes: Sequence[str]) -> dict[str, str]:
        """How disks are now."""
        self._require("a look at a disk", nodes)
        return dict(
            zip(nodes, await asyncio.gather(*(self._ask(node, "probe") for node in nodes)), strict=True)
        )

    async def close(self) -> None:
        """Unmount all. Brokers have ended."""
        disks, self._disks = list(self._disks.values()), {}
        await asyncio.gather(*(disk.close() for disk in disks))

    def _require(self, what: str, nodes: Sequence[str]) -> None:
        for node in nodes:
            if node not in self._disks:
                raise UsageError(f"{what}: the disk of {node} is this machine's own, which no fault reaches")

    async def _ask(self, node: str, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        try:
            return await self._disks[node].ask(do, arguments)
        except DiskFailedError as error:
            raise InfrastructureError(f"the disk of {node}: {error}") from None
