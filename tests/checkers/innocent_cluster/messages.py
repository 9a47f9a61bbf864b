"""What clients send, and the copies of it that brokers keep."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from innocent_cluster.connections import Connection
    from innocent_cluster.places import Session

Columns = dict[str, Any]
ORDINARY = 4


@dataclass(eq=False)
class Message:
    """A message as its producer sends it; ``wishes`` are what the ``value`` of its rows says."""

    id: int
    columns: Columns
    wishes: Columns = field(default_factory=dict)
    headers: int | None = None
    is_large: bool = False
    carriers: list[Connection] = field(default_factory=list)
    certain_since: int | None = None
    refusals: int = 0
    answered: set[object] = field(default_factory=set)

    @property
    def is_certain(self) -> bool:
        """Whether a send of it outside of transactions was answered ``ok``."""
        return self.certain_since is not None

    @property
    def group(self) -> str | None:
        group: str | None = self.columns["group"]
        return group

    @property
    def colour(self) -> str | None:
        colour: str | None = self.wishes.get("properties", {}).get("colour")
        return colour

    @property
    def digest(self) -> int:
        return self.id * 7

    def value(self, begun: int, done: int | None) -> str | None:
        """The ``value`` of a row of its send, with moments as far as they are known."""
        wishes = dict(self.wishes)
        for name in {"expires", "delay"} & {*wishes}:
            wishes[name] = [begun + wishes[name], None if done is None else done + wishes[name]]
        return json.dumps(wishes) if wishes else None


@dataclass(eq=False)
class Copy:
    """A message in one place.

    ``due`` and ``expires`` are moments of the clock of the broker that took it; ``again`` is when
    it may be delivered again after it was given back. ``count`` is how often it was delivered,
    ``attempts`` how often it was refused, or given back where that counts.
    """

    message: Message
    at: int
    due: int = 0
    expires: int | None = None
    again: int = 0
    count: int = 0
    attempts: int = 0
    holder: Session | None = None
    transaction: int | None = None
    given: int = 0
    is_hidden: bool = False
    seen_by: set[object] = field(default_factory=set)

    @property
    def urgency(self) -> int:
        """Messages of a group keep their turn, whatever their priority."""
        priority: int = self.message.wishes.get("priority", ORDINARY)
        return priority if self.message.group is None else ORDINARY
