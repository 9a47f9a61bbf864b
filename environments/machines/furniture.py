"""What nodes have beside a broker and links, and what can break of it."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from environments.machines.deployment import Deployment
from environments.machines.node import Node
from harness.interface import Address, Layout, NodePlan, UsageError


class Furniture(abc.ABC):
    """Their disks, their shared directories, their database.

    Of each method the simplest is here: there is none, or it needs nothing.
    """

    part: str
    """A node's own is looked at as "NODE/PART"."""
    primitives: Sequence[str] = ()
    """Its faults."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def plan(self, nodes: Sequence[NodePlan]) -> None:  # noqa: B027 - not every kind needs it
        """Take note of who has one. Raises UsageError for what cannot be had here."""

    def layout(self, node: Node) -> Layout | None:
        """Where its broker then has its directories; None where that is as everywhere."""
        del node
        return None

    def command(self, node: str, command: list[str]) -> list[str]:
        """What then starts its broker."""
        del node
        return command

    def hosts(self, node: str) -> dict[str, Address]:
        """What its broker then reaches, by announced name and port."""
        del node
        return {}

    def variables(self) -> dict[str, str]:
        """What the environment of a broker must have."""
        return {}

    def describe_services(self) -> dict[str, str]:
        """What it really is, for the report."""
        return {}

    async def serve(self) -> None:  # noqa: B027 - as above
        """Start what serves it; it serves when this returns."""

    async def begin(self, node: Node) -> None:  # noqa: B027 - as above
        """Have it ready before a node's broker is started."""

    @abc.abstractmethod
    def faults(
        self, primitive: str, nodes: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """What each agent has to do. Raises UsageError."""

    async def strike(  # noqa: B027 - as above
        self,
        primitive: str,
        nodes: Sequence[str],
        options: Mapping[str, Any],
        boot: Callable[[Node], Awaitable[None]],
    ) -> None:
        """Do what happens at once, if it is that kind of fault; ``boot`` starts a machine."""

    async def look(self, node: str) -> str:
        """How a node finds it."""
        raise UsageError(f"{node} has no {self.part} that can be looked at")
