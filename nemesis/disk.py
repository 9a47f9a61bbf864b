"""Faults of disks: disk-slow, disk-stall, disk-full, disk-error as leases.

Disk-corrupt and power-loss, which end the broker.

Why bits are flipped under a stopped broker: one that runs reads hardly anything back, so damage
shows when it starts, and a fault that cannot show proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from harness.interface import Fault, NodePlan, UsageError
from nemesis.kind import PAIR, FaultActions, Impact, Option, Situation, number, one_of, truth
from nemesis.node import Kill, NodeKind
from nemesis.target import resolve_target

DISK: Final = "disk"
ENDED_BY_ITSELF: Final = "a broker that ends itself leaves its pair to a restart in any order (RP13)"


class LeasedPart(NodeKind):
    """A lease on a part of nodes: their disks, their clocks.

    Being probed, that part says a word of ``seen_as``.
    """

    part: ClassVar[str]
    seen_as: ClassVar[str | tuple[str, ...]]

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """The nodes of the target, and which part of them is to be looked at."""
        nodes = resolve_target(fault, self.default_target, situation)
        return Impact(", ".join(nodes), nodes=nodes, part=self.part)

    def given(self, fault: Fault) -> dict[str, Any]:
        """What the environment is told beside the nodes."""
        said = {name: value for name, value in fault.options.items() if name != "pair"}
        unsaid = {name: option.default for name, option in self.options.items() if option.default is not None}
        return {**unsaid, **said}

    async def begin(self, label: str, fault: Fault, impact: Impact, actions: FaultActions) -> str | None:
        """Inject it as one lease."""
        del label
        return await actions.environment.inject(
            self.primitives[0], nodes=impact.nodes, options=self.given(fault)
        )

    async def end(self, label: str, impact: Impact, lease: str | None, actions: FaultActions) -> None:
        """Heal the lease."""
        del label, impact
        if lease is not None:
            await actions.environment.heal(lease)

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Every one shows it."""
        del before
        return bool(observed) and all(phrase.startswith(self.seen_as) for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """None shows it any more."""
        return not any(phrase.startswith(self.seen_as) for phrase in observed.values())


class DiskSlow(LeasedPart):
    """A disk that takes its time: an overloaded array, a failing head."""

    name = "disk-slow"
    description = "syncs and changes of directories take longer"
    slows = lasts = mild = True
    primitives = ("disk-slow",)
    part = DISK
    seen_as = ("slow", "stalled")
    """One that is slower than the patience of who looks cannot be told from one that stalls."""

    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "delay_ms": Option("added to each", number(0, above=True), 50.0, drawn=(5.0, 50.0, 300.0)),
        "jitter_ms": Option("varies the delay, 0 by default", number(0), drawn=(0.0, 100.0)),
    }


class DiskStall(LeasedPart):
    """A disk that does not answer: a hung mount, a multipath fail-over."""

    name = "disk-stall"
    description = "syncs and changes of directories do not end until the fault does"
    wants_quorum = "fewer than three pairs cannot tell a silent peer from a dead one (RP4)"
    primitives = ("disk-stall",)
    part = DISK
    seen_as = "stalled"


class DiskFull(LeasedPart):
    """No space left (ENOSPC)."""

    name = "disk-full"
    description = "writes are refused for lack of space"
    ends = True
    unpromised = ENDED_BY_ITSELF
    primitives = ("disk-full",)
    part = DISK
    seen_as = "full"


class DiskError(LeasedPart):
    """The kernel gives up on the device (EIO).

    What a failed sync held is not on the disk, whatever a later one says.
    """

    name = "disk-error"
    description = "writes or syncs fail"
    ends = True
    unpromised = ENDED_BY_ITSELF
    primitives = ("disk-error",)
    part = DISK
    seen_as = "failing"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "operation": Option("what fails", one_of("write", "sync"), "sync", drawn=("write", "sync")),
    }


class DiskCorrupt(Kill):
    """Data that rot under a stopped broker.

    It must notice them, and never serve what it cannot trust.
    """

    name = "disk-corrupt"
    description = (
        "broker processes die, and what each had on its disk is damaged: a bit flipped, a "
        "file cut; started again at the end"
    )
    unpromised = "what rots on the only copy is gone"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "files": Option(
            'which may be hit, any by default: a pattern of names, "*.lock"',
            lambda value: "" if isinstance(value, str) and value else "a pattern of names",
        ),
        "cut": Option("whether a file loses its end instead of a bit its value, false by default", truth),
    }
    primitives = ("kill", "disk-corrupt")
    default_target = "one"

    def plan(self, fault: Fault, situation: Situation) -> Impact:
        """The nodes of the target; their disks are looked at."""
        nodes = resolve_target(fault, self.default_target, situation)
        return Impact(", ".join(nodes), nodes=nodes, part=DISK)

    async def begin(self, label: str, fault: Fault, impact: Impact, actions: FaultActions) -> str | None:
        """Kill them, then damage each disk."""
        await super().begin(label, fault, impact, actions)
        given = {name: value for name, value in fault.options.items() if name != "pair"}
        await actions.environment.inject("disk-corrupt", nodes=impact.nodes, options=given)
        return None

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Every disk is damaged."""
        del before
        return bool(observed) and all(phrase.startswith("damaged") for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Nothing mends a disk.

        What was damaged may be replaced by the broker, and that is its affair.
        """
        return bool(observed)


class PowerLoss(Kill):
    """A crash of machines: unlike a killed process, they lose what was written and not synced."""

    name = "power-loss"
    description = "brokers die with their machines, which lose what was not synced; started again at the end"
    primitives = ("power-loss",)

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """As Kill's; there is nothing to choose but the target."""
        super().validate(fault, nodes)
        if fault.shape is not None:
            raise UsageError(f'takes no shape, but has "{fault.shape}"')

    async def begin(self, label: str, fault: Fault, impact: Impact, actions: FaultActions) -> str | None:
        """All at once: one power line."""
        del fault
        for node in impact.nodes:
            actions.down.setdefault(node, set()).add(label)
        await asyncio.shield(actions.environment.inject("power-loss", nodes=impact.nodes))
        return None
