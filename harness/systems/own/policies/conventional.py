"""The policy ``conventional`` in a test: our brokers as a conventional cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.interface import Address, NodePlan
from harness.systems.own.policies.policy import Policy
from harness.systems.own.policies.standalone import CONFIGURED


class Conventional(Policy):
    """A policy with brokers that each have a disk of their own, and serve consumers of all."""

    name = "conventional"
    description = "brokers that each keep what they took, and serve consumers at the others (Sun MQ)"
    configured = (CONFIGURED,)

    def defaults(
        self, node: NodePlan, nodes: Sequence[NodePlan], hosts: Mapping[str, Address]
    ) -> Mapping[str, Any]:
        """Return the list of all brokers, which takes the place of static connectors."""
        del node, hosts
        return {
            "cluster.message-load-balancing": "OFF",
            "cluster.static-connectors": [],
            "ha-policy.conventional.broker-list": [f"{one.name}:{one.ports['cluster']}" for one in nodes],
        }
