"""The clocks of machines whose owners allow that they are set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from environments.fault_options import nothing_left, number
from environments.machines.deployment import Deployment
from environments.machines.furniture import Furniture
from harness.interface import NodePlan, UsageError

PRIMITIVES: Final = ("clock-skew", "clock-step", "clock-strobe")


class MachineClocks(Furniture):
    """Faults of them set the machine's own clock; at the end it is set right again."""

    part = "clock"
    primitives = PRIMITIVES

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def plan(self, nodes: Sequence[NodePlan]) -> None:
        """Every machine has one."""

    def faults(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """What each agent has to do. Raises UsageError for options."""
        given = dict(options)
        if primitive == "clock-skew":
            wanted = {"skew": {"skew_ms": number(primitive, given, "skew_ms")}}
        else:
            step = {"skew_ms": number(primitive, given, "step_ms")}
            if primitive == "clock-strobe":
                period_ms = number(primitive, given, "period_ms", above=0)
                wanted = {"strobe": {**step, "period_ms": period_ms}}
            else:
                wanted = {"skew": step}
        nothing_left(primitive, given)
        return dict.fromkeys(nodes, wanted)

    async def look(self, node: str) -> str:
        """What its agent sees of it; "gone" with the machine."""
        if node not in self._deployment.nodes:
            raise UsageError(f"no node {node!r} whose clock could be looked at")
        return await self._deployment.nodes[node].look("look_at_clock")
