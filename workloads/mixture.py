"""Mixtures: several workloads in one test, each with a share of the rate and of the clients.

A test names the workloads with commas, and the weight of each with a colon: ``bank:2,queue``. Each
workload has queues and topics of its own, whose names begin with its name. So what brokers promise
to one does not depend on another. They share brokers and faults, and are drained together.
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
"""The work of one workload in its own context: to run, or to drain."""


@dataclass(frozen=True, slots=True)
class Share:
    """A workload and its share of the whole load, ``weight`` of ``total``."""

    load: Load
    weight: int
    total: int

    def spec(self, whole: TestSpec) -> TestSpec:
        """Return the workload's own spec: its share of the rate and of the clients.

        It has at least one producer and one consumer.
        """

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
        """Return the workload's own context, with random choices that no other workload changes."""
        chance = random.Random(f"{whole.spec.seed}:workload:{self.load.name}")
        return msgspec.structs.replace(whole, spec=self.spec(whole.spec), random=chance)


class Mixture:
    """A mixture of workloads that run at the same time; see ``harness.interface.Workload``."""

    def __init__(self, name: str, loads: Mapping[Load, int]) -> None:
        self.name = name
        total = sum(loads.values())
        self.shares = [Share(load, weight, total) for load, weight in loads.items()]

    def lacks(self, dialect: Dialect) -> str:
        """Return what brokers of a dialect lack for one of the workloads; "" if nothing."""
        return next(filter(None, (share.load.lacks(dialect) for share in self.shares)), "")

    def answered(self) -> Mapping[tuple[str, str], bool]:
        """Return for all workloads' subscriptions whether brokers answered that they exist."""
        return {name: there for share in self.shares for name, there in share.load.answered().items()}

    def answered_queues(self) -> Mapping[str, bool]:
        """Return for all workloads' queues whether brokers answered that they exist."""
        return {name: there for share in self.shares for name, there in share.load.answered_queues().items()}

    async def run(self, context: WorkloadContext) -> None:
        """Run all workloads until all have stopped."""
        await self._all(context, lambda load, own: load.run(own))

    async def drain(self, context: WorkloadContext) -> None:
        """Consume the rest of the messages of all workloads."""
        await self._all(context, lambda load, own: load.drain(own))

    async def _all(self, context: WorkloadContext, work: Work) -> None:
        async with asyncio.TaskGroup() as group:
            for share in self.shares:
                group.create_task(work(share.load, share.context(context)))
