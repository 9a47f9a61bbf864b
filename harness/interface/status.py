"""The status that a broker reports when it is asked."""

from __future__ import annotations

from typing import Any, Final

import msgspec

LIVE: Final = "live"
"""The role of a server that serves clients."""

BACKUP: Final = "backup"
"""The role of a server that serves no clients and could take over."""

SUSPENDED: Final = "suspended"
"""The role of a server that serves no clients until another one has started."""


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """A takeover of a node's data that a broker says it has completed.

    ``life`` counts the lives and takeovers of that node; each has a number above all before.
    """

    node_id: str
    life: int


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The status that one server reports of itself.

    ``role`` is LIVE or BACKUP; a system translates its own words ("active", "slave") into them. For
    a server that is neither it is a word for people, such as "voting", "synchronizing", "starting"
    or "stopping". ``epoch`` grows with each change of role, so that equal epochs of two samples
    prove that there was no change between them.
    """

    name: str
    node_id: str | None
    role: str
    epoch: int
    replicating: bool = False  # of a live: its backup is up to date; of a backup: it is up to date itself
    life: int | None = None  # of a live: the number of its life; None if brokers do not report it
    takeovers: tuple[Takeover, ...] = ()  # of a live: its takeovers since it became live


class Status(Server, frozen=True, kw_only=True):
    """The status that the broker of a node reports; ``details`` is its whole answer, for people.

    A broker may run several servers: its own and a backup of another node (colocated). All but the
    first are listed as ``others``, each with a name of its own in the history ("a1/b").
    """

    others: tuple[Server, ...] = ()
    details: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers of the broker."""
        return (self, *self.others)

    @property
    def serves(self) -> bool:
        """True if any server of the broker serves clients."""
        return any(server.role == LIVE for server in self.servers)

    @property
    def could_take_over(self) -> bool:
        """True if any server of the broker could serve at once, with all its live acknowledged."""
        return any(server.role == BACKUP and server.replicating for server in self.servers)
