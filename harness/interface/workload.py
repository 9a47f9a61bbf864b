"""What clients do, and what they are given."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from harness.interface.dialect import Dialect
from harness.interface.network import Address
from harness.interface.plan import NodePlan, TestSpec
from harness.interface.recorder import Recorder


class Workload(Protocol):
    """What clients do, and what they promise to record.

    ``run`` drives load until ``context.stopping`` is set, then returns promptly with every
    operation completed (``info`` where unknown). ``drain`` consumes what is left on every broker
    until nothing has arrived for the quiet period. Both record through ``context.recorder`` only.
    """

    name: str

    def lacks(self, dialect: Dialect) -> str:
        """What brokers that speak so have not and it cannot do without; "" if nothing."""
        ...

    def answered(self) -> Mapping[tuple[str, str], bool]:
        """Of each subscription (topic, name) whether brokers have said that it is there, or gone.

        When nobody asks for anything any more; what is in doubt is left out.
        """
        ...

    async def run(self, context: WorkloadContext) -> None:
        """Load the cluster until ``context.stopping`` is set."""
        ...

    async def drain(self, context: WorkloadContext) -> None:
        """Consume what is left, after everything was healed."""
        ...


class WorkloadContext(msgspec.Struct, kw_only=True):
    """What a workload may touch."""

    spec: TestSpec
    recorder: Recorder
    dialect: Dialect
    random: random.Random
    nodes: tuple[NodePlan, ...]
    zones: tuple[str, ...]
    resolve: Callable[[str, str], Address]
    """(zone, node name) -> where a client of that zone reaches that node's STOMP port."""
    stopping: Any  # asyncio.Event, set when the load must end
    zero_ms: int = 0
    """The moment at which the history began, in milliseconds since the epoch."""
    redelivery_s: float = 0.0
    """How long at most what was given back waits until it is delivered again."""
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """ok / fail / info totals of sends and acknowledgements, and "deliver", for the live display
    and to see a recovery: a broker that takes subscriptions and no message has not recovered.
    """
