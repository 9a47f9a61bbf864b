"""Faults of nodes: kill, pause, stop, destroy, late-start.

Faults overlap: a node that two faults keep down starts when the last one ends. A fault claims an
effect only on nodes that were running before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from harness.interface import Fault, InfrastructureError, NodePlan, UsageError
from nemesis.kind import (
    PAIR,
    CannotBeginError,
    FaultActions,
    Impact,
    Injection,
    Kind,
    Option,
    Situation,
    one_of,
    some_names,
    some_text,
    truth,
)
from nemesis.target import TARGETS, names_in, resolve_target, validate_target

STOP_PATIENCE_S: Final = 15.0
"""The seconds that a broker may take to stop before the fault is called without effect."""


class NodeKind(Kind):
    """A kind of fault of nodes, or of a part of each: their disks, their clocks."""

    targets = True
    options: ClassVar[Mapping[str, Option]] = {"pair": PAIR}
    default_target: ClassVar[str] = "live"
    part: ClassVar[str] = ""
    """The part of the nodes that probes look at, see ``Impact``."""

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault as a Kind does, and its target."""
        super().validate(fault, nodes)
        target = fault.target or self.default_target
        pair = fault.options.get("pair")
        if pair is not None and target not in TARGETS:
            raise UsageError(f'option "pair" and target "{target}": a name needs no pair')
        validate_target(target, nodes, pair)

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose the nodes of the target."""
        nodes = resolve_target(fault, self.default_target, situation)
        return Impact(", ".join(nodes), nodes=nodes, part=self.part)


class DownKind(NodeKind):
    """A kind of fault that takes processes down, or keeps them down; its end starts them."""

    stops = ends = True

    async def end(self, injection: Injection) -> None:
        """Start the nodes that no other fault keeps down."""
        await injection.actions.restart(injection.label, injection.impact.nodes)

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether every node is gone, and at least one was there before."""
        ended = any(before.get(node) not in (None, "gone") for node in observed)
        return ended and all(phrase == "gone" for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether every node runs."""
        return all(phrase == "running" for phrase in observed.values())


class Kill(DownKind):
    """The crash of processes: nothing that they held in memory survives."""

    name = "kill"
    description = "broker processes die by SIGKILL, and are started again at the end"
    primitives: ClassVar[tuple[str, ...]] = ("kill",)

    async def begin(self, injection: Injection) -> str | None:
        """Kill all nodes of the fault at once."""
        actions, nodes = injection.actions, injection.impact.nodes
        actions.keep_down(injection.label, nodes)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(actions.environment.kill(node))
        return None


class Destroy(Kill):
    """The loss of machines with their disks (RP11, RP12)."""

    name = "destroy"
    description = "broker processes die and lose their disks; they are started again, empty, at the end"
    unpromised = "a broker without a backup loses its messages with its disk (RP11)"
    primitives = ("kill", "destroy-data")
    default_target = "one"

    async def begin(self, injection: Injection) -> str | None:
        """Kill the nodes, then remove the data on their disks."""
        await super().begin(injection)
        async with asyncio.TaskGroup() as group:
            for node in injection.impact.nodes:
                group.create_task(injection.actions.environment.destroy_data(node))
        return None

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether every node is gone, and its disk with it; it may have been down before."""
        del before
        return bool(observed) and all(phrase == "gone" for phrase in observed.values())


class Stop(DownKind):
    """A planned shutdown, which fails over or not as ``failover-on-shutdown`` says."""

    name = "stop"
    description = "brokers are asked to stop cleanly, and are started again at the end"
    primitives = ("stop",)
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "failover": Option(
            "whether another takes over; the brokers' failover-on-shutdown by default",
            truth,
            drawn=(True, False),
        ),
    }

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return the values that a search draws from; none where brokers do not share a database.

        Without a shared database no broker may be left without a fail-over until its restart.
        """
        return super().drawn(nodes) if any(node.database for node in nodes) else {}

    async def begin(self, injection: Injection) -> str | None:
        """Ask all nodes to stop, then wait until they are gone."""
        actions, nodes = injection.actions, injection.impact.nodes
        failover = injection.fault.options.get("failover")
        running = [node for node, state in (await actions.states(nodes)).items() if state != "gone"]
        actions.keep_down(injection.label, nodes)
        async with asyncio.TaskGroup() as group:
            for node in running:
                group.create_task(self._stop(node, actions, failover))
        return None

    async def _stop(self, node: str, actions: FaultActions, failover: bool | None) -> None:
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self.ask(node, actions, failover)
                await actions.environment.wait_exit(node)
        except TimeoutError:
            raise InfrastructureError(
                f"{node} was asked to stop and still runs after {STOP_PATIENCE_S:g} s"
            ) from None

    async def ask(self, node: str, actions: FaultActions, failover: bool | None) -> None:
        """Ask a node to stop cleanly; it may take its time."""
        await actions.stop_cleanly(node, failover)


class Leave(Stop):
    """A planned shutdown of a broker that does not come back, as when a cluster shrinks.

    Its clients and its messages must do without it. It is started once more after the drain, so
    that the history shows what its store holds.
    """

    name = "leave"
    description = "brokers are asked to stop cleanly, and stay away until the queues are drained"
    unpromised = "a broker that leaves keeps the messages that it does not hand over"
    for_good = True

    def unpromised_in(self, nodes: Sequence[NodePlan]) -> str:
        """Return the reason as a Kind does; "" where others take over what the broker has."""
        brokers = [node for node in nodes if node.broker]
        is_taken_over = len(brokers) > 1 and all(node.database is not None for node in brokers)
        return "" if is_taken_over else self.unpromised

    def drawn(self, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return nothing to draw: without a fail-over, what the broker has is away for good."""
        del nodes
        return {}

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault; it has no duration, because it lasts to the end of the test."""
        super().validate(fault, nodes)
        if fault.duration_s is not None:
            raise UsageError("takes no duration: nodes that leave stay away to the end")


class LateStart(DownKind):
    """A broker that joins under load (RP2): the end of the fault starts it, not the harness."""

    name = "late-start"
    description = "nodes are started only at the end of the fault"
    primitives = ()
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "suspends": Option("nodes that may refuse all clients until these have started", some_names),
    }

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault; its target must be names, since no node has a role before the start."""
        if fault.target is None or fault.target in TARGETS:
            said = f'is "{fault.target}"' if fault.target else "is missing"
            raise UsageError(
                f"target {said}: it must name nodes, because no broker has a role before the start"
            )
        super().validate(fault, nodes)
        if fault.after is not None:
            raise UsageError("after: not possible, because the node is held back from the start")
        if fault.start_s != 0:
            raise UsageError(
                f"start-s is {fault.start_s:g}: it must be 0, the node is held back from the start"
            )
        others = {node.name for node in nodes if node.broker} - {*names_in(fault.target)}
        for name in fault.options.get("suspends", ()):
            if name not in others:
                raise UsageError(f'option "suspends": "{name}" must be the name of another node')

    async def begin(self, injection: Injection) -> str | None:
        """Keep the nodes down: they were never started."""
        injection.actions.keep_down(injection.label, injection.impact.nodes)
        return None

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether no node runs."""
        del before
        return all(phrase == "gone" for phrase in observed.values())


class Reconfigure(NodeKind):
    """The reconfiguration of a pair that is down, as an administrator does it.

    The slave that was live last becomes the master, so that it can be started first (RP17).

    This fault does not heal: the new configuration remains.
    """

    name = "reconfigure"
    description = "stopped brokers are configured as master or slave, which takes effect at their next start"
    unpromised = "an administrator reconfigures stopped brokers, in an order of his choice (RP17)"
    primitives = ()
    options: ClassVar[Mapping[str, Option]] = {
        "as": Option("what they are from then on; master by default", one_of("master", "slave"))
    }
    default_target = "backup"

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: brokers that are configured as master or slave."""
        if any(node.configured == "slave" for node in nodes):
            return ""
        return "only a live-backup pair has a master and a slave: use --policy replication"

    async def begin(self, injection: Injection) -> str | None:
        """Write the configuration files of the nodes."""
        actions = injection.actions
        for node, state in (await actions.states(injection.impact.nodes)).items():
            if state != "gone":
                raise InfrastructureError(
                    f"{node} is {state}: it reads its configuration only when it starts"
                )
            await actions.environment.reconfigure(node, injection.fault.options.get("as", "master"))
        return None

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether no node was running before."""
        return all(before.get(node) == "gone" for node in observed)

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether anything was observed: there is nothing to heal."""
        return bool(observed)


class CopyData(NodeKind):
    """The copying of a stopped broker's data files to another node (CL17).

    A document warns administrators of it: both brokers then have one node ID.

    This fault does not heal: the copy remains.
    """

    name = "copy-data"
    description = "a stopped node gets a copy of another stopped node's data, instead of its own"
    unpromised = "data files of a broker must not be copied to another one (CL17)"
    primitives = ("copy-data",)
    options: ClassVar[Mapping[str, Option]] = {
        "of": Option("the node whose data are copied; another one by default", some_text)
    }
    default_target = "one"

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault; the node that "of" names must exist and be another one."""
        super().validate(fault, nodes)
        source = fault.options.get("of")
        if source and (source not in [node.name for node in nodes] or source == fault.target):
            raise UsageError(f'option "of": "{source}" must be the name of another node')

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """Choose the node, and another one whose data it gets."""
        impact = super().plan(fault, situation)
        others = [name for name in situation.names if name not in impact.nodes]
        source = fault.options.get("of") or (situation.random.choice(others) if others else "")
        if source not in others:
            raise CannotBeginError(f"no other node has data to be copied to {', '.join(impact.nodes)}")
        return replace(impact, by=source)

    def lacks(self, nodes: Sequence[NodePlan]) -> str:
        """Return what the cluster lacks: nodes with data of their own."""
        if all(node.store is None and node.database is None for node in nodes):
            return ""
        return "the brokers share their data: use --policy standalone or replication"

    async def begin(self, injection: Injection) -> str | None:
        """Copy the data."""
        for node in injection.impact.nodes:
            await injection.actions.environment.copy_data(injection.impact.by, node)
        return None

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether the node was down, as it must be."""
        return all(before.get(node) == "gone" for node in observed)

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether anything was observed: there is nothing to heal."""
        return bool(observed)


class Pause(NodeKind):
    """Processes that stand still without noticing it.

    A garbage collection or a suspended machine does that (HA4).
    """

    name = "pause"
    description = "broker processes are paused (SIGSTOP), and continue at the end"
    primitives = ("pause",)

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether at least one node was running and stands still, and none runs."""
        stands = any(
            before.get(node) == "running" and phrase == "paused" for node, phrase in observed.items()
        )
        return stands and "running" not in observed.values()

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether no node stands still."""
        return "paused" not in observed.values()
