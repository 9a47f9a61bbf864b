"""What there is to say of a policy when its brokers are tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.interface import Address, NodePlan, TestSpec


class Policy:
    """How a test of one policy is planned and configured. Its instances keep no state."""

    name: ClassVar[str]
    description: ClassVar[str]
    by_role: ClassVar[bool] = False
    """Whether its section of ``broker.toml`` has one for each role."""
    on_store: ClassVar[bool] = False
    """Whether the brokers of a pair share a directory."""
    machines: ClassVar[tuple[str, ...]] = ()
    """What ``--set`` takes properties of besides nodes."""

    variants: ClassVar[tuple[dict[str, dict[str, Any]], ...]] = ()
    """See ``harness.interface.PolicySummary``."""

    commands: ClassVar[tuple[str, ...]] = ()
    """What its brokers' admin ports take of an administrator besides a stop."""

    configured: ClassVar[tuple[str, ...]] = ()
    """As what each broker of a pair is configured, where no property decides it."""

    draws: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Property, by dotted name -> the values that a search draws from, whatever the nodes."""

    def roles(self, spec: TestSpec) -> tuple[str, ...]:
        """As what each broker of a pair is configured, in order.

        Raises UsageError naming the property.
        """
        del spec
        return self.configured

    def in_database(self, spec: TestSpec) -> bool:
        """Whether all brokers of the test share a database. Raises UsageError."""
        del spec
        return False

    def after(self, pair: str, number: int) -> str | None:
        """Which broker must have started before the one of that number (from 1), if any must."""
        del pair, number
        return None

    def defaults(self, node: NodePlan, hosts: Mapping[str, Address]) -> Mapping[str, Any]:
        """Short times for tests and what the policy needs, by dotted name.

        ``hosts`` are of the environment's making.
        """
        del node, hosts
        return {}

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Property, by dotted name -> the values that a search draws from."""
        del nodes
        return self.draws
