"""The composer: it turns a spec into a test.

The parts are chosen by name and asked whether they fit together, before anything is started.

Why here and nowhere else: only the composer knows policy, workload, environment and nemesis. So
only the composer can say that one part cannot do what another needs, before the first process runs.
Raises UsageError for what the person must change and InfrastructureError for what the machine
lacks.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import psutil

import environments.registry
import nemesis.registry
import nemesis.schedule
import workloads.placement
import workloads.registry
from harness.interface import (
    NO_MASTER,
    Address,
    Cautioning,
    Chaining,
    Environment,
    InfrastructureError,
    InProcess,
    Installed,
    Mirroring,
    NodePlan,
    Portable,
    Released,
    Schedule,
    Selective,
    System,
    TestSpec,
    UsageError,
    Viewed,
    Workload,
)
from harness.report.summary import size
from harness.systems import equipment
from harness.systems import registry as systems
from harness.systems.given import check_home
from nemesis.hook import Hook
from nemesis.target import ROLE_TARGETS
from workloads.registry import MIXED, possible

_OF_THIS_MACHINE: Final = ("local", "docker")
"""The environments whose brokers use the memory of this machine."""


@dataclass(frozen=True, slots=True)
class Composition:
    """The parts of a test, chosen and checked.

    ``environment_reason`` says why this environment was chosen.
    """

    spec: TestSpec
    system: System
    nodes: tuple[NodePlan, ...]
    environment: Environment
    environment_reason: str
    workload: Workload
    schedule: Schedule
    given_schedule: str | None = field(default=None)
    """The file that the schedule came from; "" if the schedule was given without a file.

    None for a schedule made from the seed.
    """

    @property
    def brokers(self) -> tuple[NodePlan, ...]:
        """The nodes that run a broker; without the nodes that brokers only ask."""
        return tuple(node for node in self.nodes if node.broker)

    @property
    def pairs(self) -> Mapping[str, tuple[NodePlan, ...]]:
        """The brokers of each pair."""
        pairs: dict[str, tuple[NodePlan, ...]] = {}
        for node in self.brokers:
            pairs[node.pair] = (*pairs.get(node.pair, ()), node)
        return pairs

    @property
    def may_undo_changes(self) -> bool:
        """Whether a fault of the test may undo what brokers have confirmed."""
        return any(nemesis.registry.get(fault.kind).undoes for fault in self.schedule.faults)

    @property
    def warnings(self) -> Sequence[str]:
        """The lines that a person should read before the test; most tests have none."""
        lines = self.system.warnings(self.spec) if isinstance(self.system, Cautioning) else ()
        return [f"warning: {line}" for line in lines]

    def admin(self, node: str) -> Address:
        """Return the address at which the harness asks a broker, outside every partition."""
        return self.environment.resolve("admin", node, "admin")

    def check_deployed(self) -> None:
        """Raise InfrastructureError for a fault that the deployed machines cannot make.

        Why after the deployment: the kernel of a remote machine or of a container is not known
        before.
        """
        try:
            nemesis.schedule.validate(
                self.schedule, self.environment.supports(), self.nodes, tuple(self.system.events)
            )
        except UsageError as error:
            raise InfrastructureError(str(error)) from None

    @property
    def size(self) -> str:
        """The size of the cluster, in words."""
        return size(self.nodes)


def randomness(spec: TestSpec, purpose: str) -> random.Random:
    """Return a generator of random numbers for one purpose.

    Each purpose has its own generator: a part that draws more does not change another's choices.
    """
    return random.Random(f"{spec.seed}:{purpose}")


def place(
    system: System, name: str, hosts: Sequence[str] = (), attached: Mapping[str, Any] | None = None
) -> tuple[Environment, str]:
    """Return the named environment, or one chosen for "auto", and a line that says which and why.

    ``attached`` describes the running cluster if the test is of one. Raises UsageError if the
    system's brokers cannot run in that environment.
    """
    if attached is not None:
        return environments.registry.attach(attached), "environment attached: --attach"
    environment, reason = environments.registry.choose(name, hosts)
    if environment.virtual and not isinstance(system, InProcess):
        raise UsageError(
            f"brokers of system {system.name} are real programs, which cannot run in virtual time: use "
            f"another --environment"
        )
    if isinstance(system, Installed) and (problem := system.unplaced(environment.name)):
        if name != "auto":
            raise UsageError(f"--environment {name}: {problem}")
        if at_hand := system.unplaced("local"):
            raise UsageError(f"system {system.name}: {at_hand}")
        environment, reason = environments.registry.create("local"), f"environment local: {problem}"
    return environment, reason


def _room(brokers: int, memory_mb: int) -> None:
    """Raise UsageError if this machine has too little free memory for so many brokers."""
    free_mb = psutil.virtual_memory().available >> 20
    if free_mb < brokers * memory_mb:
        raise UsageError(
            f"{brokers} brokers need {brokers * memory_mb} MB of memory, but only {free_mb} MB are free "
            f"here: use fewer (--pairs) or smaller ones"
        )


def _check_targets(untold: Collection[str], schedule: Schedule) -> None:
    """Raise UsageError for a fault that is aimed at a role if brokers cannot be asked for roles."""
    for fault in schedule.faults:
        target = fault.target or nemesis.registry.get(fault.kind).default_target
        if "roles" in untold and target in ROLE_TARGETS:
            raise UsageError(
                f"{fault.kind}: target {target} needs the roles of the brokers, which this cluster does "
                f"not tell: give --target one, or names of nodes"
            )


def compose(
    spec: TestSpec, schedule: Schedule | None = None, given_schedule: str | None = None
) -> Composition:
    """Choose and check the parts of a test.

    Args:
        spec: the test to compose; ``environment`` may be "auto".
        schedule: faults to be replayed instead of those that the seed gives.
        given_schedule: the file of these faults, for messages and for the line that repeats the
            run.
    """
    system = systems.of(spec)
    if spec.workload == MIXED:
        spec = msgspec.structs.replace(spec, workload=",".join(possible(system.dialect, spec.policy)))
    workload = workloads.registry.create(spec.workload)
    if lack := workload.lacks(system.dialect):
        raise UsageError(f"--workload {spec.workload}: brokers of system {system.name} have no {lack}")
    for unfit in workloads.registry.unfit(spec.workload, system.dialect, spec.policy):
        raise UsageError(
            f"--workload {unfit}: with policy {spec.policy} brokers of system {system.name} delete queues "
            "only at themselves: use another policy"
        )
    if spec.send_again and system.dialect.once_header is None:
        raise UsageError(
            f"--send-again: brokers of system {system.name} cannot recognise a repeated send by an ID"
        )
    if spec.close_groups and not system.dialect.closing:
        raise UsageError(f"--close-groups: brokers of system {system.name} cannot be asked to close a group")
    if spec.select_by_pair and "selectors" not in workloads.registry.parts(spec.workload):
        raise UsageError(
            "--select-by-pair: only the consumers of workload selectors select messages of queues"
        )
    if spec.share_topics and "subscriptions" not in workloads.registry.parts(spec.workload):
        raise UsageError("--share-topics: only the clients of workload subscriptions use topics")
    if spec.share_replies and "request-reply" not in workloads.registry.parts(spec.workload):
        raise UsageError("--share-replies: only the clients of workload request-reply ask for replies")
    if spec.change_selectors and not (system.dialect.topics and system.dialect.topics.remakes):
        raise UsageError(
            f"--change-selectors: brokers of system {system.name} cannot change the selector of a durable "
            f"subscription"
        )
    if spec.share_topics and not (system.dialect.topics and spec.policy in system.dialect.topics.shared_by):
        raise UsageError(
            f"--share-topics: each broker of system {system.name} with policy {spec.policy} has its own "
            "topics"
        )
    shared = system.dialect.temporaries.shared_by if system.dialect.temporaries else ()
    if spec.share_replies and spec.policy not in shared:
        raise UsageError(
            f"--share-replies: brokers of system {system.name} with policy {spec.policy} forward no replies"
        )
    if (spec.share_topics or spec.share_replies) and not workloads.placement.all_linked(spec):
        raise UsageError(
            f"--share-{'topics' if spec.share_topics else 'replies'}: brokers share topics and forward "
            f"replies where they are linked, and in a chain of {spec.pairs} pairs not all are"
        )
    if spec.compare_backups and not (isinstance(system, Mirroring) and spec.policy in system.mirrored):
        raise UsageError(
            f"--compare-backups: backups of system {system.name} with policy {spec.policy} have no copies of "
            "their own"
        )
    if spec.chain and not (isinstance(system, Chaining) and spec.policy in system.chained):
        raise UsageError(
            f"--chain: brokers of system {system.name} with policy {spec.policy} cannot form a chain"
        )
    if spec.watch_views and not isinstance(system, Viewed):
        raise UsageError(
            f"--watch-views: brokers of system {system.name} do not report what they believe about the "
            "cluster"
        )
    for name in spec.nemeses:
        nemesis.registry.get(name)
    nodes = system.plan(spec)
    if spec.master not in ("", NO_MASTER) and not any(node.master for node in nodes):
        names = [node.name for node in nodes]
        raise UsageError(
            f"--master {spec.master}: brokers of system {system.name} with policy {spec.policy} have no "
            "master broker"
            if spec.master in names
            else f"--master {spec.master}: no node of this test has that name: {', '.join(names)}"
        )
    workloads.placement.check(spec, nodes, workloads.registry.workloads_at_home(spec, system.dialect))
    if spec.environment == "attached" and spec.attached is None:
        raise UsageError("--environment attached: name the cluster by --attach FILE")
    environment, reason = place(system, spec.environment, spec.hosts, spec.attached)
    if spec.attached is None:
        check_home(system)
        if isinstance(system, Installed) and (missing := system.missing()):
            raise UsageError(f"system {system.name}: {missing}")
        if isinstance(system, Released):
            system.release = system.version()
    if isinstance(system, Portable) and environment.name in _OF_THIS_MACHINE:
        _room(len(nodes), system.provision(spec).memory_mb)
    refusal = environment.refuses(nodes) if isinstance(environment, Selective) else ""
    if refusal and spec.environment == "auto":
        environment, reason = environments.registry.create("local"), f"environment local: {refusal}"
    elif refusal:
        raise UsageError(f"--environment {spec.environment}: {refusal}")
    if schedule is None:
        schedule = nemesis.schedule.generate(spec, nodes, randomness(spec, "schedule"))
    if spec.attached is None and any(fault.kind == Hook.name for fault in schedule.faults):
        raise UsageError(f"{Hook.name}: {Hook.description}: give the file that has it")
    nemesis.schedule.validate(schedule, environment.supports(), nodes, tuple(system.events))
    if not environment.virtual:
        nodes = equipment.equip(spec, nodes, schedule)
        if isinstance(environment, Selective) and (refusal := environment.refuses(nodes)):
            raise UsageError(f"--environment {environment.name}: {refusal}")
    _check_targets(system.promises(spec).untold, schedule)
    for kind in dict.fromkeys(fault.kind for fault in schedule.faults):
        lack = nemesis.registry.get(kind).lacks(nodes)
        if lack:
            raise UsageError(f"{kind}: {lack}")
    return Composition(
        spec=spec,
        system=system,
        nodes=nodes,
        environment=environment,
        environment_reason=reason,
        workload=workload,
        schedule=schedule,
        given_schedule=given_schedule,
    )
