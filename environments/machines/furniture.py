"""The things that nodes have in addition to a broker and links, and the faults of these things."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from environments.machines.deployment import Deployment
from environments.machines.node import Node
from harness.interface import Address, Layout, NodePlan, UsageError


class Furniture(abc.ABC):
    """A kind of thing that nodes have: their disks, their shared directories, their database.

    The methods here do the simplest: the thing does not exist, or needs nothing.
    """

    part: str
    """The name of the thing in a probe of one node: "NODE/PART"."""
    primitives: Sequence[str] = ()
    """The names of its faults."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def plan(self, nodes: Sequence[NodePlan]) -> None:  # noqa: B027 - not every kind needs it
        """Take note of the nodes that have one. Raises UsageError if it is impossible here."""

    def layout(self, node: Node) -> Layout | None:
        """Return the directories of a node's broker that has one; None if they are as always."""
        del node
        return None

    def command(self, node: str, command: list[str]) -> list[str]:
        """Return the command that starts a node's broker, made from the usual one."""
        del node
        return command

    def hosts(self, node: str) -> dict[str, Address]:
        """Return the addresses that a node's broker also reaches, by announced name and port."""
        del node
        return {}

    def variables(self) -> dict[str, str]:
        """Return the environment variables that brokers need."""
        return {}

    def describe_services(self) -> dict[str, str]:
        """Return what was really deployed, for the report."""
        return {}

    async def serve(self) -> None:  # noqa: B027 - as above
        """Start the server behind it; the server serves when this returns."""

    async def begin(self, node: Node) -> None:  # noqa: B027 - as above
        """Make it ready before a node's broker is started."""

    @abc.abstractmethod
    def faults(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return what each agent has to do for a fault. Raises UsageError."""

    async def strike(  # noqa: B027 - as above
        self,
        primitive: str,
        nodes: Sequence[str],
        options: Mapping[str, Any],
        boot: Callable[[Node], Awaitable[None]],
    ) -> None:
        """Carry out a momentary fault, and do nothing for others; ``boot`` starts a machine."""

    async def look(self, node: str) -> str:
        """Return how a node finds it now."""
        raise UsageError(f"{node} has no {self.part} that can be looked at")
