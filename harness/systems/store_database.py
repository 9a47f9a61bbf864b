"""Our brokers with a shared store in a database: how a test of the policy ``shared-store`` with ``--set store:type=database`` is configured.

Each pair has a store of its own in the one database of the test.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from harness.interface import Address, NodePlan
from harness.systems import database_plan

_SECTION: Final = "ha-policy.shared-store"

STORE: Final = f"{_SECTION}.store"

_TEST_ROLE_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"failover-on-shutdown": True, "lock-poll-period": 100}
)

_TEST_DATABASE_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        # One file beside the directories of all nodes, where they share a host; a simulated world has a server instead.
        "url": "sqlite:../../store.sqlite",
        "network-timeout": 1000,
        "lock-renew-period": 250,
        "lock-expiration": 4000,
    }
)
"""Short times (milliseconds). A client must have given up a silent broker (1.25 s, ``workloads.connection``) before that broker is replaced."""


def defaults(node: NodePlan, hosts: Mapping[str, Address]) -> dict[str, Any]:
    """By dotted name; ``hosts`` tell of the environment's own server, where it has made one."""
    return {
        STORE: "database",
        **{f"{_SECTION}.{node.configured}.{name}": value for name, value in _TEST_ROLE_DEFAULTS.items()},
        **{f"database-store.{name}": value for name, value in _TEST_DATABASE_DEFAULTS.items()},
        "database-store.store-name": node.pair,
        **database_plan.defaults(hosts),
    }
