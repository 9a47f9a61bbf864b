"""The disks of one local deployment that can break.

There is one for each node of a test with disk faults. The agent runs them, so that they heal
without the harness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from environments.disk_condition import DISK_LEASES, DISK_MOMENTS, DiskPart
from environments.part import PartFault
from filesystems.disk.conversation import DiskFailedError
from filesystems.disk.faulty_disk import FaultyDisk
from filesystems.fuse import device as fuse_device
from harness.interface import InfrastructureError, UsageError


def supports() -> dict[str, str]:
    """Return disk fault -> why this machine cannot do it; "" if it can."""
    lack = fuse_device.missing()
    reason = f"the brokers' disks are put behind FUSE for it, and {lack}; use --environment simulation"
    return dict.fromkeys((*DISK_LEASES, *DISK_MOMENTS), reason if lack else "")


class Disks(DiskPart):
    """The disks by node; ``runs`` returns whether the broker of a node runs.

    All methods raise InfrastructureError when a disk's process is gone.
    """

    def __init__(self, runs: Callable[[str], bool]) -> None:
        self._runs = runs
        self._disks: dict[str, FaultyDisk] = {}

    async def mount(self, node: str, home: Path) -> None:
        """Put a node's data onto a disk of its own, which keeps its content in ``disk``."""
        logs = home / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        try:
            self._disks[node] = await FaultyDisk.mount(home / "disk", home / "data", logs / "disk.log")
        except DiskFailedError as error:
            raise InfrastructureError(f"the disk of {node}: {error}") from None

    def wanted(self, asked: PartFault) -> Any:
        """Return what a fault asks for. Raises UsageError for a node without such a disk."""
        self._require(asked.primitive, asked.nodes)
        return super().wanted(asked)

    async def strike(self, fault: PartFault) -> None:
        """Let the disks of stopped brokers forget what was not synced, or damage each of them."""
        for node in filter(self._runs, fault.nodes):
            raise UsageError(f"{fault.primitive}: {node} is running: kill it before")
        do = "power-loss" if fault.primitive == "power-loss" else "corrupt"
        how = msgspec.to_builtins(fault.wanted)
        answers = await asyncio.gather(*(self._ask(node, do, how) for node in fault.nodes))
        for node, answer in zip(fault.nodes, answers, strict=True):
            if answer is None:
                raise InfrastructureError(f"the disk of {node} has nothing that could be damaged")

    async def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Set the condition of the changed fault's disks; setting the same again has no effect."""
        told = (self._ask(node, "condition", self.together(in_force, node)) for node in changed.nodes)
        await asyncio.gather(*told)

    async def look(self, node: str) -> str:
        """Return the state of a node's disk."""
        self._require("a look at a disk", [node])
        return str(await self._ask(node, "probe"))

    async def close(self) -> None:
        """Unmount all disks. Brokers have ended by then."""
        disks, self._disks = list(self._disks.values()), {}
        await asyncio.gather(*(disk.close() for disk in disks))

    def _require(self, what: str, nodes: Sequence[str]) -> None:
        for node in nodes:
            if node not in self._disks:
                raise UsageError(
                    f"{what}: {node} uses this machine's own disk, where no fault can be injected"
                )

    async def _ask(self, node: str, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        try:
            return await self._disks[node].ask(do, arguments)
        except DiskFailedError as error:
            raise InfrastructureError(f"the disk of {node}: {error}") from None
