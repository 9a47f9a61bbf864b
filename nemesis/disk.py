"""Faults of disks: disk-slow, disk-stall, disk-full, disk-error, disk-corrupt and power-loss.

The first four are leases; disk-corrupt and power-loss end the broker.

Why bits are flipped under a stopped broker: a running broker reads hardly anything back. So damage
shows only when it starts, and a fault that cannot show proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from harness.interface import Fault, NodePlan, UsageError
from nemesis.kind import PAIR, Injection, Option, number, one_of, truth
from nemesis.node import Kill, NodeKind

DISK: Final = "disk"
ENDED_BY_ITSELF: Final = "a broker that ends itself leaves its pair to a restart in any order (RP13)"


class DiskKind(NodeKind):
    """A kind of fault of disks."""

    part = DISK


class DiskSlow(DiskKind):
    """A slow disk, as an overloaded array or a failing head makes it."""

    name = "disk-slow"
    description = "syncs and changes of directories take longer"
    slows = lasts = mild = True
    primitives = ("disk-slow",)
    seen_as = ("slow", "stalled")
    """A disk that is slower than the patience of the probe looks like one that stalls."""

    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "delay_ms": Option("added to each", number(0, above=True), 50.0, drawn=(5.0, 50.0, 300.0)),
        "jitter_ms": Option("varies the delay, 0 by default", number(0), drawn=(0.0, 100.0)),
    }


class DiskStall(DiskKind):
    """A disk that does not answer, as after a hung mount or in a multipath fail-over."""

    name = "disk-stall"
    description = "syncs and changes of directories hang until the fault ends"
    wants_quorum = "fewer than three pairs cannot tell a silent peer from a dead one (RP4)"
    primitives = ("disk-stall",)
    seen_as = "stalled"


class DiskFull(DiskKind):
    """A full disk (ENOSPC)."""

    name = "disk-full"
    description = "writes are refused for lack of space"
    ends = True
    unpromised = ENDED_BY_ITSELF
    primitives = ("disk-full",)
    seen_as = "full"


class DiskError(DiskKind):
    """A disk that fails (EIO).

    Data whose sync failed are not on the disk, even if a later sync succeeds.
    """

    name = "disk-error"
    description = "writes or syncs fail"
    ends = True
    unpromised = ENDED_BY_ITSELF
    primitives = ("disk-error",)
    seen_as = "failing"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "operation": Option("what fails", one_of("write", "sync"), "sync", drawn=("write", "sync")),
    }


class DiskCorrupt(Kill):
    """Damaged data under a stopped broker.

    The broker must notice the damage, and never serve data that it cannot trust.
    """

    name = "disk-corrupt"
    description = (
        "broker processes die, and a file on the disk of each is damaged (a bit flipped, the "
        "end cut off); they are started again at the end"
    )
    unpromised = "data that is damaged on its only copy is lost"
    options: ClassVar[Mapping[str, Option]] = {
        "pair": PAIR,
        "files": Option(
            'which may be hit, any by default: a pattern of names, "*.lock"',
            lambda value: "" if isinstance(value, str) and value else "a pattern of names",
        ),
        "cut": Option("whether a file loses its end instead of a bit its value, false by default", truth),
    }
    primitives = ("kill", "disk-corrupt")
    part = DISK
    default_target = "one"

    async def begin(self, injection: Injection) -> str | None:
        """Kill the brokers, then damage the disk of each."""
        await super().begin(injection)
        await injection.actions.environment.inject(
            "disk-corrupt", nodes=injection.impact.nodes, options=self.given(injection.fault)
        )
        return None

    def bit(self, before: Mapping[str, str], observed: Mapping[str, str]) -> bool:
        """Return whether every disk is damaged."""
        del before
        return bool(observed) and all(phrase.startswith("damaged") for phrase in observed.values())

    def healed(self, observed: Mapping[str, str]) -> bool:
        """Return whether anything was observed: the harness does not repair a disk.

        A broker may replace the damaged data.
        """
        return bool(observed)


class PowerLoss(Kill):
    """A crash of machines, which lose what was written and not synced.

    A killed process does not lose that.
    """

    name = "power-loss"
    description = "brokers and their machines die, and lose unsynced data; they are started again at the end"
    primitives = ("power-loss",)

    def validate(self, fault: Fault, nodes: Sequence[NodePlan]) -> None:
        """Check the fault as a Kill; it takes no shape."""
        super().validate(fault, nodes)
        if fault.shape is not None:
            raise UsageError(f'takes no shape, but has "{fault.shape}"')

    async def begin(self, injection: Injection) -> str | None:
        """Cut the power of all nodes at once, as if they shared one line."""
        actions, nodes = injection.actions, injection.impact.nodes
        actions.keep_down(injection.label, nodes)
        await asyncio.shield(actions.environment.inject("power-loss", nodes=nodes))
        return None
