"""Faults of datagrams: some are lost, arrive twice, or are overtaken by others.

Connections between brokers are not touched. So a broker that broadcasts may be unheard for long
while its links stand, as where a switch stops to forward multicasts (AMQ 17.2.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Fault, NodePlan
from nemesis.kind import Option, probability
from nemesis.link import LinkKind

CHANCE_DEFAULT: Final = 0.3


class DatagramKind(LinkKind):
    """A kind of fault of the datagrams that cross links."""

    lasts = mild = True
    options: ClassVar[Mapping[str, Option]] = {
        **LinkKind.options,
        "chance": Option(f"of each datagram, {CHANCE_DEFAULT:g} by default", probability, drawn=(0.1, 1.0)),
    }

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: brokers that send datagrams."""
        if any(node.broadcasts for node in nodes):
            return ""
        return "no broker of this test sends datagrams: give them broadcast-groups with --set"

    def given(self, fault: Fault) -> Mapping[str, Any]:
        """Return the chance."""
        return {"chance": fault.options.get("chance", CHANCE_DEFAULT)}

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether at least one link shows the effect: chance may spare the others."""
        del before
        return not self.healed(observed)


class DatagramLoss(DatagramKind):
    """Lost datagrams."""

    name = "datagram-loss"
    description = "datagrams are lost, and connections are not touched"
    primitives = ("datagram-loss",)
    seen_as = ("lossy", "lost")


class DatagramDuplicate(DatagramKind):
    """Datagrams that arrive twice."""

    name = "datagram-duplicate"
    description = "datagrams arrive twice"
    primitives = ("datagram-duplicate",)
    seen_as = "doubled"


class DatagramReorder(DatagramKind):
    """Datagrams that others overtake."""

    name = "datagram-reorder"
    description = "datagrams are held back for some milliseconds, so that others overtake them"
    primitives = ("datagram-reorder",)
    seen_as = "held back"
