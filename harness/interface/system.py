"""The system under test."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from checkers.verdict import Promises
from harness.interface.dialect import Dialect
from harness.interface.network import Address
from harness.interface.plan import NodePlan
from harness.interface.spec import TestSpec
from harness.interface.status import Status


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of one node *as its broker process sees them*.

    ``homes`` says where the directories of its system's ``Provision`` are, by their names.
    """

    etc: str
    data: str
    logs: str
    homes: Mapping[str, str] = msgspec.field(default_factory=dict)


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A program that brokers need besides what the person has unpacked: Java, Erlang.

    ``program`` run with ``asks`` prints its release; the first number that ``release`` finds there
    must be at least ``least``. ``package`` is the Debian package that has it. Without ``asks`` the
    program only has to exist. ``local_path`` is the path of the one on this machine, or "" for the
    one on PATH. ``elsewhere`` are patterns of paths where other machines may have one that is new
    enough.
    """

    program: str
    package: str
    asks: tuple[str, ...] = ()
    release: str = r"(\d+)"
    least: int = 0
    local_path: str = ""
    elsewhere: tuple[str, ...] = ()

    def lack(self, said: str | None) -> str:
        """Return what is wrong with a program that printed this, or "" if nothing is.

        ``said`` is None if the program does not exist.
        """
        if said is None:
            return f"no {self.program}: on Debian, apt-get install {self.package}"
        found = re.search(self.release, said)
        have = int(found[1]) if found else 0
        if self.asks and have < self.least:
            what = f"release {have}" if found else "of an unknown release"
            return f"{self.program} is {what}, and must be {self.least} or later"
        return ""


class Provision(msgspec.Struct, frozen=True, kw_only=True):
    """The things that a machine without anything of a system must be given for one broker.

    ``directories`` are those of *this* machine, by name; each is copied whole except for what
    matches one of ``leave_out`` (patterns of ``fnmatch`` for paths below it), and ``Layout.homes``
    says where it is. ``files`` are single files of this machine, by NAME/path: they are copied into
    a directory NAME, which ``Layout.homes`` has on other machines only. ``packages`` are further
    Debian packages. ``memory_mb`` is the memory that a broker takes.
    """

    runtimes: tuple[Runtime, ...] = ()
    packages: tuple[str, ...] = ()
    directories: Mapping[str, str] = msgspec.field(default_factory=dict)
    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    leave_out: tuple[str, ...] = ()
    memory_mb: int = 0

    @property
    def names(self) -> Collection[str]:
        """The names of all directories that such a machine is given."""
        return dict.fromkeys((*self.directories, *(path.partition("/")[0] for path in self.files)))


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message found in a broker's store when the test reads it at the end.

    ``store`` is "main", "dead-letter", "expired" or "store-and-forward". ``queue`` is the queue for
    which the message is meant or, if ``origin`` is set, the one in which it died or expired. For a
    topic it is the topic's name in the history, and ``subscription`` is the one it was kept for.
    ``group`` is its header's. ``body`` is what was stored. Of a large message ``body`` is only the
    beginning. Then ``digest`` is the CRC-32C of all of it, or ``cut`` says that the digest is not
    known.
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
    """An event that brokers report in their logs: its meaning, and the line that reports it.

    Each of ``needs`` lists alternatives, of which the test must have at least one for the event to
    be possible: traits of a cluster (``harness.history.coverage``), or kinds of faults. ``plays``
    is the part (``nemesis.target``) that the broker is known to play from then on.
    """

    meaning: str
    line: re.Pattern[str]
    needs: tuple[tuple[str, ...], ...] = ()
    plays: str = ""


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in one line.

    ``variants`` are properties of a spec that give its brokers other things that can break.
    ``traits`` are words for what its clusters have, as events need them (``Event.needs``).
    """

    description: str
    variants: tuple[dict[str, dict[str, Any]], ...] = ()
    traits: tuple[str, ...] = ()


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """The times that the harness waits for the brokers of a system, in seconds.

    * ``start_s``: until the planned cluster is there;
    * ``settle_s``: until a recovered cluster is as planned again, before it is drained (no verdict
      depends on it);
    * ``silence_s``: for a role, before nothing is claimed about it;
    * ``browse_s``: until one broker has shown its stores;
    * ``vacancy_s``: for a pair without a live broker when it is to be browsed, since a failback may
      be under way;
    * ``restart_s``: for a broker to serve again, in addition to a test's recovery bound.
    """

    start_s: float = 60.0
    settle_s: float = 15.0
    silence_s: float = 0.5
    browse_s: float = 60.0
    vacancy_s: float = 10.0
    restart_s: float = 0.0


class System(Protocol):
    """A system of brokers that can be tested: the members that every system must have.

    Abilities that only some systems have are protocols of their own: ``Cautioning``, ``Chaining``,
    ``InProcess``, ``Installed``, ``Nameless``, ``Mirroring``, ``Portable``, ``Prepared``,
    ``Recorded``, ``Released``, ``Steered``, ``Viewed``. Ours is the first system; nothing outside
    its folder and ``broker/`` may assume it is the only one.
    """

    name: str
    summary: str
    dialect: Dialect
    patience: Patience
    policies: Mapping[str, PolicySummary]
    events: Mapping[str, Event]
    """The events in its brokers' logs; faults wait for them, campaigns list those never seen."""

    def promises(self, spec: TestSpec) -> Promises:
        """Return what acknowledgements and refusals mean, configured as the spec asks."""
        ...

    def plan(self, spec: TestSpec) -> tuple[NodePlan, ...]:
        """Return the nodes of the cluster that the spec asks for; needs nothing installed.

        Raises UsageError for a cluster that the policy cannot have.
        """
        ...

    def lacking(self, nodes: Sequence[NodePlan], statuses: Mapping[str, Status]) -> Mapping[str, str]:
        """Return what is missing until these nodes are the cluster that was planned.

        These are words, by the node whose log may say why. ``statuses`` are the latest answers, by
        node.
        """
        ...

    def drawn(self, spec: TestSpec, nodes: Sequence[NodePlan]) -> Mapping[str, tuple[Any, ...]]:
        """Return properties of every node, each with the values that a search draws from."""
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
        """Return the configuration files (name -> content) for one node's ``etc``.

        ``listen`` maps logical ports to where this node must listen; ``hosts`` maps each other
        node's announced "name:port" to where *this* node reaches it.
        """
        ...

    def command(self, layout: Layout) -> list[str]:
        """Return the argument vector that runs the broker in the foreground.

        ``python`` as first word is the node's interpreter. All that differs between nodes is in
        their files.
        """
        ...

    async def status(self, admin: Address) -> Status:
        """Ask a running broker for its status.

        Raises OSError if nothing answers, TimeoutError if it stays silent.
        """
        ...

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Return all messages in all stores of a live broker."""
        ...

    async def stop(self, admin: Address, *, failover: bool | None = None) -> bool | None:
        """Ask for a clean stop; return when the broker has accepted it.

        Returns False if the stop is SIGTERM to its process, which the environment then sends.
        Raises OSError for a stop that brokers do not have.
        """
        ...


@runtime_checkable
class Installed(System, Protocol):
    """A system whose brokers the person has installed; the harness does not bring them."""

    def missing(self) -> str:
        """Return what must be installed and how, in one line; "" if nothing is missing.

        Asked before a deployment only: every other question to a system needs nothing installed.
        """
        ...

    def version(self) -> str:
        """Return the version of what is installed, for the record of a run."""
        ...

    def unplaced(self, environment: str) -> str:
        """Return why the installed brokers cannot be run in an environment; "" if they can."""
        ...


@runtime_checkable
class Released(Installed, Protocol):
    """An installed system whose promises differ from one release of its brokers to another.

    ``release`` is set before the system is asked for promises: the version that is installed or,
    for a stored run, that was. "" is an unknown one; such a system promises only what all releases
    do.
    """

    release: str


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that an installed system lacks on this machine.

    ``commands`` bring it, in this order; each can be pasted into a shell. ``home`` is what to give
    as ``--system-home`` after that, "" for the home that was given or for none.
    """

    problem: str
    commands: tuple[str, ...] = ()
    home: str = ""

    def __str__(self) -> str:
        """Return all of it in one line."""
        brings = f". To get it: {' && '.join(self.commands)}" if self.commands else ""
        return self.problem + brings + (f", then give --system-home {self.home}" if self.home else "")


@runtime_checkable
class Fetched(Protocol):
    """An installed system that knows the commands that bring what is missing."""

    def lack(self) -> Lack | None:
        """Return what ``Installed.missing`` says, with its commands; None if nothing is."""
        ...


@runtime_checkable
class Cautioning(Protocol):
    """A system that warns before a test: of an untried release, of a setting without effect."""

    def warnings(self, spec: TestSpec) -> Sequence[str]:
        """Return the warnings, one line each; asked after ``missing``, with what is installed."""
        ...


@runtime_checkable
class Portable(Protocol):
    """A system whose brokers can be brought to machines that have nothing of the system."""

    def provision(self, spec: TestSpec) -> Provision:
        """Return what such a machine must be given; asked before a deployment, as ``missing``."""
        ...


@runtime_checkable
class Prepared(Protocol):
    """A system whose queues must be made before its clients can work."""

    async def prepare(self, spec: TestSpec, admins: Mapping[str, Address]) -> None:
        """Make the queues once the cluster is as planned; ``admins`` are the nodes that run.

        Raises InfrastructureError that says what could not be made.
        """
        ...


@runtime_checkable
class Paging(Protocol):
    """A system whose brokers page waiting messages to disk once they fill so much memory.

    ``paging`` has the properties that set this limit, and values with which paging happens within a
    short test. The properties are set together.
    """

    paging: Mapping[str, Sequence[int]]


@runtime_checkable
class Looked(Protocol):
    """A system that must look at the running brokers before the first client connects."""

    async def look_first(self, spec: TestSpec, reach: Callable[[str], Address]) -> Sequence[str]:
        """Return lines to print; ``reach`` returns the address of a node's STOMP port.

        Raises UsageError if the test would touch what is not its own.
        """
        ...


@runtime_checkable
class Steered(Protocol):
    """A system whose brokers take more commands than a stop: those of ``NodePlan.commands``."""

    async def administer(
        self, admin: Address, command: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Give a broker a command, and return its answer.

        Raises OSError if nothing answers or the broker refuses, with its reason.
        """
        ...


@runtime_checkable
class Recorded(Protocol):
    """A system whose clusters keep a record of changes, which can be restored from a backup."""

    async def restore_record(
        self, node: str, backup: Mapping[str, Any], chance: random.Random, data: Mapping[str, bytes]
    ) -> Mapping[str, bytes]:
        """Return the files of a stopped master's data, with a backup in place of its record.

        ``backup`` is a broker's answer to "backup-record"; ``data`` are the files by their paths.
        """
        ...


@runtime_checkable
class Nameless(Protocol):
    """A system whose brokers have no ID but their name in the plan: node IDs are made from that.

    If the brokers were named by somebody else (an attached cluster), this says nothing.
    """

    ids_from_names: bool


@runtime_checkable
class Secretive(Protocol):
    """A system that makes secrets for each run, which brokers that already run do not have.

    ``made_secrets`` are some of "passcode", with which clients log in, and "admin".
    """

    made_secrets: Sequence[str]


@runtime_checkable
class Keeping(Protocol):
    """A system whose brokers report which subscriptions they keep."""

    async def subscriptions(self, admin: Address) -> Collection[tuple[str, str]]:
        """Return topic and name, as in a history, of the subscriptions that outlive connections."""
        ...


class Mirrored(NamedTuple):
    """The contents of a broker of a pair: of its store, or of its copy of the live's store.

    ``last`` is the number of the last change in it, by the live's count. ``contents`` describes
    what each queue holds; equal contents have equal descriptions.
    """

    last: int
    contents: Mapping[str, str]


@runtime_checkable
class Mirroring(Protocol):
    """A system whose backups have copies of their lives' contents, and report what is in them.

    This holds for the policies of ``mirrored``; with others they share a store, or there are none.
    """

    mirrored: Collection[str]

    async def contents(self, admin: Address) -> Mirrored:
        """Return the contents of a live that waits for its backup, or of that backup.

        Raises OSError for a broker that is neither.
        """
        ...


@runtime_checkable
class Chaining(Protocol):
    """A system whose brokers can form a chain, with the policies of ``chained``.

    A search draws the properties of ``hops``: how far messages go.
    """

    chained: Collection[str]
    hops: Mapping[str, Sequence[int]]


@runtime_checkable
class ChangeRecording(Protocol):
    """A system whose brokers have a record of changes in common, kept by a master broker."""

    async def record_position(self, admin: Address) -> str | None:
        """Return how far a broker has the record; None if it has none.

        Brokers with equal positions have the same changes.
        """
        ...


@runtime_checkable
class Viewed(Protocol):
    """A system whose brokers report what they believe about the cluster.

    After the recovery, brokers must agree on the kinds of views in ``compared_views``. On other
    kinds they may differ; ``--watch-views`` records these, too.
    """

    compared_views: Collection[str]

    async def views(self, admin: Address) -> Mapping[str, Mapping[str, str]]:
        """Return what a live broker believes about the cluster: kind -> key -> value.

        Kinds that the broker cannot report are left out.
        """
        ...
