"""Classic as a system under test: its cluster, its dialect, and how its brokers are asked."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkers.verdict import Promises
from harness.interface import (
    Address,
    DatabasePlan,
    Dialect,
    Lack,
    Layout,
    NodePlan,
    Patience,
    PolicySummary,
    Provision,
    Status,
    Temporaries,
    TestSpec,
    Topics,
    UsageError,
    Wishes,
)
from harness.interface.errors import near
from harness.systems import readiness, release, runtime, store
from harness.systems.classic import configuration, distribution, properties
from harness.systems.classic.events import EVENTS
from harness.systems.classic.management import BRIDGES, Management
from harness.systems.classic.properties import JDBC, MASTER, NETWORK, SHARED_STORE, SLAVE, STANDALONE
from workloads.registry import queues_of

_CONFIGURED: Final = {
    SHARED_STORE: (MASTER, SLAVE),
    JDBC: (MASTER, SLAVE),
    NETWORK: (STANDALONE,),
    STANDALONE: (STANDALONE,),
}
_JVM_MB: Final = 100
"""The memory of a JVM besides its heap (MB)."""


class ClassicSystem(Management):
    """``harness.interface.System`` for brokers of a distribution that the person has unpacked."""

    name = "classic"
    summary = "Apache ActiveMQ Classic, 5.17 and 5.18"
    policies: Mapping[str, PolicySummary] = {
        SHARED_STORE: PolicySummary(
            description="pairs on a shared directory; the broker with its lock serves",
            traits=("locks", "shared-store"),
        ),
        JDBC: PolicySummary(
            description="pairs on PostgreSQL; the broker with the lease or lock serves",
            traits=("locks", "shared-store"),
        ),
        NETWORK: PolicySummary(
            description="brokers with separate stores that forward messages to each other"
        ),
        STANDALONE: PolicySummary(description="separate brokers without a cluster"),
    }
    dialect = Dialect(
        wishes=Wishes(expires="expires"),
        login="tester",
        passcode="tester",
        durable={"persistent": "true"},
        closing={"JMSXGroupSeq": "-1"},  # "Closing a message group" (manual, Message Groups)
        window_header="activemq.prefetchSize",
        heart_beat_s=0.5,
        on_the_way_s=2.0,
        connect_s=2.5,
        temporaries=Temporaries(),
        topics=Topics(send={"persistent": "true"}, durable={"activemq.subscriptionName": "{}"}, remakes=True),
    )
    patience = Patience(start_s=150.0, settle_s=30.0, silence_s=2.0, vacancy_s=30.0)
    events = EVENTS
    _on_database = False
    _bridged = False

    def promises(self, spec: TestSpec) -> Promises:
        """Return what Classic promises: a refused message is a dead letter at once.

        Deliveries are counted in memory. An answer may overtake deliveries, which wait for a thread
        of their own. In a network an acknowledgement says nothing of the broker that forwarded the
        message, which may still have it.
        """
        return Promises(
            nack="dead-letter",
            answers_in_order=False,
            marks_redeliveries="same-process",
            durable_acks=spec.policy != NETWORK,
            single=spec.policy != NETWORK,
            independent_pairs=spec.policy != NETWORK,
            monotonic_clocks=False,
        )

    def lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """Return what is missing as for all pairs; in a network, missing bridges, too.

        In a network every broker must forward to all others.
        """
        missing = dict(readiness.lacking(nodes, statuses))
        for node in nodes if self._bridged else ():
            status = statuses.get(node.name)
            peers = [] if status is None else status.details.get(BRIDGES, [])
            if far := [peer.name for peer in nodes if peer.name not in (node.name, *peers)]:
                missing.setdefault(node.name, f"{node.name} has no bridge to {', '.join(far)}")
        return missing

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """Return pairs "a", "b", ...: a1 and a2, or a1 alone. Raises UsageError.

        The broker of a pair that comes first serves; a2 is started once a1 serves.
        """
        self.shares = spec.policy in (SHARED_STORE, JDBC)
        self._bridged = spec.policy == NETWORK
        self._on_database = spec.policy == JDBC
        pairs = string.ascii_lowercase[: spec.pairs]
        nodes = tuple(
            NodePlan(
                name=f"{pair}{number}",
                pair=pair,
                configured=role,
                ports=dict(configuration.PORTS),
                announced=("cluster",) if spec.policy == NETWORK else (),
                after=f"{pair}1" if role == SLAVE else None,
                store=store.plan(spec, pair, f"{pair}{number}") if spec.policy == SHARED_STORE else None,
                database=DatabasePlan(type="postgresql") if spec.policy == JDBC else None,
            )
            for pair in pairs
            for number, role in enumerate(_CONFIGURED[spec.policy], 1)
        )
        names = ["*", *(node.name for node in nodes)]
        names += [store.NAME] if spec.policy == SHARED_STORE else []
        for name in spec.properties:
            if name not in names:
                raise UsageError(f'--set: no node "{name}" in this test: {near(name, names)}')
        for node in nodes:
            properties.chosen(spec.properties, node, spec.policy)
        return nodes

    def drawn(self, spec: TestSpec, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return nothing to draw: a search needs brokers in Python."""
        del spec, nodes
        return {}

    def lack(self) -> Lack | None:
        """Return what must be installed for the policy planned last; None if nothing is missing."""
        return distribution.lack() or (distribution.lack_for_database() if self._on_database else None)

    def missing(self) -> str:
        """Return what must be installed for the policy planned last; "" if nothing is missing."""
        return str(self.lack() or "")

    def version(self) -> str:
        """Return the version of the distribution."""
        return distribution.version()

    def warnings(self, spec: TestSpec) -> Sequence[str]:
        """Return the warning of a release that is untried."""
        del spec
        return release.warnings("Classic", self.version(), distribution.TRIED)

    def unplaced(self, environment: str) -> str:
        """Return why brokers cannot run in an environment.

        A local test needs Java here; elsewhere all jars must be in the distribution.
        """
        if environment == "local":
            return runtime.lack_of_java(distribution.java())
        jar = "" if self.missing() else distribution.elsewhere()
        return f"{jar} is not in its distribution: take Apache's, or --environment local" if jar else ""

    def provision(self, spec: TestSpec) -> Provision:
        """Return what a machine must be given: the distribution, Java, and memory for a JVM."""
        heaps = [
            configuration.heap_mb(properties.chosen(spec.properties, node, spec.policy))
            for node in self.plan(spec)
        ]
        return Provision(
            runtimes=(runtime.java(distribution.java()),),
            directories={self.name: str(distribution.home())},
            leave_out=distribution.LEFT_OUT,
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
        """Return the files of an instance: ``activemq.xml`` and the arguments of its JVM."""
        return configuration.files(
            properties.chosen(spec.properties, node, spec.policy),
            spec.policy,
            node,
            nodes,
            queues_of(spec),
            layout,
            listen,
            hosts,
            layout.homes[self.name],
        )

    def command(self, layout: Layout) -> list[str]:
        """Return the command of the JVM, which runs in the foreground, so that signals reach it."""
        return ["java", f"@{layout.etc}/java.args"]
