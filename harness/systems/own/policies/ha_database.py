"""The policy ``ha-database`` in a test: our brokers as a high-availability cluster on one database.

Why a test needs all of these times together: another broker may take over at the earliest after the
whole of ``lock-expiration``. Before that a client must have given up the silent broker (1.25 s,
``stomp_protocol.client.connection``), and the broker must have dropped everything (three quarters
of ``lock-expiration``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Address, Event, NodePlan, TestSpec
from harness.systems.own import database_plan
from harness.systems.own.policies.event import event, needing
from harness.systems.own.policies.policy import Policy

_TEST_DEFAULTS: Final[Mapping[str, Any]] = {
    "cluster.message-load-balancing": "OFF",
    "cluster.static-connectors": [],
    "ha-policy.ha-database.cluster-id": "test-cluster",
    "ha-policy.ha-database.heartbeat-interval": 250,
    "ha-policy.ha-database.heartbeat-threshold": 3,
    "ha-policy.ha-database.monitor-interval": 200,
    "ha-policy.ha-database.monitor-threshold": 2,
    **database_plan.TEST_DEFAULTS,
    "database-store.lock-renew-period": 300,
    "database-store.lock-expiration": 3000,
}
"""Short times for tests (milliseconds), by dotted name, for every node."""


_EVENTS: Final[Mapping[str, Event]] = needing(
    "members",
    {
        "member/suspected": event(
            "a broker was silent for so long that another took over",
            r"ha-database: \S+ \(\S+\) has been silent for ",
            plays="claimant",
        ),
        "member/takeover-begun": event(
            "the database let a broker begin to take over another",
            r"ha-database: the takeover of \S+ has begun$",
            plays="taker",
        ),
        "member/too-late": event(
            "a takeover was refused by the database", r"ha-database: \S+ is not taken over: "
        ),
        "member/taken-over": event(
            "a broker was taken over by another", r"ha-database: \S+ is taken over with "
        ),
        "member/not-renewed": event(
            "a lease was not renewed at once", r"ha-database: the lease was not renewed: "
        ),
        "member/ended": event(
            "a broker dropped all it had, taken over or without a lease",
            r" ERROR \S+ ha-database: .* this broker answers no client any more$",
        ),
    },
)


class HaDatabase(Policy):
    """A cluster in which each broker is a pair of its own, and all share the database."""

    name = "ha-database"
    events = _EVENTS
    traits = ("members",)
    description = (
        "brokers that share a database; any of them takes over from any other (Sun 4.1, "
        "high-availability clusters)"
    )
    configured = ("member",)
    draws: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "ha-policy.ha-database.monitor-interval": (50, 500),
        "ha-policy.ha-database.takeover-wait": (0, 1000),
        **database_plan.DRAWN,
    }
    commands = ("members", "quiesce", "takeover", "unquiesce")

    def in_database(self, spec: TestSpec) -> bool:
        """Return True: the brokers always share a database."""
        del spec
        return True

    def defaults(
        self, node: NodePlan, nodes: Sequence[NodePlan], hosts: Mapping[str, Address]
    ) -> Mapping[str, Any]:
        """Return the defaults, which are the same for all nodes."""
        del node, nodes
        return {**_TEST_DEFAULTS, **database_plan.defaults(hosts)}
