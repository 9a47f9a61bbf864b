"""The policy ``replication`` in a test: live-backup pairs whose backup has a copy.

Each live has one backup, or as many as ``--set group:backups=2`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from harness.interface import Address, NodePlan, TestSpec, UsageError
from harness.interface.errors import near
from harness.systems import store
from harness.systems.own.policies.policy import Policy

_GROUP: Final = "group"

_TEST_DEFAULTS: Final[Mapping[str, Any]] = {
    "vote-on-replication-failure": True,
    "vote-retries": 5,
    "vote-retry-wait": 200,
    "quorum-vote-wait": 1000,
    "retry-replication-wait": 200,
    "initial-replication-sync-timeout": 10_000,
    "replication-patience": 2000,
}
"""Short times for tests (milliseconds), of master and slave."""

_ROLE_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "master": {"check-for-live-server": True},
    "slave": {"allow-failback": True, "restart-backup": True},
}


class Replication(Policy):
    """A policy with a master and its slaves, which vote."""

    name = "replication"
    description = (
        "live-backup pairs; the backup has what the live acknowledged, quorum votes decide (AMQ 17.3.3)"
    )
    by_role = True
    machines = (_GROUP,)
    draws: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "ha-policy.replication.vote-retries": (2, 10),
        "ha-policy.replication.vote-retry-wait": (100, 600),
        "ha-policy.replication.quorum-vote-wait": (500, 2000),
        "ha-policy.replication.retry-replication-wait": (100, 500),
        "ha-policy.replication.replication-patience": (1000, 4000),
    }

    def roles(self, spec: TestSpec) -> tuple[str, ...]:
        """Return the roles, the master first."""
        for name in spec.properties.get(_GROUP, {}):
            if name != store.BACKUPS:
                raise UsageError(f"--set {_GROUP}:{name}: unknown property: {near(name, [store.BACKUPS])}")
        return ("master", *("slave" for _ in range(store.backups(spec, _GROUP))))

    def defaults(self, node: NodePlan, hosts: Mapping[str, Address]) -> Mapping[str, Any]:
        """Return the defaults of a node.

        Votes are on, as 17.3.3 recommends for three pairs and more.
        """
        del hosts
        section = {**_TEST_DEFAULTS, **_ROLE_DEFAULTS[node.configured], "group-name": node.pair}
        return {f"ha-policy.replication.{node.configured}.{name}": value for name, value in section.items()}
