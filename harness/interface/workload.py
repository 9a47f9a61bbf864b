"""The workload: what clients do, and the context that they get."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import msgspec

from harness.interface.dialect import Dialect
from harness.interface.network import Address
from harness.interface.plan import NodePlan
from harness.interface.recorder import Recorder
from harness.interface.spec import TestSpec


class Workload(Protocol):
    """A workload: what clients do, and what they promise to record.

    ``run`` drives load until ``context.stopping`` is set, then returns promptly with every
    operation completed (``info`` where unknown). ``drain`` consumes what is left on every broker
    until nothing has arrived for the quiet period. Both record through ``context.recorder`` only.
    """

    name: str

    def lacks(self, dialect: Dialect) -> str:
        """Return what the workload needs and brokers of this dialect lack; "" if nothing."""
        ...

    def answered(self) -> Mapping[tuple[str, str], bool]:
        """Return for subscriptions (topic, name) whether brokers answered that they exist.

        False: brokers answered that it is gone. Asked when no client asks for anything any more;
        subscriptions in doubt are left out.
        """
        ...

    def answered_queues(self) -> Mapping[str, bool]:
        """Return for queues whether brokers answered an administrator that they exist.

        Asked as ``answered`` is; queues in doubt are left out. Only queues that all brokers have or
        lack together are claimed.
        """
        ...

    async def run(self, context: WorkloadContext) -> None:
        """Load the cluster until ``context.stopping`` is set."""
        ...

    async def drain(self, context: WorkloadContext) -> None:
        """Consume the rest of the messages, after everything was healed."""
        ...


class WorkloadContext(msgspec.Struct, kw_only=True):
    """Everything that a workload may use."""

    spec: TestSpec
    recorder: Recorder
    dialect: Dialect
    random: random.Random
    nodes: tuple[NodePlan, ...]
    zones: tuple[str, ...]
    resolve: Callable[[str, str], Address]
    """(zone, node name) -> where a client of that zone reaches that node's STOMP port."""
    stopping: Any  # asyncio.Event, set when the load must end
    administer: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]] | None = None
    """Gives a node's broker a command of an administrator, and returns its answer.

    Raises CommandRefusedError if the broker certainly changed nothing, otherwise OSError.
    """
    zero_ms: int = 0
    """The moment at which the history began, in milliseconds since the epoch."""
    redelivery_s: float = 0.0
    """The maximum time after which a message that was given back is delivered again."""
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """The totals of ok / fail / info of sends and acknowledgements, and "deliver".

    They are for the live display, and to see a recovery: a broker that takes subscriptions but no
    messages has not recovered.
    """
    suspended_s: float = 0.0
    """The seconds for which brokers refuse all clients at first, because another is to start."""
    joining: AbstractSet[str] = frozenset()
    """The nodes that are started during the load."""
    departed: AbstractSet[str] = frozenset()
    """The nodes that have left for good, at which the drain has no consumers."""
