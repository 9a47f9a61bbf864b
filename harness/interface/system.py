"""The system under test."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from checkers.verdict import Promises
from harness.interface.dialect import Dialect
from harness.interface.network import Address
from harness.interface.plan import NodePlan, TestSpec
from harness.interface.status import Status


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Directories of one node *as its broker process sees them*.

    ``homes`` are those of its system's ``Provision``, by their names: where they are there.
    """

    etc: str
    data: str
    logs: str
    homes: Mapping[str, str] = msgspec.field(default_factory=dict)


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A program that brokers need besides what the person has unpacked: Java, Erlang.

    ``program`` run with ``asks`` prints its release; the first number that ``release`` finds there
    must be ``least`` at least. ``package`` is Debian's that has it. No ``asks``: being there will
    do.
    """

    program: str
    package: str
    asks: tuple[str, ...] = ()
    release: str = r"(\d+)"
    least: int = 0

    def lack(self, said: str | None) -> str:
        """What is wrong with one that said this (None: it is not there); "" if nothing."""
        if said is None:
            return f"no {self.program}: on Debian, apt-get install {self.package}"
        found = re.search(self.release, said)
        have = int(found[1]) if found else 0
        if self.asks and have < self.least:
            what = f"release {have}" if found else "of an unknown release"
            return f"{self.program} is {what}, and must be {self.least} or later"
        return ""


class Provision(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine that has nothing of a system's must have for one broker.

    ``directories`` are those of *this* machine, by name; each is put there whole but for what
    matches one of ``leave_out`` (patterns of ``fnmatch`` for paths below it), and ``Layout.homes``
    says where. ``packages`` are further ones of Debian. ``memory_mb`` is what a broker takes.
    """

    runtimes: tuple[Runtime, ...] = ()
    packages: tuple[str, ...] = ()
    directories: Mapping[str, str] = msgspec.field(default_factory=dict)
    leave_out: tuple[str, ...] = ()
    memory_mb: int = 0


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message found in a broker's store when the test looks into it at the end.

    ``store`` is "main", "dead-letter", "expired" or "store-and-forward"; ``queue`` is where it is
    meant to go (a topic by its name in the history, and then ``subscription`` for whom it was
    kept), or, if ``origin`` is set, where it was before it died or expired; ``group`` what its
    header says; ``body`` is what was stored; of a large message only the beginning, and then
    ``digest`` is the CRC-32C of all of it, or ``cut`` says that nobody knows it.
    """

    store: str
    queue: str
    group: str | None
    body: bytes
    digest: int | None = None
    cut: bool = False
    subscription: str | None = None
    origin: bool = False


class Event(NamedTuple):
    """Something that brokers tell of in their logs: what it means, and how a line says so.

    Of each of ``needs`` one at least must be there for it to happen at all: traits of a cluster
    (``harness.history.coverage``), or kinds of faults. ``plays`` is the part (``nemesis.target``)
    that the broker is known to play from then on.
    """

    meaning: str
    line: re.Pattern[str]
    needs: tuple[tuple[str, ...], ...] = ()
    plays: str = ""


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in one line.

    ``variants`` are properties of a spec with which its brokers have other things that can break.
    """

    description: str
    variants: tuple[dict[str, dict[str, Any]], ...] = ()


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the harness waits for the brokers of a system, in seconds.

    ``start_s`` until the planned cluster is there; ``settle_s`` until a recovered one is as planned
    again, before it is drained (no verdict depends on it); ``silence_s`` for a role, before nothing
    is claimed of it; ``browse_s`` until one broker has shown its stores; ``vacancy_s`` for a pair
    that has nobody live when it is to be browsed, since a failback may be under way; ``restart_s``
    for a broker to serve again, in addition to a test's recovery bound.
    """

    start_s: float = 60.0
    settle_s: float = 15.0
    silence_s: float = 0.5
    browse_s: float = 60.0
    vacancy_s: float = 10.0
    restart_s: float = 0.0


class System(Protocol):
    """A broker that can be tested: what every one must have.

    What only some have is a protocol of its own: ``InProcess``, ``Installed``, ``Nameless``,
    ``Mirroring``, ``Portable``, ``Prepared``, ``Steered``, ``Viewed``. Ours is the first system;
    nothing outside its folder and ``broker/`` may assume it is the only one.
    """

    name: str
    summary: str
    dialect: Dialect
    patience: Patience
    policies: Mapping[str, PolicySummary]
    events: Mapping[str, Event]
    """What its brokers' logs tell of: for faults that wait, and for what a campaign never saw."""

    def promises(self, spec: TestSpec) -> Promises:
        """What acknowledgements and refusals mean in its dialect, configured as the spec asks."""
        ...

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """The nodes of the cluster that the spec asks for; needs nothing installed.

        Raises UsageError for what the policy cannot be.
        """
        ...

    def lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """What is missing, in words, until these nodes are the cluster that was planned.

        By the node whose log may say why. ``statuses`` are the latest answers, by node.
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

        ``python`` as first word is the node's interpreter. What nodes have different stands in
        their files.
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

    async def stop(self, admin: Address, *, failover: bool | None = None) -> bool | None:
        """Ask for a clean stop; returns when the broker has accepted it.

        False where that is SIGTERM to its process, which the environment then sends. Raises OSError
        for a stop that brokers do not have.
        """
        ...


@runtime_checkable
class Installed(System, Protocol):
    """A system whose brokers the person has installed: we do not bring them."""

    def missing(self) -> str:
        """What must be given and how it is got, in one line; "" where nothing is missing.

        Asked before a deployment only: whatever else a system is asked needs nothing installed.
        """
        ...

    def version(self) -> str:
        """Of what is installed, for the record of a run."""
        ...

    def unplaced(self, environment: str) -> str:
        """Why what is installed cannot be run there; "" where it can."""
        ...


@runtime_checkable
class Portable(Protocol):
    """A system whose brokers can be brought to machines that have nothing of theirs."""

    def provision(self, spec: TestSpec) -> Provision:
        """What such a machine must be given. Asked before a deployment only, as ``missing``."""
        ...


@runtime_checkable
class Prepared(Protocol):
    """A system whose clients find nothing to work with before it is made for them."""

    async def prepare(self, spec: TestSpec, admins: Mapping[str, Address]) -> None:
        """Make the queues once the cluster is as planned; ``admins`` are the nodes that run.

        Raises InfrastructureError saying what could not be made.
        """
        ...


@runtime_checkable
class Paging(Protocol):
    """A system whose brokers keep what waits on pages of their disk, once it fills so much memory.

    ``paging`` has the properties that say so, and values with which it happens within a short test.
    They go together.
    """

    paging: Mapping[str, Sequence[int]]


@runtime_checkable
class Looked(Protocol):
    """A system that must look at what is there before the first client is let in."""

    async def look_first(self, spec: TestSpec, reach: Callable[[str], Address]) -> Sequence[str]:
        """Lines to tell; ``reach`` says where a node's STOMP port is.

        Raises UsageError where the test would touch what is not its own.
        """
        ...


@runtime_checkable
class Steered(Protocol):
    """A system whose brokers take more commands than stop: those of ``NodePlan.commands``."""

    async def administer(
        self, admin: Address, command: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The answer to a command.

        Raises OSError when nothing answers or the broker refuses, with its reason.
        """
        ...


@runtime_checkable
class Nameless(Protocol):
    """A system whose brokers have no ID but what their plan calls them: a node ID is made of that.

    Where somebody else has named them it says nothing.
    """

    ids_from_names: bool


@runtime_checkable
class Secretive(Protocol):
    """A system that makes secrets for each run: brokers that run already do not have them.

    ``made_secrets`` are those of "passcode", by which clients come in, and "admin".
    """

    made_secrets: Sequence[str]


@runtime_checkable
class Keeping(Protocol):
    """A system whose brokers tell which subscriptions they keep."""

    async def subscriptions(self, admin: Address) -> Collection[tuple[str, str]]:
        """Topic and name, as a history has them, of each that outlives its connections."""
        ...


class Mirrored(NamedTuple):
    """What a broker of a pair holds, in its store or in the copy of it.

    ``last`` numbers the last change that is in it, by the live's count; ``contents`` are what each
    queue holds, in words that are the same where that is.
    """

    last: int
    contents: Mapping[str, str]


@runtime_checkable
class Mirroring(Protocol):
    """A system whose backups have copies of what their lives hold, and tell what is in them.

    With the policies of ``mirrored``; with others they share a store, or there are none.
    """

    mirrored: Collection[str]

    async def contents(self, admin: Address) -> Mirrored:
        """Of a live that waits for its backup, or of that backup.

        Raises OSError: it is neither.
        """
        ...


@runtime_checkable
class Viewed(Protocol):
    """A system whose brokers tell what they take for true of the cluster."""

    async def views(self, admin: Address) -> Mapping[str, Mapping[str, str]]:
        """What a live broker takes for true: kind -> key -> value.

        Without the kinds of which brokers need not agree or that it cannot tell.
        """
        ...
