"""The system under test."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from checkers.verdict import Promises
from harness.interface.in_process import Disk, Outside
from harness.interface.network import Address
from harness.interface.plan import NodePlan, TestSpec
from harness.interface.status import Status
from harness.interface.workload import Dialect


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Directories of one node *as its broker process sees them*."""

    etc: str
    data: str
    logs: str


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message found in a broker's store when the test looks into it at the end.

    ``store`` is "main", "dead-letter" or "store-and-forward"; ``queue`` is where it is meant to go,
    ``group`` what its header says; ``body`` is what was stored; of a large message only the
    beginning, and then ``digest`` is the CRC-32C of all of it, or ``cut`` says that nobody knows
    it.
    """

    store: str
    queue: str
    group: str | None
    body: bytes
    digest: int | None = None
    cut: bool = False


class Event(NamedTuple):
    """Something that brokers tell of in their logs: what it means, and how a line says so.

    Of each of ``needs`` one at least must be there for it to happen at all: traits of a cluster
    (``harness.history.coverage``), or kinds of faults.
    """

    meaning: str
    line: re.Pattern[str]
    needs: tuple[tuple[str, ...], ...] = ()


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in one line.

    ``variants`` are properties of a spec with which its brokers have other things that can break.
    """

    description: str
    variants: tuple[dict[str, dict[str, Any]], ...] = ()


class System(Protocol):
    """A broker that can be tested.

    Ours is the first; nothing outside its folder and ``broker/`` may assume it is the only one.
    """

    name: str
    summary: str
    dialect: Dialect
    policies: Mapping[str, PolicySummary]
    events: Mapping[
        str, Event
    ]  # what its brokers' logs tell of: for faults that wait, and for what a campaign never saw

    def promises(self, spec: TestSpec) -> Promises:
        """What acknowledgements and refusals mean in its dialect, configured as the spec asks."""
        ...

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """The nodes of the cluster that the spec asks for.

        Raises UsageError for what the policy cannot be.
        """
        ...

    def drawn(self, spec: TestSpec, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Property of every node -> the values that a search draws from."""
        ...

    def files(
        self,
        spec: TestSpec,
        node: NodePlan,
        nodes: Sequence[NodePlan],
        layout: Layout,
        listen: Mapping[str, Address],
        hosts: Mapping[str, Address],
    ) -> dict[str, bytes]:
        """Configuration files (name -> content) for one node's ``etc``.

        ``listen`` maps logical ports to where this node must listen; ``hosts`` maps each other
        node's announced "name:port" to where *this* node reaches it.
        """
        ...

    def command(self, layout: Layout) -> list[str]:
        """The argument vector that runs the broker in the foreground.

        ``python`` as first word is the node's interpreter.
        """
        ...

    def disk(self) -> Disk:
        """An empty disk of our making for one broker.

        Raises InfrastructureError for a system that cannot run in this process.
        """
        ...

    async def serve(self, files: Mapping[str, bytes], outside: Outside) -> int:
        """Run the broker in this process, on the running loop, until its end; its exit status.

        ``files`` are those of ``files``.
        """
        ...

    async def status(self, admin: Address) -> Status:
        """Ask a running broker.

        Raises OSError when nothing answers, TimeoutError when it stays silent.
        """
        ...

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """All messages in all stores of a live broker."""
        ...

    async def views(self, admin: Address) -> Mapping[str, Mapping[str, str]]:
        """What a live broker takes for true of the cluster: kind -> key -> value.

        Without the kinds of which brokers need not agree or that it cannot tell.
        """
        ...

    async def stop(self, admin: Address, *, failover: bool | None = None) -> None:
        """Ask for a clean stop; returns when the broker has accepted it."""
        ...
