"""The controlled switch-over of a multi-instance queue manager (MI5).

Its active instance is ended so that the standby instance becomes active.

Why apart from ``stop``: a switch-over is refused where no instance stands by, so it never ends a
service; a stop ends both instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from harness.interface import Fault, NodePlan
from nemesis.kind import PAIR, CannotBeginError, FaultActions, Impact, Option, Situation
from nemesis.node import Stop
from nemesis.target import resolve_target

COMMAND = "end"


class SwitchOver(Stop):
    """A switch-over; without a standby instance it has no effect, and the fault says why."""

    name = "switch-over"
    description = (
        "the active instance of a queue manager ends and lets the standby instance take over; "
        "it is started again at the end"
    )
    stops = ends = False
    mild = True
    options: ClassVar[Mapping[str, Option]] = {"pair": PAIR}

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: instances of a queue manager."""
        if any(COMMAND in node.commands for node in nodes):
            return ""
        return "only an instance of a queue manager can be told to switch over: use --policy multi-instance"

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose the active instances of the target: the others have nothing to switch."""
        chosen = resolve_target(fault, self.default_target, situation)
        nodes = tuple(node for node in chosen if situation.roles.get(node) == "live")
        if not nodes:
            raise CannotBeginError(
                f"{' and '.join(chosen)} {'is' if len(chosen) == 1 else 'are'} not active now"
            )
        return Impact(", ".join(nodes), nodes=nodes)

    async def ask(self, node: str, actions: FaultActions, failover: bool | None) -> None:
        """End an instance at once, even if clients are connected."""
        del failover
        await actions.administer(node, COMMAND, {"immediate": True, "switch-over": True})
