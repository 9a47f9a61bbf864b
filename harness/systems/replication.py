"""Our brokers as live-backup pairs of which the backup has a copy: how a test of the policy ``replication`` is configured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from harness.interface import NodePlan

_TEST_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "vote-on-replication-failure": True,
        "vote-retries": 5,
        "vote-retry-wait": 200,
        "quorum-vote-wait": 1000,
        "retry-replication-wait": 200,
        "initial-replication-sync-timeout": 10_000,
        "replication-patience": 2000,
    }
)
"""Short times for tests (milliseconds), of master and slave."""

_ROLE_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "master": {"check-for-live-server": True},
        "slave": {"allow-failback": True, "restart-backup": True},
    }
)

DRAWN: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        f"ha-policy.replication.{name}": choices
        for name, choices in {
            "vote-retries": (2, 10),
            "vote-retry-wait": (100, 600),
            "quorum-vote-wait": (500, 2000),
            "retry-replication-wait": (100, 500),
            "replication-patience": (1000, 4000),
        }.items()
    }
)
"""What a search draws, by dotted name."""


def defaults(node: NodePlan) -> dict[str, Any]:
    """By name, for the section of the node's role."""
    return {**_TEST_DEFAULTS, **_ROLE_DEFAULTS[node.configured], "group-name": node.pair}
