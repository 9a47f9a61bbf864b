"""Artemis as a system under test: its cluster, its dialect, and how its brokers are asked."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkers.verdict import Promises
from harness.interface import (
    Address,
    Dialect,
    Lack,
    Layout,
    NodePlan,
    Patience,
    PolicySummary,
    Provision,
    Status,
    TestSpec,
    Topics,
    UsageError,
    Wishes,
)
from harness.interface.errors import near
from harness.systems import readiness, release, runtime, store
from harness.systems.artemis import configuration, distribution, properties, zookeeper
from harness.systems.artemis.events import EVENTS
from harness.systems.artemis.management import Management
from harness.systems.artemis.properties import (
    FAILBACK,
    HA,
    LOCK_MANAGER,
    MASTER,
    ON_SHUTDOWN,
    REPLICATION,
    SHARED_STORE,
    SLAVE,
    STANDALONE,
)
from workloads.registry import queues_of, topics_of

_CONFIGURED: Final = {
    REPLICATION: (MASTER, SLAVE),
    LOCK_MANAGER: (MASTER, SLAVE),
    SHARED_STORE: (MASTER, SLAVE),
    STANDALONE: (STANDALONE,),
}
_GROUP: Final = "group"
"""The name under which a spec says how many backups a replicated live has."""

_BALANCING: Final = "cluster.message-load-balancing"
_REDELIVERY: Final = "address-settings.redelivery-delay"
_OFF: Final = "OFF"

_ARBITER: Final = NodePlan(
    name=zookeeper.NAME,
    pair="zk",
    configured="arbiter",
    ports={"cluster": zookeeper.PORT},
    announced=("cluster",),
)

_JVM_MB: Final = 130
"""The memory of a JVM besides its heap (MB); measured with six idle brokers."""


class ArtemisSystem(Management):
    """``harness.interface.System`` for brokers of a distribution that the person has unpacked."""

    name = "artemis"
    summary = "Apache ActiveMQ Artemis 2.40 or later, and the AMQ Broker 7 made from it"
    policies: Mapping[str, PolicySummary] = {
        REPLICATION: PolicySummary(
            description="pairs; the backup has a copy, quorum votes decide", traits=("replication",)
        ),
        LOCK_MANAGER: PolicySummary(
            description="pairs; the backup has a copy, a lock in ZooKeeper decides", traits=("replication",)
        ),
        SHARED_STORE: PolicySummary(
            description="pairs on a shared directory; the broker with its lock is live",
            traits=("locks", "shared-store"),
        ),
        STANDALONE: PolicySummary(description="a cluster of brokers without backups"),
    }
    dialect = Dialect(
        wishes=Wishes(expires="expires", delay="AMQ_SCHEDULED_DELAY", priority="priority"),
        login="tester",
        passcode="tester",
        # Without these headers every destination is a topic if the acceptor has no prefix for
        # queues, as by default.
        durable={"persistent": "true", "destination-type": "ANYCAST"},
        subscribe={"subscription-type": "ANYCAST"},
        window_header="consumer-window-size",
        window_unit=400,
        heart_beat_s=0.5,
        # "The ACK frame can not be part of a transaction" (manual, STOMP, Transactional
        # Acknowledgements).
        transactional_acks=False,
        topics=Topics(
            send={"persistent": "true", "destination-type": "MULTICAST"},
            subscribe={"subscription-type": "MULTICAST"},
            durable={"durable-subscription-name": "{}"},
        ),
    )
    patience = Patience(start_s=150.0, settle_s=60.0, silence_s=2.0, vacancy_s=30.0)
    events = EVENTS

    def __init__(self) -> None:
        super().__init__()
        self._returning: frozenset[str] = frozenset()

    def promises(self, spec: TestSpec) -> Promises:
        """Return what Artemis promises: a NACK removes a message; most redeliveries have no mark.

        Brokers that forward to each other keep a group together only by a grouping handler
        ("Clustered Grouping"), and none is configured here.
        """
        forwards = any(values.get(_BALANCING, _OFF) != _OFF for values in spec.properties.values())
        delay_ms = max(int(values.get(_REDELIVERY, 0)) for values in ({}, *spec.properties.values()))
        return Promises(
            nack="consume",
            marks_redeliveries="never",
            groups=not forwards or spec.pairs == 1,
            redelivery_s=delay_ms / 1000 + self.dialect.unnoticed_s if delay_ms > 0 else 0.0,
            monotonic_clocks=False,
        )

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """Return pairs "a", "b", ...: a1 master and a2 slave, or a1 alone. Raises UsageError.

        A live may have more backups: "backups" of the store, or of the group of a replicated one.
        """
        machine = _GROUP if spec.policy in (REPLICATION, LOCK_MANAGER) else store.NAME
        backed = SLAVE in _CONFIGURED[spec.policy]
        backups = store.backups(spec, machine) if backed else 1
        brokers = tuple(
            NodePlan(
                name=f"{pair}{number}",
                pair=pair,
                configured=role,
                ports=dict(configuration.PORTS),
                announced=("cluster",),
                store=store.plan(spec, pair, f"{pair}{number}") if spec.policy == SHARED_STORE else None,
                # Two brokers that begin an empty store at once give it two node IDs.
                after=f"{pair}1" if (spec.policy, role) == (SHARED_STORE, SLAVE) else None,
            )
            for pair in string.ascii_lowercase[: spec.pairs]
            for number, role in enumerate((*_CONFIGURED[spec.policy], *[SLAVE] * (backups - 1)), 1)
        )
        nodes = (*brokers, *([_ARBITER] if spec.policy == LOCK_MANAGER else ()))
        names = ["*", *(node.name for node in brokers), *([machine] if backed else [])]
        for name in spec.properties:
            if name not in names:
                raise UsageError(f'--set: no node "{name}" in this test: {near(name, names)}')
        for name in spec.properties.get(_GROUP, {}):
            if name != store.BACKUPS:
                raise UsageError(f"--set {_GROUP}:{name}: unknown property: {near(name, [store.BACKUPS])}")
        chosen = [(node, properties.chosen(spec.properties, node, spec.policy)) for node in brokers]
        staying = {
            node.pair
            for node, chosen_for_node in chosen
            if not chosen_for_node.get(HA, {}).get(FAILBACK, True)
        }
        self._without_successor = frozenset(
            node.name
            for node, chosen_for_node in chosen
            if chosen_for_node.get(HA, {}).get(ON_SHUTDOWN) is False
        )
        self._returning = frozenset({node.pair for node in nodes} - staying)
        return nodes

    def lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """Return what is missing as for all pairs, and masters that are about to fail back.

        A replicated master fails back as soon as it has a copy, and ends what its clients had under
        way.
        """
        about = {
            node.name: f"pair {node.pair} is about to fail back to {node.name}"
            for node in nodes
            if node.configured == MASTER
            and node.pair in self._returning
            and node.name in statuses
            and statuses[node.name].could_take_over
        }
        return readiness.lacking(nodes, statuses) or about

    def drawn(self, spec: TestSpec, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return nothing to draw: a search needs brokers in Python."""
        del spec, nodes
        return {}

    def lack(self) -> Lack | None:
        """Return what must be installed and how; None if nothing is missing."""
        return distribution.lack()

    def missing(self) -> str:
        """Return what must be installed and how; "" if nothing is missing."""
        return str(self.lack() or "")

    def version(self) -> str:
        """Return the version of the distribution."""
        return distribution.version()

    def warnings(self, spec: TestSpec) -> Sequence[str]:
        """Return the warning of a release that is untried."""
        del spec
        return release.warnings("Artemis", self.version(), distribution.TRIED)

    def unplaced(self, environment: str) -> str:
        """Return why brokers cannot run in an environment: a local test needs Java here."""
        return runtime.lack_of_java(distribution.java()) if environment == "local" else ""

    def provision(self, spec: TestSpec) -> Provision:
        """Return what a machine must be given: the distribution, Java, and memory for a JVM."""
        heaps = [
            configuration.heap_mb(properties.chosen(spec.properties, node, spec.policy))
            for node in self.plan(spec)
            if node.broker
        ]
        directories = {self.name: str(distribution.home())}
        leave_out: tuple[str, ...] = distribution.LEFT_OUT
        if spec.policy == LOCK_MANAGER:
            directories[zookeeper.HOME] = str(zookeeper.home())
            leave_out += (*zookeeper.left_out(),)
        return Provision(
            runtimes=(runtime.java(distribution.java()),),
            directories=directories,
            leave_out=leave_out,
            memory_mb=max(heaps) + _JVM_MB,
        )

    def files(
        self,
        spec: TestSpec,
        node: NodePlan,
        nodes: Sequence[NodePlan],
        layout: Layout,
        listen: Mapping[str, Address],
        hosts: Mapping[str, Address],
    ) -> dict[str, bytes]:
        """Return the files of an instance: fewer than ``artemis create`` makes."""
        place = layout.homes[self.name]
        return configuration.files(
            properties.chosen(spec.properties, node, spec.policy) if node.broker else {},
            spec.policy,
            node,
            nodes,
            (*queues_of(spec), *topics_of(spec)),
            layout,
            listen,
            hosts,
            place,
            distribution.class_path(place),
        )

    def command(self, layout: Layout) -> list[str]:
        """Return the command of the JVM, which runs in the foreground, so that signals reach it."""
        return ["java", f"@{layout.etc}/java.args"]
