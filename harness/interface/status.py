"""What a broker says of itself when it is asked."""

from __future__ import annotations

from typing import Any

import msgspec


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """A takeover of a node's data that a broker says to have completed.

    ``life`` counts the lives and takeovers of that node, each with a number above all before.
    """

    node_id: str
    life: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself.

    ``epoch`` grows with each change of role, so that equal epochs of two samples prove no change
    between.
    """

    name: str
    node_id: str | None
    # "live" | "backup" | "voting" | "verifying" | "synchronizing" | "starting" | "stopping" |
    # "stopped"
    role: str
    epoch: int
    replicating: bool = False  # a live: its backup is up to date; a backup: it is up to date
    life: int | None = None  # a live: the number of its life; None where brokers do not tell
    takeovers: tuple[Takeover, ...] = ()  # a live: what it has taken over since it became live
    details: dict[str, Any] = msgspec.field(default_factory=dict)
