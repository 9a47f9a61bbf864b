"""What is planned before anything runs: the spec of a test, its nodes, and what they share."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec


class StorePlan(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A directory that several nodes share, as planned; nodes with equal names share one.

    Where it is a network file system of the environment's own, ``mount_options`` are those of
    nfs(5), ``lease_ms`` and ``grace_ms`` the server's; ``uid`` and ``gid`` are who the broker of
    this very node is in a simulated one. ``nfs`` insists on such a file system where a plain
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

    ``type`` "" is what the place has of its own: a simulated server in the simulation, PostgreSQL
    in docker, on processes of one machine a file of SQLite, or PostgreSQL where a fault is to hit
    it; "server" is any but a file. "given" is a server of the person's own: no environment makes or
    breaks it.
    """

    type: Literal["", "postgresql", "server", "sqlite", "given"] = ""


OWN: Final = "own"
"""The system that is meant where none is named."""

IMPORTED: Final = "imported"
"""What stands for the system, policy, workload and environment of a history that was brought."""

DATABASE: Final = "database:5432"
"""Among a node's hosts: where it reaches the PostgreSQL server that the environment made.

User and password are in its environment (``PGUSER``, ``PGPASSWORD``), so that no file holds them.
"""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of the cluster as planned.

    A name and a place in a live-backup pair, before anything runs.

    ``pair`` is the live-backup group's name ("a"); ``name`` is the pair and a number ("a1" is
    configured as master, "a2" as slave). ``ports`` maps the logical ports ("stomp", "cluster",
    "admin") to the numbers the broker *announces*; where it really listens is the environment's
    affair (see ``Environment.listen``). ``configured`` is a word of ours, whatever the system's
    own: "master" begins as the live of its pair and "slave" as a backup, "instance" is either,
    "member" serves beside others that may take it over, "standalone" serves alone; "arbiter" is no
    broker but a server that brokers ask who of them may be live (ZooKeeper).
    """

    name: str
    pair: str
    configured: str
    ports: dict[str, int]
    database: DatabasePlan | None = None  # the deployment's one database, where it keeps its messages
    store: StorePlan | None = None  # the directory it shares with others, where its data lies
    after: str | None = None  # the node that must be live before this one is started for the first time
    announced: tuple[str, ...] = ()  # ports that peers use by the node's name and the announced number
    commands: tuple[str, ...] = ()  # what an administrator can have its broker do besides a stop
    disk: bool = False  # its data lies on a disk of its own that can break, where the place has to make one

    @property
    def broker(self) -> bool:
        """Whether clients can be served there; what is none is not asked for a role either."""
        return self.configured != "arbiter"


class BroughtHistory(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where a history comes from that another harness recorded.

    ``drained``: everything was received in the end; ``fifo``: queues without groups were promised
    to be in order; ``ack_wait_s``: after how many seconds without an acknowledgement a broker takes
    a message back; ``not_judged`` are rules of which it says too little, each with why.
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

    As it is stored in ``spec.json`` and given back by ``--spec``.
    """

    __test__ = False  # not a pytest class

    name: str
    system: str = OWN  # the brokers under test
    policy: str = "replication"
    pairs: int = 3
    environment: str = "auto"
    hosts: tuple[str, ...] = ()  # of "ssh": a hosts.toml, or user@address of each
    workload: str = "groups"
    """what the clients do: one, several with commas and weights (``bank:2,queue``), or ``mixed``"""
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
    hold_s: float | None = None
    """Delivery to acknowledgement; null is the workload's own (20 ms, none at full speed)."""
    prefetch: int | None = None  # messages a consumer may hold unacknowledged; null is the workload's own
    churn: float = 1.0  # how many times as often subscriptions are left, and dropped and made again
    send_again: bool = False
    """Whether what nobody answered is sent once more, with an id by which brokers take it once."""
    reuse_transactions: bool = False  # whether clients call all their transactions the same
    close_groups: bool = False  # whether some messages of "groups" close their group
    change_selectors: bool = False
    """Whether some durable subscriptions are made again with another selector."""
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
    compare_backups: bool = False
    """Whether, before the drain, what lives hold is compared with their backups' copies of it."""
    attached: dict[str, Any] | None = None
    """The cluster of "attached", as its file says it, without secrets."""
    imported: BroughtHistory | None = None
    """The history that was brought; nothing can be run again then."""
    properties: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Broker properties by their documented names.

    Node name or "*" -> {"ha-policy.replication.slave.vote-retries": 3}.
    """
