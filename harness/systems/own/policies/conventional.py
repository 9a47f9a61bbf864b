"""The policy ``conventional`` in a test: our brokers as a conventional cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.interface import Address, Event, NodePlan, TestSpec
from harness.systems import store
from harness.systems.own import database_plan
from harness.systems.own.policies.event import event, needing
from harness.systems.own.policies.policy import Policy
from harness.systems.own.policies.standalone import CONFIGURED

_SECTION: Final = "ha-policy.conventional."

_HOMES: Final = "homes"

_EVENTS: Final[Mapping[str, Event]] = {
    **needing(
        _HOMES,
        {
            "home/lease-ended": event(
                "a home gave out what a broker held of which it had heard nothing for a lease",
                r"messages that \S+ held are given to others: its lease ended",
            ),
            "home/last-life-over": event(
                "a home that had restarted gave out what brokers held in its last life",
                r"the messages of this broker's last life are given out: ",
            ),
            "list/read-again": event(
                "a broker read its list of brokers again", r"conventional: the list of brokers is read again;"
            ),
        },
    ),
    **needing(
        "master",
        {
            "change/caught-up": event(
                "a broker joined the change record and caught up with it",
                r"the change record of master broker \S+ is applied up to change",
            ),
            "change/dropped-messages": event(
                "a change of the cluster dropped messages at a broker",
                r"change \d+ of the cluster is applied",
            ),
            "change/restored": event(
                "the master began with a change record that was restored from a backup",
                r"the change record was restored from a backup",
            ),
            "consumer/taken-over": event(
                "a client took over a durable subscription from a client of another broker",
                r"its consumer here is ended, because a client of broker \S+ takes it over$",
            ),
            "master/begun": event(
                "the master broker of a conventional cluster began",
                r"conventional: this broker is the master broker$",
            ),
            "master/awaited": event(
                "a broker was suspended until it reached its master broker", r"conventional: suspended: "
            ),
            "master/reached": event(
                "a suspended broker reached its master broker",
                r"conventional: the master broker \S+ is reached$",
            ),
        },
    ),
}


def _own_store(node: NodePlan, hosts: Mapping[str, Address]) -> dict[str, Any]:
    """Return the settings of a broker's own store in the database of the test."""
    return {
        **database_plan.TEST_DEFAULTS,
        "database-store.lock-renew-period": 250,
        "database-store.lock-expiration": 4000,
        "database-store.store-name": node.name,
        **database_plan.defaults(hosts),
    }


class Conventional(Policy):
    """A policy with brokers that each have a disk of their own, and serve consumers of all."""

    name = "conventional"
    traits = (_HOMES,)
    events = _EVENTS
    has_master = True
    commands = ("create", "delete", "reload", "compact-record", "backup-record")
    description = "brokers that each keep what they took, and serve consumers at the others (Sun MQ)"
    configured = (CONFIGURED,)
    machines = (store.NAME,)

    def in_database(self, spec: TestSpec) -> bool:
        """Return whether the spec says that each broker's store is in a database."""
        return store.in_database(spec)

    def defaults(
        self, node: NodePlan, nodes: Sequence[NodePlan], hosts: Mapping[str, Address]
    ) -> Mapping[str, Any]:
        """Return the store, and the list of all brokers in place of static connectors.

        The master broker is named as well, if the test has one.
        """
        own_store = {} if node.database is None else _own_store(node, hosts)
        return {
            **own_store,
            "cluster.message-load-balancing": "OFF",
            "cluster.static-connectors": [],
            f"{_SECTION}allow-loopback": True,
            f"{_SECTION}broker-list": [_connector(other) for other in nodes],
            f"{_SECTION}master-broker": "".join(_connector(other) for other in nodes if other.master),
        }


def _connector(node: NodePlan) -> str:
    return f"{node.name}:{node.ports['cluster']}"
