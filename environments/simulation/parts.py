"""The parts of a world that break: links, processes, disks and clocks.

Each is told at one virtual instant, and is so from that instant on. The stores are in `stores`, the
database in `database`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from environments.disk_condition import DISK_LEASES, DiskPart
from environments.fault_options import nothing_left, number
from environments.link_condition import DATAGRAM_PRIMITIVES, LINK_PRIMITIVES, combine, condition_of
from environments.part import Fault, Part
from environments.simulation.prober import Prober
from environments.simulation.process import Process
from environments.simulation.world import World
from harness.interface import Disk, DiskCondition, InfrastructureError

CLOCKS: Final = ("clock-skew", "clock-step", "clock-rate", "clock-strobe")


class Links(Part):
    """The directed links between nodes, and from client zones."""

    primitives = (*LINK_PRIMITIVES, *DATAGRAM_PRIMITIVES)
    of_links = True

    def __init__(self, world: World) -> None:
        self._network = world.network

    def wanted(self, asked: Fault) -> Any:
        """The condition of each link."""
        return condition_of(asked.primitive, asked.wanted)

    def apply(self, in_force: Sequence[Fault], changed: Fault) -> None:
        """From now on the links are so."""
        for link in changed.links:
            self._network.apply(link, combine(one.wanted for one in in_force if link in one.links))


class Processes(Part):
    """The brokers' processes by node, the latest of each."""

    primitives = ("pause",)

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._processes = processes

    def apply(self, in_force: Sequence[Fault], changed: Fault) -> None:
        """Stop who runs, or let go on whom no other fault stops; who starts meanwhile runs."""
        for process in [self._processes[node] for node in changed.nodes if node in self._processes]:
            if changed in in_force:
                process.pause()
            elif not any(process.name in other.nodes for other in in_force):
                process.resume()

    async def look(self, node: str) -> str:
        """ "running", "paused" or "gone"."""
        process = self._processes.get(node)
        return "gone" if process is None else process.state


class Disks(DiskPart):
    """The disks by node; ``chances`` decide what a node's disk loses."""

    def __init__(
        self,
        disks: Mapping[str, Disk],
        processes: Mapping[str, Process],
        chances: Mapping[str, random.Random],
    ) -> None:
        self._disks = disks
        self._processes = processes
        self._chances = chances

    async def strike(self, fault: Fault) -> None:
        """Take the power from the nodes, or damage their disks."""
        for node in fault.nodes:
            disk, chance = self._disks[node], self._chances[node]
            if fault.primitive == "power-loss":
                if node in self._processes:
                    self._processes[node].lose_power()
                disk.power_lost(chance)
            elif disk.corrupt(chance, fault.wanted) is None:
                raise InfrastructureError(f"nothing is on the disk of {node} that could be damaged")

    def apply(self, in_force: Sequence[Fault], changed: Fault) -> None:
        """From now on the disks are so."""
        if changed.primitive in DISK_LEASES:
            for node in changed.nodes:
                self._disks[node].condition(DiskCondition(**self.together(in_force, node)))

    async def look(self, node: str) -> str:
        """What becomes of a write."""
        return await self._disks[node].probe()


@dataclass(frozen=True, slots=True)
class _Wrong:
    """How a clock is wrong; with ``strobe_ms`` it jumps by ``skew_ms`` and back in that period."""

    skew_ms: float = 0.0
    rate: float = 1.0
    strobe_ms: float | None = None


class Clocks(Part):
    """The machines' clocks."""

    name = "clock"
    primitives = CLOCKS

    def __init__(self, world: World) -> None:
        self._world = world
        self._prober = Prober(world)

    def wanted(self, asked: Fault) -> Any:
        """How each clock is wrong."""
        given = dict(asked.wanted)
        if asked.primitive == "clock-skew":
            wrong = _Wrong(skew_ms=number(asked.primitive, given, "skew_ms"))
        elif asked.primitive == "clock-step":
            wrong = _Wrong(skew_ms=number(asked.primitive, given, "step_ms"))
        elif asked.primitive == "clock-rate":
            wrong = _Wrong(rate=number(asked.primitive, given, "rate", above=0))
        else:
            strobe_ms = number(asked.primitive, given, "period_ms", above=0)
            wrong = _Wrong(skew_ms=number(asked.primitive, given, "step_ms"), strobe_ms=strobe_ms)
        nothing_left(asked.primitive, given)
        return wrong

    def apply(self, in_force: Sequence[Fault], changed: Fault) -> None:
        """Set the clocks; one that no fault makes fast or slow any more is set right."""
        for node in changed.nodes:
            clock = self._world.clock(node)
            here = [one.wanted for one in in_force if node in one.nodes]
            clock.skew_ms = sum((one.skew_ms for one in here if one.strobe_ms is None), 0.0)
            clock.strobes = tuple((one.skew_ms, one.strobe_ms) for one in here if one.strobe_ms is not None)
            if changed.primitive == "clock-rate":
                clock.rate = math.prod((one.rate for one in here), start=1.0)
                if all(one.primitive != "clock-rate" for one in in_force if node in one.nodes):
                    clock.set_right()

    async def look(self, node: str) -> str:
        """Against true time."""
        return await self._prober.clock(node)
