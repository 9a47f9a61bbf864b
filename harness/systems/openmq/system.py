"""Open MQ as a system under test: its cluster, its dialect, and what it promises."""

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
    TestSpec,
    Topics,
    UsageError,
    Wishes,
)
from harness.interface.errors import near
from harness.systems import release, runtime
from harness.systems.openmq import configuration, distribution, properties
from harness.systems.openmq.events import EVENTS
from harness.systems.openmq.management import LIVE_S, MEMBERS, Management
from harness.systems.openmq.properties import CONVENTIONAL, HA_DATABASE, STANDALONE

_MEMBER: Final = "member"
_COMMANDS: Final = ("members", "quiesce", "takeover", "unquiesce")
_OPERATING: Final = "OPERATING"
_LINKED_S: Final = 6.0
"""The time after which brokers have found each other (s).

A broker looks for others every 5 s, and does not report whether it has found them.
"""
_JVM_MB: Final = 110
"""The memory of a JVM besides its heap (MB)."""


class OpenmqSystem(Management):
    """``harness.interface.System`` for brokers of a distribution that the person has unpacked."""

    name = "openmq"
    summary = "Open MQ (Sun's and Oracle's Message Queue), 6"
    policies: Mapping[str, PolicySummary] = {
        STANDALONE: PolicySummary(description="separate brokers without a cluster"),
        CONVENTIONAL: PolicySummary(
            description="brokers with separate stores; each delivers messages of all"
        ),
        HA_DATABASE: PolicySummary(
            description="brokers on PostgreSQL; each takes over from any other", traits=("members",)
        ),
    }
    dialect = Dialect(
        nacks=False,
        wishes=Wishes(expires="expires", lasts=True, priority="priority"),
        login=configuration.USER,
        passcode=configuration.PASSWORD,
        window_header=None,
        ack_mode="client",
        count_header="JMSXDeliveryCount",
        heart_beat_s=0.0,
        # An ACK may be in a transaction only if its subscription was made there (BSS4031).
        transactional_acks=False,
        connect_s=5.0,  # the bridge makes a connection of its own for each
        on_the_way_s=6.0,
        # UNSUBSCRIBE needs an id that is subscribed (BSS4020, BSS4007): a drop ends the consumer.
        topics=Topics(durable={"durable-subscriber-name": "{}"}, drops="with-consumer"),
    )
    patience = Patience(start_s=150.0, settle_s=60.0, silence_s=2.0, vacancy_s=30.0, restart_s=30.0)
    events = EVENTS

    def __init__(self) -> None:
        super().__init__()
        self._policy = STANDALONE
        self._on_database = False

    def promises(self, spec: TestSpec) -> Promises:
        """Return what Open MQ promises.

        A client cannot refuse a message: the STOMP bridge does not know NACK. There are no groups.
        A queue with one active consumer is as good as one group. But if clients go from broker to
        broker, no order is promised of what they sent to both.
        """
        nodes = self.plan(spec)
        has_single_consumers = all(
            self._settings(spec, node, nodes)[properties.ACTIVE_CONSUMERS] == 1 for node in nodes
        )
        return Promises(
            nack="none",
            groups=has_single_consumers and spec.policy != HA_DATABASE,
            independent_pairs=False,  # a master broker, and the home of each destination
            monotonic_clocks=False,
        )

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """Return brokers a1, b1, c1 ... Raises UsageError."""
        self._policy = spec.policy
        self.clustered = spec.policy != STANDALONE
        self.one_store = spec.policy == HA_DATABASE
        names = [f"{letter}1" for letter in string.ascii_lowercase[: spec.pairs]]
        self._on_database = any(properties.uses_database(spec, name) for name in names)
        nodes = tuple(
            NodePlan(
                name=name,
                pair=name[0],
                configured=_MEMBER if self.one_store else STANDALONE,
                ports=dict(configuration.PORTS),
                announced=("cluster",) if self.clustered else (),
                # The first broker makes the tables.
                after=names[0] if self.one_store and name != names[0] else None,
                database=DatabasePlan(type="postgresql") if properties.uses_database(spec, name) else None,
                commands=_COMMANDS if self.one_store else (),
            )
            for name in names
        )
        node_names = ["*", *names]
        for name in spec.properties:
            if name not in node_names:
                raise UsageError(f'--set: no node "{name}" in this test: {near(name, node_names)}')
        for node in nodes:
            runtime.heap_mb(self._settings(spec, node, nodes).get(properties.HEAP, configuration.HEAP))
        return nodes

    def lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """Return the brokers that do not serve, or do not know of all running brokers."""
        missing = {}
        for node in nodes:
            status = statuses.get(node.name)
            if status is None or not status.serves:
                missing[node.name] = f"{node.name} does not serve"
            elif self.clustered and status.details[LIVE_S] < _LINKED_S:
                missing[node.name] = f"{node.name} has served for less than {_LINKED_S:g} s"
            elif self.clustered:
                operating = sum(member["StateLabel"] == _OPERATING for member in status.details[MEMBERS])
                if operating < len(nodes):
                    missing[node.name] = f"{node.name} knows of {operating} of {len(nodes)} running brokers"
        return missing

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
        return release.warnings("Open MQ", self.version(), distribution.TRIED)

    def unplaced(self, environment: str) -> str:
        """Return why brokers of the policy that was planned last cannot run in an environment."""
        if self.clustered and environment == "local":
            return (
                f"policy {self._policy} of openmq needs --environment docker or ssh: its brokers refuse "
                "loopback addresses in a cluster (B3151)"
            )
        return runtime.lack_of_java(distribution.java()) if environment == "local" else ""

    def provision(self, spec: TestSpec) -> Provision:
        """Return what a machine must be given: the distribution, Java, and memory for a JVM."""
        nodes = self.plan(spec)
        heaps = [
            runtime.heap_mb(self._settings(spec, node, nodes).get(properties.HEAP, configuration.HEAP))
            for node in nodes
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
        """Return the properties of an instance, which the broker makes itself, and what runs it."""
        every = self._settings(spec, node, nodes)
        return configuration.files(
            every, spec.policy, node, nodes, layout, listen, hosts, layout.homes[self.name]
        )

    def command(self, layout: Layout) -> list[str]:
        """Return the command of a shell that stays with the JVM: signals reach both."""
        return ["sh", f"{layout.etc}/start"]

    @staticmethod
    def _settings(spec: TestSpec, node: NodePlan, nodes: Sequence[NodePlan]) -> dict[str, Any]:
        chosen = properties.chosen(spec.properties, node, spec.policy, [peer.name for peer in nodes])
        return configuration.settings(chosen, spec.policy)
