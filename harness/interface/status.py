"""What a broker says of itself when it is asked."""

from __future__ import annotations

from typing import Any, Final

import msgspec

LIVE: Final = "live"
"""The role of a server that serves clients."""

BACKUP: Final = "backup"
"""The role of a server that serves nobody and could take over."""


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """A takeover of a node's data that a broker says to have completed.

    ``life`` counts the lives and takeovers of that node, each with a number above all before.
    """

    node_id: str
    life: int


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What one server says of itself.

    ``role`` is LIVE or BACKUP, into which a system translates its own words ("active", "slave"), or
    for a server that is neither a word for people, as "voting", "synchronizing", "starting" or
    "stopping". ``epoch`` grows with each change of role, so that equal epochs of two samples prove
    no change between.
    """

    name: str
    node_id: str | None
    role: str
    epoch: int
    replicating: bool = False  # a live: its backup is up to date; a backup: it is up to date
    life: int | None = None  # a live: the number of its life; None where brokers do not tell
    takeovers: tuple[Takeover, ...] = ()  # a live: what it has taken over since it became live


class Status(Server, frozen=True, kw_only=True):
    """What the broker of a node says of itself; ``details`` is its whole answer, for people.

    A broker that runs several servers, a backup of another node beside its own (colocated), lists
    all but the first as ``others``, each with a name of its own in the history ("a1/b").
    """

    others: tuple[Server, ...] = ()
    details: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def servers(self) -> tuple[Server, ...]:
        """All of them."""
        return (self, *self.others)

    @property
    def serves(self) -> bool:
        """Whether any of them serves clients."""
        return any(server.role == LIVE for server in self.servers)

    @property
    def could_take_over(self) -> bool:
        """Whether any of them could serve at once with all that its live has acknowledged."""
        return any(server.role == BACKUP and server.replicating for server in self.servers)
