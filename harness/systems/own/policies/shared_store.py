"""The policy ``shared-store`` in a test: our brokers with a shared store.

The store of each pair is a directory, or with ``--set store:type=database`` a part of the one
database of the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.interface import Address, Event, NodePlan, TestSpec
from harness.systems import store
from harness.systems.own import database_plan
from harness.systems.own.policies.event import event, needing
from harness.systems.own.policies.policy import Policy

_SECTION: Final = "ha-policy.shared-store"

STORE: Final = f"{_SECTION}.store"

_ROLE_DEFAULTS: Final[Mapping[str, Any]] = {"failover-on-shutdown": True, "lock-poll-period": 100}
"""The defaults of master and slave (milliseconds)."""

_LOCK_DEFAULTS: Final[Mapping[str, Any]] = {"lock-renew-period": 250, "lock-expiration": 4000}
"""Short times of the lock (milliseconds): of master and slave, or of the database.

A directory's lease in a test is as long (``harness.systems.store``). A client must have given up a
silent broker (1.25 s, ``stomp_protocol.client.connection``) before that broker is replaced.
"""


_EVENTS: Final[Mapping[str, Event]] = needing(
    "locks",
    {
        "lock/waited": event(
            "a broker waited for the live lock",
            r" INFO \S+ waiting for the live lock, next in line",
            ("shared-store",),
        ),
        "lock/waited-behind": event(
            "a backup waited behind another",
            r" INFO \S+ waiting for the live lock, behind another backup",
            ("shared-store",),
        ),
        "lock/taken": event(
            "a broker got the live lock and served",
            r" INFO \S+ live as node \S+, life \d+ of the shared",
            plays="taker",
        ),
        "lock/in-doubt": event(
            "a live stopped answering, since its lock was not confirmed",
            r" WARNING \S+ the store has not confirmed the live lock for ",
        ),
        "lock/confirmed-again": event(
            "a live went on, its lock confirmed again",
            r" INFO \S+ the store has confirmed the live lock again",
        ),
        "lock/lost": event(
            "a live ended itself, since its lock was lost or not confirmed in time",
            r" ERROR \S+ (?:the live lock is lost|the store has not confirmed the live lock).* and ends$",
        ),
        "lock/passive": event(
            "a broker that could have become live stayed passive",
            r" INFO \S+ staying passive: ",
            ("shared-store",),
        ),
        "lock/handed-back": event(
            "a broker gave a master its place back",
            r" INFO \S+ failback: the master waits for its place",
            ("shared-store",),
        ),
    },
)


class SharedStore(Policy):
    """A policy with a master and its slaves; the broker that has the lock of the store is live."""

    name = "shared-store"
    events = _EVENTS
    traits = ("locks", "shared-store")
    description = (
        "live-backup pairs, or one live and several backups, on a shared directory or "
        "database; the broker with its lock is live (AMQ 17.3.2)"
    )
    by_role = True
    on_store = True
    machines = (store.NAME,)
    variants = ({store.NAME: {store.TYPE: "database"}},)

    def roles(self, spec: TestSpec) -> tuple[str, ...]:
        """Return the roles, the master first."""
        return ("master", *("slave" for _ in range(store.backups(spec))))

    def in_database(self, spec: TestSpec) -> bool:
        """Return whether the spec says that the store is a database."""
        return store.in_database(spec)

    def defaults(
        self, node: NodePlan, nodes: Sequence[NodePlan], hosts: Mapping[str, Address]
    ) -> Mapping[str, Any]:
        """Return the defaults of the role, and of the database if there is one."""
        del nodes
        section = _ROLE_DEFAULTS if node.database else {**_ROLE_DEFAULTS, **_LOCK_DEFAULTS}
        role_defaults = {f"{_SECTION}.{node.configured}.{name}": value for name, value in section.items()}
        if node.database is None:
            return role_defaults
        return {
            STORE: "database",
            **role_defaults,
            **database_plan.TEST_DEFAULTS,
            **{f"database-store.{name}": value for name, value in _LOCK_DEFAULTS.items()},
            "database-store.store-name": node.pair,
            **database_plan.defaults(hosts),
        }

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return the values for the database, if there is one."""
        return database_plan.DRAWN if any(node.database for node in nodes) else {}
