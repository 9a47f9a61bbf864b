"""Several workloads in one test: each with a share of the rate and of the clients.

A test names them with commas, and with a colon how much of the load each has: ``bank:2,queue``.
Each has queues and topics of its own, whose names begin with its name, so that what one is promised
does not depend on what another does; brokers and faults they share. They are drained together.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.interface import Dialect, TestSpec, WorkloadContext
from workloads.load import Load

Work = Callable[[Load, WorkloadContext], Coroutine[Any, Any, None]]
"""What one of them is to do, with its own context."""


@dataclass(frozen=True, slots=True)
class Share:
    """A workload and its part of the whole, ``weight`` of ``total``."""

    load: Load
    weight: int
    total: int

    def spec(self, whole: TestSpec) -> TestSpec:
        """What it is to do of a test; a client it has at least."""

        def part(count: int) -> int:
            return max(1, count * self.weight // self.total)

        return msgspec.structs.replace(
            whole,
            workload=self.load.name,
            rate=whole.rate * self.weight / self.total,
            producers=part(whole.producers),
            consumers=part(whole.consumers),
        )

    def context(self, whole: WorkloadContext) -> WorkloadContext:
        """Its own: chance that no other workload's choices change."""
        chance = random.Random(f"{whole.spec.seed}:workload:{self.load.name}")
        return msgspec.structs.replace(whole, spec=self.spec(whole.spec), random=chance)


class Mixture:
    """Workloads side by side; see ``harness.interface.Workload``."""

    def __init__(self, name: str, loads: Mapping[Load, int]) -> None:
        self.name = name
        total = sum(loads.values())
        self.shares = [Share(load, weight, total) for load, weight in loads.items()]

    def lacks(self, dialect: Dialect) -> str:
        """What the first of them that cannot be misses."""
        return next(filter(None, (share.load.lacks(dialect) for share in self.shares)), "")

    def answered(self) -> Mapping[tuple[str, str], bool]:
        """Of the subscriptions of all."""
        return {name: there for share in self.shares for name, there in share.load.answered().items()}

    async def run(self, context: WorkloadContext) -> None:
        """All of them, until all have stopped."""
        await self._all(context, lambda load, own: load.run(own))

    async def drain(self, context: WorkloadContext) -> None:
        """What is left of all of them."""
        await self._all(context, lambda load, own: load.drain(own))

    async def _all(self, context: WorkloadContext, work: Work) -> None:
        async with asyncio.TaskGroup() as group:
            for share in self.shares:
                group.create_task(work(share.load, share.context(context)))
