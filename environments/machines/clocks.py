"""The clocks of machines whose owners allow that they are set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from environments.fault_options import nothing_left, number
from environments.machines.furniture import Furniture
from harness.interface import UsageError

PRIMITIVES: Final = ("clock-skew", "clock-step", "clock-strobe")


class MachineClocks(Furniture):
    """The clocks: a fault sets the machine's own clock, and its end sets the clock right again."""

    part = "clock"
    primitives = PRIMITIVES

    def faults(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return what each agent has to do for a fault. Raises UsageError for wrong options."""
        given = dict(options)
        option = "skew_ms" if primitive == "clock-skew" else "step_ms"
        wanted = {"skew_ms": number(primitive, given, option)}
        kind = "strobe" if primitive == "clock-strobe" else "skew"
        if kind == "strobe":
            wanted["period_ms"] = number(primitive, given, "period_ms", above=0)
        nothing_left(primitive, given)
        return {node: {kind: wanted} for node in nodes}

    async def look(self, node: str) -> str:
        """Return what the node's agent sees of its clock; "gone" if the machine does not run."""
        if node not in self._deployment.nodes:
            raise UsageError(f"no node {node!r} whose clock could be looked at")
        return await self._deployment.nodes[node].look("look_at_clock")
