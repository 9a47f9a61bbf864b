"""The plan of a test before anything runs: its nodes, and what they share."""

from __future__ import annotations

from typing import Annotated, Final, Literal

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
    master: bool = False  # its broker keeps the record of the cluster's changes
    broadcasts: bool = False  # its broker sends datagrams to find others
    finds_by_files: bool = False  # its broker finds others by files in a directory that all share
    disk: bool = False  # its data lies on a breakable disk of its own, made by the environment if need be

    @property
    def broker(self) -> bool:
        """True if clients can be served there; any other node is not asked for a role either."""
        return self.configured != "arbiter"
