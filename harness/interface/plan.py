"""The plan of a test before anything runs: its spec, its nodes, and what the nodes share."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec


class StorePlan(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A directory that several nodes share, as planned; nodes with equal names share one.

    If it is a network file system that the environment makes, ``mount_options`` are those of
    nfs(5), and ``lease_ms`` and ``grace_ms`` are the server's. ``uid`` and ``gid`` are those of
    this node's broker in a simulated one. ``nfs`` demands such a file system even if a plain
    directory of the machine would do.
    """

    name: str
    mount_options: str = "hard"
    lease_ms: Annotated[float, msgspec.Meta(gt=0)] = 4000
    grace_ms: Annotated[float, msgspec.Meta(ge=0)] = 2000
    uid: Annotated[int, msgspec.Meta(ge=0)] = 501
    gid: Annotated[int, msgspec.Meta(ge=0)] = 501
    nfs: bool = False


class DatabasePlan(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The one database of a test, in which nodes keep their messages, as planned.

    ``type`` "" is the environment's own: a simulated server in the simulation, PostgreSQL in
    docker. On processes of one machine it is an SQLite file, or PostgreSQL if a fault is to hit it.
    "server" is any type but a file. "given" is a server of the person's own: no environment makes
    or breaks it.
    """

    type: Literal["", "postgresql", "server", "sqlite", "given"] = ""


OWN: Final = "own"
"""The system that a spec means if it names none."""

IMPORTED: Final = "imported"
"""The system, policy, workload and environment of an imported history."""

DATABASE: Final = "database:5432"
"""The name, among a node's hosts, of the PostgreSQL server that the environment made.

User and password are in its environment (``PGUSER``, ``PGPASSWORD``), so that no file holds them.
"""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the cluster as planned.

    It has a name and a place in a live-backup pair, before anything runs.

    ``pair`` is the live-backup group's name ("a"); ``name`` is the pair and a number ("a1" is
    configured as master, "a2" as slave). ``ports`` maps the logical ports ("stomp", "cluster",
    "admin") to the numbers the broker *announces*; the environment decides where it really listens
    (``listen`` of ``System.files``). ``configured`` is a word of ours, whatever the system's own:

    * "master" begins as the live of its pair, "slave" as a backup, "instance" as either;
    * "member" serves next to others that may take it over, "standalone" serves alone;
    * "arbiter" is no broker but a server that brokers ask which of them may be live (ZooKeeper).
    """

    name: str
    pair: str
    configured: str
    ports: dict[str, int]
    database: DatabasePlan | None = None  # the deployment's one database, if it keeps its messages there
    store: StorePlan | None = None  # the directory it shares with others, if its data lies there
    after: str | None = None  # the node that must be live before this one is started for the first time
    announced: tuple[str, ...] = ()  # ports that peers use by the node's name and the announced number
    commands: tuple[str, ...] = ()  # an administrator's commands that its broker takes besides a stop
    disk: bool = False  # its data lies on a breakable disk of its own, made by the environment if need be

    @property
    def broker(self) -> bool:
        """True if clients can be served there; any other node is not asked for a role either."""
        return self.configured != "arbiter"


class BroughtHistory(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The origin of an imported history, which another harness recorded.

    ``drained``: everything was received in the end. ``fifo``: queues without groups were promised
    to be in order. ``ack_wait_s``: the seconds without an acknowledgement after which a broker
    takes a message back. ``not_judged``: rules of which the history says too little, each with the
    reason.
    """

    file: str
    format: str
    drained: bool = False
    fifo: bool = False
    ack_wait_s: float | None = None
    not_judged: dict[str, str] = msgspec.field(default_factory=dict)


class TestSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=False, forbid_unknown_fields=True
):
    """Everything that decides a test.

    It is stored in ``spec.json``, and ``--spec`` reads it back.
    """

    __test__ = False  # not a pytest class

    name: str
    system: str = OWN  # the brokers under test
    policy: str = "replication"
    pairs: int = 3
    environment: str = "auto"
    hosts: tuple[str, ...] = ()  # of "ssh": a hosts.toml, or the user@address of each host
    workload: str = "groups"
    """What the clients do: one workload, several with commas and weights, or ``mixed``.

    ``bank:2,queue`` is an example with a weight.
    """
    nemeses: tuple[str, ...] = ()
    seed: int = 0
    time_limit_s: float = 40.0
    rate: float = 200.0  # sends a second, all producers together; 0 is as fast as possible
    producers: int = 6
    consumers: int = 6
    groups: int = 12
    queues: int = 1
    payload_bytes: int = 32
    large_message_share: float = 0.0  # the share of the sends that have a body of large-message-bytes
    large_message_bytes: int = 150_000  # above min-large-message-size of the brokers
    hold_s: float | None = None
    """Delivery to acknowledgement; null: as the workload does (20 ms, none at full speed)."""
    prefetch: int | None = None  # messages a consumer may hold unacknowledged; null is the workload's own
    churn: float = 1.0  # how many times as often as usual subscriptions are left, dropped and made again
    send_again: bool = False
    """Whether an unanswered message is sent again, with an id by which brokers accept it once."""
    reuse_transactions: bool = False  # whether clients give all their transactions the same name
    close_groups: bool = False  # whether some messages of "groups" close their group
    change_selectors: bool = False
    """Whether some durable subscriptions are made again with another selector."""
    guarantee: str = "at-least-once"  # "at-most-once" | "at-least-once" | "exactly-once"
    ordered: bool = True
    interval_s: float = 8.0  # from the end of a fault to the start of the next
    duration_s: float = 6.0  # how long a fault lasts
    shapes: tuple[str, ...] = ()  # the shapes of partitions; empty is all that the cluster allows
    targets: tuple[str, ...] = ()  # the targets of node faults; empty is each fault's default
    operation_timeout_s: float = 5.0
    unavailable_bound_s: float = 20.0
    recovery_bound_s: float = 30.0
    quiet_period_s: float = 0.5  # the drain ends when no queue has delivered for so long
    compare_backups: bool = False
    """Whether, before the drain, the contents of lives are compared with their backups' copies."""
    attached: dict[str, Any] | None = None
    """The cluster of "attached" as its file describes it, without secrets."""
    imported: BroughtHistory | None = None
    """The origin of an imported history; such a test cannot be run again."""
    properties: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Broker properties by their documented names.

    Node name or "*" -> {"ha-policy.replication.slave.vote-retries": 3}.
    """
