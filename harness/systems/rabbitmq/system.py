"""RabbitMQ as a system under test: its cluster, its dialect, and what it promises."""

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
from harness.systems.rabbitmq import configuration, distribution, properties
from harness.systems.rabbitmq.events import EVENTS
from harness.systems.rabbitmq.management import BETWEEN, GROUP, Management, arguments
from harness.systems.release import numbers, warnings
from workloads.registry import grouped, refusing, topics_of

QUORUM_QUEUES: Final = "quorum-queues"
_NODE_MB: Final = 250
_DESTROY: Final = "destroy"
_STAY_ALONE: Final = ((4, 0), (4, 2))
"""The releases, without the last, in which a node that lost its disk starts a cluster of its own.

Since 4.2 the metadata of a new cluster is not in Mnesia but in Khepri.
"""


class RabbitmqSystem(Management):
    """``harness.interface.System`` for nodes of a distribution that the person has installed."""

    name = "rabbitmq"
    summary = "RabbitMQ 3.10 to 4.3: quorum queues over STOMP"
    policies: Mapping[str, PolicySummary] = {
        QUORUM_QUEUES: PolicySummary(
            description="nodes of one cluster; a majority of each queue's members decides",
            traits=("members",),
        ),
    }
    patience = Patience(start_s=150.0, settle_s=60.0, silence_s=2.0, vacancy_s=30.0, restart_s=60.0)
    events = EVENTS
    made_secrets = ("passcode", "admin")

    def __init__(self) -> None:
        super().__init__()
        self.dialect = Dialect(
            wishes=Wishes(expires="expiration", lasts=True),
            login=configuration.USER,
            passcode=self.password,
            virtual_host="/",
            queue="/amq/queue/{}",
            durable={"persistent": "true"},
            group_header=GROUP,
            count_header="x-delivery-count",
            first_count=None,
            heart_beat_s=1.0,
            silent_beats=1.9,  # it gives a client up after two beats
            connect_s=2.0,
            unnoticed_s=8.0,
            topics=Topics(
                send={"persistent": "true"},
                # Several clients can share one. But if two make it at once, neither succeeds,
                # and a queue without a process is left ("cluster_not_formed", 3.10).
                durable={
                    "id": "{}",
                    "durable": "true",
                    "auto-delete": "false",
                    "x-queue-type": "quorum",
                    "x-queue-name": "{topic}" + BETWEEN + "{}",
                },
                drops="with-consumer",
                selector=None,
            ),
        )

    def promises(self, spec: TestSpec) -> Promises:
        """Return what RabbitMQ promises: all that a quorum queue can for a send, no durable ack.

        A send is answered when the queue has confirmed it. An ack is answered when the STOMP
        adapter has read it, before the queue learns of it, and independently of its deliveries.

        RabbitMQ knows nothing of groups: only a queue with one active consumer keeps them together.
        A refused message goes "to the back of the queue if no delivery-limit is set" (manual,
        Quorum Queues). So no order is promised to consumers that refuse.

        A message that is given back more often than its delivery limit says is dropped
        (``return_one`` of ``rabbit_fifo``), whatever gave it back. Since 4.0 every queue has a
        limit unless it is declared with -1; those of subscriptions, which the STOMP adapter
        declares, have the usual one. Of an unknown release a limit may be there, and may not.
        """
        release = numbers(self.release)
        queue_arguments = arguments(spec, spec.pairs, release)
        limit = properties.delivery_limit(queue_arguments, release)
        newer = release or properties.LIMITED
        limits = [properties.delivery_limit(queue_arguments, newer)]
        if topics_of(spec):
            limits.append(properties.delivery_limit({}, newer))
        attempts = [returns + 1 for returns in limits if returns is not None]
        waits = [properties.chosen(spec.properties, node).get(properties.TIMEOUT) for node in self.plan(spec)]
        waits_ms = [wait for wait in waits if wait is not None]
        in_order = queue_arguments["x-single-active-consumer"] and (
            limit is not None or not refusing(spec.workload)
        )
        return Promises(
            nack="requeue",
            groups=not grouped(spec.workload) or in_order,
            delivery_attempts=min(attempts, default=-1),
            attempts="given back",
            keeps_dead_letters=False,
            durable_acks=False,
            refuses_stale_acks=False,
            ack_wait_s=min(waits_ms) / 1000 if waits_ms else None,
            answers_in_order=False,
            atomic=False,  # "closer to providing a 'batching' feature" (Broker Semantics, tx)
            independent_pairs=False,  # a majority of the nodes of a queue decides
        )

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """Return nodes a1, b1, c1 ...: each serves all clients. Raises UsageError."""
        nodes = tuple(
            NodePlan(
                name=f"{letter}1",
                pair=letter,
                configured="member",
                ports=dict(configuration.PORTS),
                announced=("cluster",),
            )
            for letter in string.ascii_lowercase[: spec.pairs]
        )
        names = ["*", *(node.name for node in nodes)]
        for name in spec.properties:
            if name not in names:
                raise UsageError(f'--set: no node "{name}" in this test: {near(name, names)}')
        for node in nodes:
            properties.chosen(spec.properties, node)
        return nodes

    def lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """Return the nodes that do not serve, and those that lack a member of a queue."""
        missing = {
            node.name: f"{node.name} does not serve"
            for node in nodes
            if node.name not in statuses or not statuses[node.name].serves
        }
        for status in statuses.values():
            for queue in status.details["queues"]:
                online = queue.get("online") or ()  # 4.0 may say null
                for member in {*(queue.get("members") or ())} - {*online}:
                    name = member.partition("@")[0]
                    missing.setdefault(name, f"{queue['name']} has no member on {name}")
        return missing

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
        return distribution.find_distribution().version

    def warnings(self, spec: TestSpec) -> Sequence[str]:
        """Return that the release is untried, and what settings and faults do not do in it."""
        version = distribution.find_distribution().version
        assigned = {(node, name) for node, values in spec.properties.items() for name in values}
        untried = warnings("RabbitMQ", version, distribution.TRIED)
        without_effect = [
            f"--set {node}:{name}: it has no effect {releases}, and {version} is not given it"
            for node, name in sorted(assigned)
            if (releases := properties.releases_without_effect(name, numbers(version)))
        ]
        rejoining = ""
        if _DESTROY in spec.nemeses and _STAY_ALONE[0] <= numbers(version) < _STAY_ALONE[1]:
            rejoining = (
                f"{_DESTROY}: a node of RabbitMQ {version} that lost its disk does not join its cluster "
                "again before rabbitmqctl forget_cluster_node: the verdict is mostly unknown"
            )
        return [*untried, *filter(None, [rejoining]), *without_effect]

    def unplaced(self, environment: str) -> str:
        """Return "": the distribution that is found here is brought to any environment."""
        del environment
        return ""

    def provision(self, spec: TestSpec) -> Provision:
        """Return what a machine must be given: the distribution, libraries and memory."""
        del spec
        installed = distribution.find_distribution()
        return Provision(
            directories={
                distribution.SERVER: str(installed.server),
                distribution.ERLANG: str(installed.erlang),
            },
            files={f"{distribution.LIBRARIES}/{name}": path for name, path in installed.libraries().items()},
            leave_out=("*/src/*", "*/include/*", "*/examples/*"),
            memory_mb=_NODE_MB,
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
        """Return the files of a node; all nodes must have the announced distribution port."""
        installed = distribution.find_distribution()
        libraries = layout.homes.get(distribution.LIBRARIES)
        loading = installed.loading
        if libraries is not None:
            loading = distribution.loading(f"{libraries}/{next(iter(installed.libraries()))}")
        return configuration.files(
            spec.properties,
            node,
            nodes,
            layout,
            listen,
            hosts,
            str(installed.runtime.relative_to(installed.erlang)),
            release=numbers(installed.version),
            loading=loading,
            cookie=self.cookie,
            password=self.password,
        )

    def command(self, layout: Layout) -> list[str]:
        """Return the command of a shell that becomes the virtual machine: signals reach it."""
        return ["sh", f"{layout.etc}/start"]
