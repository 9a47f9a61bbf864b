"""The nodes' own parts that can break: their processes and disks.

A fault takes effect at one virtual instant. The other parts of a world are in the modules that make
them: `links`, `clock`, `stores`, `database`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from environments.disk_condition import DISK_LEASES, DiskPart
from environments.part import Part, PartFault
from environments.simulation.process import SimulatedProcess
from harness.interface import Disk, DiskCondition, InfrastructureError


class SimulatedProcesses(Part):
    """The brokers' processes by node, the latest of each."""

    primitives = ("pause",)

    def __init__(self, processes: Mapping[str, SimulatedProcess]) -> None:
        self._processes = processes

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Pause or resume processes; a process that another fault pauses stays paused.

        A process that starts meanwhile runs.
        """
        for process in [self._processes[node] for node in changed.nodes if node in self._processes]:
            if changed in in_force:
                process.pause()
            elif not any(process.name in other.nodes for other in in_force):
                process.resume()

    async def look(self, node: str) -> str:
        """Return "running", "paused" or "gone"."""
        process = self._processes.get(node)
        return "gone" if process is None else process.state


class SimulatedDisks(DiskPart):
    """The disks by node; ``chances`` decide what a node's disk loses."""

    def __init__(
        self,
        disks: Mapping[str, Disk],
        processes: Mapping[str, SimulatedProcess],
        chances: Mapping[str, random.Random],
    ) -> None:
        self._disks = disks
        self._processes = processes
        self._chances = chances

    async def strike(self, fault: PartFault) -> None:
        """Take the power from the nodes, or damage their disks."""
        for node in fault.nodes:
            disk, chance = self._disks[node], self._chances[node]
            if fault.primitive == "power-loss":
                if node in self._processes:
                    self._processes[node].lose_power()
                disk.power_lost(chance)
            elif disk.corrupt(chance, fault.wanted) is None:
                raise InfrastructureError(f"the disk of {node} has nothing that could be damaged")

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Set the condition of the changed fault's disks, from now on."""
        if changed.primitive in DISK_LEASES:
            for node in changed.nodes:
                self._disks[node].condition(DiskCondition(**self.together(in_force, node)))

    async def look(self, node: str) -> str:
        """Return the state of a node's disk, as a write finds it."""
        return await self._disks[node].probe()
