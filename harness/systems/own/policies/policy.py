"""The description of a policy for tests of its brokers."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from harness.interface import Address, Event, NodePlan, TestSpec


class Policy:
    """The planning and configuration of tests of one policy; its instances keep no state."""

    name: ClassVar[str]
    description: ClassVar[str]
    by_role: ClassVar[bool] = False
    """Whether its section of ``broker.toml`` has a part for each role."""
    has_master: ClassVar[bool] = False
    """Whether one of its brokers may be the master broker."""
    on_store: ClassVar[bool] = False
    """Whether the brokers of a pair share a directory."""
    machines: ClassVar[tuple[str, ...]] = ()
    """The names, besides nodes, whose properties ``--set`` takes."""

    variants: ClassVar[tuple[dict[str, dict[str, Any]], ...]] = ()
    """The variants of ``harness.interface.PolicySummary``."""

    commands: ClassVar[tuple[str, ...]] = ()
    """The commands, besides a stop, that its brokers' admin ports take from an administrator."""

    configured: ClassVar[tuple[str, ...]] = ()
    """The configured role of each broker of a pair, if no property decides it."""

    events: ClassVar[Mapping[str, Event]] = {}
    """What its brokers report in their logs, by name, besides what all brokers do."""

    traits: ClassVar[tuple[str, ...]] = ()
    """The traits of its clusters, as in ``harness.interface.PolicySummary``."""

    draws: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """The values that a search draws from, by the property's dotted name, whatever the nodes."""

    def roles(self, spec: TestSpec) -> tuple[str, ...]:
        """Return the configured role of each broker of a pair, in order.

        Raises UsageError that names the property.
        """
        del spec
        return self.configured

    def layout(self, spec: TestSpec) -> Iterator[tuple[str, int, str]]:
        """Yield the pair, the number within it and the configured role of each broker.

        Raises UsageError that names the property.
        """
        roles = self.roles(spec)
        for pair in string.ascii_lowercase[: spec.pairs]:
            for number, role in enumerate(roles, 1):
                yield pair, number, role

    def in_database(self, spec: TestSpec) -> bool:
        """Return whether all brokers of the test share a database. Raises UsageError."""
        del spec
        return False

    def after(self, pair: str, number: int) -> str | None:
        """Return which broker must have started before the one of that number (from 1), or None."""
        del pair, number
        return None

    def defaults(
        self, node: NodePlan, nodes: Sequence[NodePlan], hosts: Mapping[str, Address]
    ) -> Mapping[str, Any]:
        """Return short times for tests and what the policy needs, by dotted name.

        ``nodes`` are all of the test, and ``hosts`` those that the environment makes.
        """
        del node, nodes, hosts
        return {}

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return the values that a search draws from, by the property's dotted name."""
        del nodes
        return self.draws
