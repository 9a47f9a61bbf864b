"""The environment: where brokers run, and what can be broken there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from harness.interface.network import Address, Link
from harness.interface.plan import NodePlan
from harness.interface.spec import TestSpec
from harness.interface.status import Status
from harness.interface.system import System

T = TypeVar("T")

DataEdit = Callable[[Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]
"""A function that returns new files for given ones, both by path."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect that was observed after a fault was injected: the proof that it bit.

    ``bit`` is True only if a probe saw the effect. ``observed`` has one short phrase per probe, for
    the history.
    """

    bit: bool
    observed: dict[str, str]


class Environment(Protocol):
    """A place in which brokers run, and in which faults can be injected.

    Faults are leases: an injected fault is healed *on the node* when ``lease_s`` passes without
    ``renew``, so that a killed harness leaves nothing broken. ``supports`` maps each fault
    primitive to "" (can) or the reason it cannot. Primitives: "cut" "reset" "slow" "stall"
    "datagram-loss" "datagram-duplicate" "datagram-reorder" (links), "pause" "kill" "stop"
    "destroy-data" "copy-data" "edit-data" "power-loss" (nodes), "disk-slow" "disk-stall"
    "disk-full" "disk-error" "disk-corrupt" (their disks), "clock-skew" "clock-step" "clock-rate"
    "clock-strobe" (their clocks), "nfs-stall" "nfs-disconnect" "nfs-restart" (their shared
    directories), "database-stall" "database-restart" "database-disconnect" (their database).
    """

    name: str
    zones: tuple[str, ...]

    virtual: bool
    """Whether the environment has a time of its own.

    ``execute`` then uses a loop of its own, without threads and without the machine's clock.
    """

    async def execute(self, main: Callable[[], Coroutine[Any, Any, T]], *, seed: int) -> T:
        """Run a test's own coroutine to its end on the loop that this environment needs.

        That is the running loop, or one that the environment makes. ``seed`` decides all chance
        within the environment itself. A cancellation of this call cancels ``main`` and waits for
        it.
        """
        ...

    def clock_ns(self) -> int:
        """Return the clock that stamps a history: monotonic; virtual if time is."""
        ...

    def supports(self) -> Mapping[str, str]:
        """Return each fault primitive with "", or with the reason why it cannot be injected."""
        ...

    async def deploy(
        self, system: System, spec: TestSpec, nodes: Sequence[NodePlan], directory: Path
    ) -> None:
        """Create what the nodes need (processes' directories, containers, networks, proxies).

        Start nothing yet.
        """
        ...

    def resolve(self, source: str, node: str, port: str) -> Address:
        """Return the address at which ``source`` reaches a node's logical port.

        ``source`` is a node, a zone, or "admin" for the harness itself, outside every partition.
        """
        ...

    async def start(self, node: str) -> None:
        """Start the broker of a node; returns when the process runs, not when it is ready."""
        ...

    async def wait_exit(self, node: str) -> int | None:
        """Wait until the node's broker process has ended; return its exit status.

        Negative for a signal's number, None if it never ran.
        """
        ...

    async def running(self, node: str) -> bool:
        """Return whether the broker process exists (a paused one does)."""
        ...

    async def kill(self, node: str) -> None:
        """End the broker without any clean-up (SIGKILL)."""
        ...

    async def terminate(self, node: str) -> None:
        """Ask the broker's processes to end (SIGTERM) without waiting; do nothing if none runs."""
        ...

    async def destroy_data(self, node: str) -> None:
        """Remove a stopped node's own data from its disk; a store shared with others stays.

        Raises UsageError while its broker runs: that would be another fault.
        """
        ...

    async def copy_data(self, source: str, node: str) -> None:
        """Replace a stopped node's own data by a copy of those of another stopped node.

        Raises UsageError while one of the two runs. An environment that cannot do it says so in
        ``supports``, by the primitive "copy-data".
        """
        ...

    async def edit_data(self, node: str, edit: DataEdit) -> None:
        """Replace the files of a stopped node's own data, by path, by what ``edit`` makes of them.

        Raises UsageError while its broker runs. An environment that cannot do it says so in
        ``supports``, by the primitive "edit-data".
        """
        ...

    async def inject(
        self,
        primitive: str,
        *,
        links: Sequence[Link] = (),
        nodes: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a fault on directed links or nodes; return its lease, to be renewed and healed.

        Raises UsageError for a fault that makes no sense, InfrastructureError for one that cannot
        be injected here; no fault is in force then.
        """
        ...

    async def renew(self, lease: str) -> None:
        """Keep a fault in force for another lease; raise InfrastructureError if it has ended."""
        ...

    async def heal(self, lease: str) -> None:
        """End one fault; do nothing if it has healed already."""
        ...

    async def heal_all(self) -> None:
        """End every fault of this deployment."""
        ...

    async def probe(self, links: Sequence[Link] = (), nodes: Sequence[str] = ()) -> Effect:
        """Observe links and nodes from outside the broker.

        Links: "open", "lost", "slow 120 ms", "refused". Nodes: "running", "paused", "gone". ``bit``
        is False here; the nemesis decides.

        "a1/disk", "a1/clock" and "a1/store" among ``nodes`` are those parts of a node, if faults of
        them can be injected. Disks: "sound", "slow 20 ms", "stalled", "full", "failing sync",
        "damaged <where>". Clocks: "true", "skewed 60000 ms", "rate 1.5". Stores: "answers",
        "silent", "in grace".
        """
        ...

    async def reconfigure(self, node: str, configured: str) -> None:
        """Give a node the files of another role ("master", "slave").

        Its broker reads them at its next start.
        """
        ...

    async def log_lines(self, node: str, position: int | None) -> tuple[Sequence[str], int]:
        """Wait until the node's broker has logged whole lines after ``position``.

        Returns those lines, and the position after them. If ``position`` is None, returns no lines,
        and the present position.
        """
        ...

    async def collect(self, destination: Path) -> None:
        """Copy every node's logs to ``destination/<node>/``."""
        ...

    async def teardown(self) -> None:
        """Remove everything this deployment created, broken or not."""
        ...


@runtime_checkable
class Selective(Protocol):
    """An environment that cannot deploy every cluster."""

    def refuses(self, nodes: Sequence[NodePlan]) -> str:
        """Return why it cannot deploy this cluster, and which environment can; "" if it can."""
        ...


@runtime_checkable
class WithServices(Protocol):
    """An environment that has more than brokers and links.

    Once it is deployed, it describes what else it has.
    """

    def describe_services(self) -> dict[str, str]:
        """Return each auxiliary service and what was really deployed, for the report.

        "store-a" -> "NFSv4 through FUSE, lease 4 s".
        """
        ...


@runtime_checkable
class Telling(Protocol):
    """An environment that reports what takes time: a first image takes half a minute."""

    tell: Callable[[str], None]


@runtime_checkable
class Observer(Protocol):
    """An environment whose brokers live in this very process.

    Their roles can be observed without a request over a network.
    """

    def look(self, node: str) -> Status:
        """Return what the broker would answer now.

        Raises OSError if it would refuse, TimeoutError if it would keep silent.
        """
        ...
