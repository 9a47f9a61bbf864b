"""The small set of protocols and data that the parts of a test share.

Why one module: workloads, nemeses and environments must work together without knowing each other,
so that each can be replaced alone (a new environment must not touch a workload). They import this
module and nothing else of the harness; the harness imports them. What crosses between them is data
that can be written as JSON.

Units are in names: ``_s`` seconds (float), ``_ns`` nanoseconds since the start of the test (int),
``_ms`` milliseconds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from checkers.verdict import Promises
from harness.outside import DatabasePlan, Disk, Outside, StorePlan
from harness.status import Status as Status  # noqa: PLC0414 - whoever imports this module finds it here

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------------------------
# Data


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of the cluster as planned.

    A name and a place in a live-backup pair, before anything runs.

    ``pair`` is the live-backup group's name ("a"); ``name`` is the pair and a number ("a1" is
    configured as master, "a2" as slave). ``ports`` maps the logical ports ("stomp", "cluster",
    "admin") to the numbers the broker *announces*; where it really listens is the environment's
    affair (see ``Environment.listen``).
    """

    name: str
    pair: str
    configured: str  # "master" | "slave" | "standalone" | "member" | "instance"
    ports: dict[str, int]
    database: DatabasePlan | None = None  # the deployment's one database, where it keeps its messages
    store: StorePlan | None = None  # the directory it shares with others, where its data lies
    after: str | None = None  # the node that must be live before this one is started for the first time
    disk: bool = False  # its data lies on a disk of its own that can break, where the place has to make one


class TestSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=False, forbid_unknown_fields=True
):
    """Everything that decides a test, as it is stored in ``spec.json`` and given back by
    ``--spec``.
    """

    __test__ = False  # not a pytest class

    name: str
    policy: str = "replication"
    pairs: int = 3
    environment: str = "auto"
    workload: str = "groups"
    nemeses: tuple[str, ...] = ()
    seed: int = 0
    time_limit_s: float = 40.0
    rate: float = 200.0  # sends a second, all producers together; 0 is as fast as possible
    producers: int = 6
    consumers: int = 6
    groups: int = 12
    queues: int = 1
    payload_bytes: int = 32
    large_message_share: float = 0.0  # of the sends have a body of large-message-bytes
    large_message_bytes: int = 150_000  # above min-large-message-size of the brokers
    hold_s: float | None = (
        None  # from a delivery to its acknowledgement; null is the workload's own (20 ms, none at full speed)
    )
    prefetch: int | None = None  # messages a consumer may hold unacknowledged; null is the workload's own
    guarantee: str = "at-least-once"  # "at-most-once" | "at-least-once" | "exactly-once"
    ordered: bool = True
    interval_s: float = 8.0  # from the end of a fault to the start of the next
    duration_s: float = 6.0  # of a fault
    shapes: tuple[str, ...] = ()  # of partitions; empty is all that the cluster allows
    targets: tuple[str, ...] = ()  # of node faults; empty is the fault's default
    operation_timeout_s: float = 5.0
    unavailable_bound_s: float = 20.0
    recovery_bound_s: float = 30.0
    quiet_period_s: float = 0.5  # the drain ends when no queue has delivered for so long
    properties: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Broker properties by their documented names.

    Node name or "*" -> {"ha-policy.replication.slave.vote-retries": 3}.
    """


class Fault(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True, forbid_unknown_fields=True
):
    """One fault of a schedule: an interval, a kind, a target.

    Deleting any fault leaves a valid schedule.

    ``start_s`` counts from the start of the load, or from an event: with ``after`` the fault begins
    so long after any broker has first said, under load, that this happened ("failover/taken": the
    events below). If that never comes the fault is not injected, and the run is unknown.
    ``duration_s`` None lasts to the end of the load (everything is healed then). ``target`` is a
    role ("live", "backup"), a part that a broker plays by what was said last ("taker", "source",
    "claimant"; "rivals" are all other lives), a count ("one", "minority", "majority", "all") or
    names ("a1", "a1,b1"); roles and parts are resolved when the fault begins and the history says
    to what.
    """

    kind: str
    start_s: float  # seconds after the start of the load, or after the event
    after: str | None = None  # the event that it waits for
    duration_s: float | None = None
    target: str | None = None
    shape: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Schedule(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The faults of one test in order of their start; ``schedule.json``."""

    faults: tuple[Fault, ...] = ()


class Link(msgspec.Struct, frozen=True, order=True):
    """A directed link: what ``source`` sends to ``target``.

    Ends are node names or client zones ("zone1", "zone2").
    """

    source: str
    target: str


class Address(msgspec.Struct, frozen=True, order=True):
    """Where to connect to, or where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


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


class InfrastructureError(Exception):
    """The machine, not the broker, is at fault.

    A container that never started, a port in use, a missing tool.

    The run ends as unknown with this text first. Say what failed, where, and what would mend it.
    """


class UsageError(Exception):
    """The person's input is at fault.

    One line saying what is wrong, where, and what would be right. Exit status 254.
    """


# --------------------------------------------------------------------------------------------------------------------
# What a workload or nemesis is given


class Recorder(Protocol):
    """Takes the events of a test in the order they happen.

    ``checkers.schema`` has the meaning of each column.
    """

    def event(
        self,
        process: int,
        type: str,  # noqa: A002 - the history's own name for it
        f: str,
        *,
        queue: str | None = None,
        group: str | None = None,
        message: int | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        transaction: int | None = None,
        session: int | None = None,
        connection: int | None = None,
        subscription: str | None = None,
        broker: str | None = None,
        redelivered: bool | None = None,
        delivery_count: int | None = None,
        digest: int | None = None,
        node_id: str | None = None,
        role: str | None = None,
        time_low: int | None = None,
        time_high: int | None = None,
        error: str | None = None,
        value: str | None = None,
    ) -> int:
        """Append one row and return its index.

        Never blocks, never raises for a full disk (that ends the run elsewhere).
        """
        ...

    def now_ns(self) -> int:
        """Nanoseconds since the start of the test on the clock that stamps the rows."""
        ...

    def next_process(self) -> int:
        """A process number never used before.

        One whose operation ended ``info`` must not invoke again under its old number.
        """
        ...

    def next_connection(self) -> int:
        """A number for a client's connection that has come about, never used before."""
        ...


class Dialect(Protocol):
    """How one broker speaks STOMP, where brokers differ."""

    name: str
    login: str
    passcode: str

    def destination(self, queue: str) -> str:
        """The destination header for a queue."""
        ...

    def send_headers(self, group: str | None) -> dict[str, str]:
        """Headers that make a send persistent and put it into a group."""
        ...

    def subscribe_headers(self, prefetch: int) -> dict[str, str]:
        """Headers that limit unacknowledged deliveries to a consumer."""
        ...

    def delivery(self, headers: Mapping[str, str]) -> tuple[bool, int | None]:
        """(redelivered, delivery count if the broker tells) of a MESSAGE frame's headers."""
        ...


class Workload(Protocol):
    """What clients do, and what they promise to record.

    ``run`` drives load until ``context.stopping`` is set, then returns promptly with every
    operation completed (``info`` where unknown). ``drain`` consumes what is left on every broker
    until nothing has arrived for the quiet period. Both record through ``context.recorder`` only.
    """

    name: str

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
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """ok / fail / info totals of sends and acknowledgements, and "deliver", for the live display
    and to see a recovery: a broker that takes subscriptions and no message has not recovered.
    """


# --------------------------------------------------------------------------------------------------------------------
# The system under test, and where it runs


class Event(NamedTuple):
    """Something that brokers tell of in their logs: what it means, and how a line says so.

    Of each of ``needs`` one at least must be there for it to happen at all: traits of a cluster
    (``harness.coverage``), or kinds of faults.
    """

    meaning: str
    line: re.Pattern[str]
    needs: tuple[tuple[str, ...], ...] = ()


class System(Protocol):
    """A broker that can be tested.

    Ours is the first; nothing outside ``broker/`` may assume it is the only one.
    """

    name: str
    dialect: Dialect
    policies: Mapping[str, str]  # policy -> one line about it
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


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What was observed after a fault was injected: the proof that it bit.

    ``bit`` is True only if a probe saw the effect. ``observed`` has one short phrase per probe, for
    the history.
    """

    bit: bool
    observed: dict[str, str]


class Environment(Protocol):
    """Where brokers run, and what can be broken there.

    Faults are leases: an injected fault is healed *on the node* when ``lease_s`` passes without
    ``renew``, so that a killed harness leaves nothing broken. ``supports`` maps each fault
    primitive to "" (can) or the reason it cannot. Primitives: "cut" "reset" "slow" "stall"
    "datagram-loss" "datagram-duplicate" "datagram-reorder" (links), "pause" "kill" "stop"
    "destroy-data" "power-loss" (nodes), "disk-slow" "disk-stall" "disk-full" "disk-error"
    "disk-corrupt" (their disks), "clock-skew" "clock-step" "clock-rate" "clock-strobe" (their
    clocks), "nfs-stall" "nfs-disconnect" "nfs-restart" (their shared directories), "database-stall"
    "database-restart" "database-disconnect" (their database).
    """

    name: str
    zones: tuple[str, ...]

    virtual: bool
    """Whether time is of the environment's making.

    ``execute`` then takes its own loop, without threads and without the machine's clock.
    """

    async def execute(self, main: Callable[[], Coroutine[Any, Any, T]], *, seed: int) -> T:
        """Run a test's own coroutine to its end where this environment wants it.

        On the running loop, or on one of its making.

        ``seed`` decides all chance of the place itself. Being cancelled cancels ``main`` and waits
        for it.
        """
        ...

    def clock_ns(self) -> int:
        """The clock that stamps a history: monotonic; virtual where time is."""
        ...

    def supports(self) -> Mapping[str, str]:
        """Each fault primitive with "" or the reason why it cannot be done here."""
        ...

    async def deploy(
        self, system: System, spec: TestSpec, nodes: Sequence[NodePlan], directory: Path
    ) -> None:
        """Create what the nodes need (processes' directories, containers, networks, proxies).

        Start nothing yet.
        """
        ...

    def resolve(self, source: str, node: str, port: str) -> Address:
        """Where ``source`` (node, zone, or "admin" for the harness itself, outside every
        partition) reaches a node's logical port.
        """
        ...

    async def start(self, node: str) -> None:
        """Start the broker of a node; returns when the process runs, not when it is ready."""
        ...

    async def wait_exit(self, node: str) -> int | None:
        """Wait until the node's broker process has ended; its exit status if known."""
        ...

    async def running(self, node: str) -> bool:
        """Whether the broker process exists (a paused one does)."""
        ...

    async def kill(self, node: str) -> None:
        """End the broker without any clean-up (SIGKILL)."""
        ...

    async def destroy_data(self, node: str) -> None:
        """Remove what a stopped node has on disk."""
        ...

    async def inject(
        self,
        primitive: str,
        *,
        links: Sequence[Link] = (),
        nodes: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a fault on directed links or nodes; returns the lease to renew and heal."""
        ...

    async def renew(self, lease: str) -> None:
        """Keep a fault in force for another lease."""
        ...

    async def heal(self, lease: str) -> None:
        """End one fault; healing what has already healed is nothing."""
        ...

    async def heal_all(self) -> None:
        """End every fault of this deployment."""
        ...

    async def probe(self, links: Sequence[Link] = (), nodes: Sequence[str] = ()) -> Effect:
        """Look at links and nodes from outside the broker.

        "open", "lost", "slow 120 ms", "refused"; "running", "paused", "gone". ``bit`` is False
        here; the nemesis decides.

        "a1/disk", "a1/clock" and "a1/store" among ``nodes`` are those parts of a node, where faults
        of them can be done: "sound", "slow 20 ms", "stalled", "full", "failing sync", "damaged
        <where>"; "true", "skewed 60000 ms", "rate 1.5"; "answers", "silent", "in grace".
        """
        ...

    async def reconfigure(self, node: str, configured: str) -> None:
        """Give a node the files of another role ("master", "slave").

        Its broker reads them at its next start.
        """
        ...

    async def log_lines(self, node: str, position: int | None) -> tuple[Sequence[str], int]:
        """Wait until the node's broker has logged whole lines behind ``position``.

        Those, and the position behind them.

        None for ``position``: no lines, and the position now.
        """
        ...

    async def collect(self, destination: Path) -> None:
        """Copy every node's logs to ``destination/<node>/``."""
        ...

    async def teardown(self) -> None:
        """Remove everything this deployment created, broken or not."""
        ...


class Events(Protocol):
    """What brokers say to have happened since the load began, as they say it."""

    async def wait(self, event: str) -> str:
        """Wait until any broker has said so; the node of the first that did."""
        ...

    def parts(self) -> Mapping[str, str]:
        """Who plays a part now, by what was said last: "taker" -> "a2"."""
        ...


class NemesisContext(msgspec.Struct, kw_only=True):
    """What a nemesis may touch."""

    spec: TestSpec
    recorder: Recorder
    environment: Environment
    random: random.Random
    nodes: tuple[NodePlan, ...]
    zones: tuple[str, ...]
    roles: Callable[[], Mapping[str, str]]
    """Latest observed role of each node, from the monitor outside every partition."""
    stop_cleanly: Callable[[str, bool | None], Awaitable[None]]
    administer: Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    in_force: dict[str, str] = msgspec.field(default_factory=dict)
    """lease or fault label -> description, for the live display."""
    events: Events | None = None
    """Only where a fault of the schedule asks for them."""
    missed: list[str] = msgspec.field(default_factory=list)
    """Faults whose event never came, in words.

    Without them the run does not show what it was made for.
    """
