"""The destinations that an administrator has paused: for producers, for consumers, or for both.

A paused destination takes no message of a client: sends to it, and commits with such sends, wait as
they do for room. Or it delivers none: what it has and what still comes waits in its queue. A topic
is paused with all its subscriptions at this broker, those that come later included.

A pause lasts until the destination is resumed, its queue is deleted, or the broker ends: a restart
remembers none. A paused queue is deleted by an administrator only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.core.queue import Queue
from broker.core.subscription import TOPIC_PREFIX

SIDES: Final = ("producers", "consumers")
"""The sides for which a destination can be paused."""


class Pauses:
    """The paused destinations, each a queue's name or ``/topic/NAME``."""

    def __init__(self) -> None:
        self._sides: dict[str, frozenset[str]] = {}

    def sides(self, target: str) -> frozenset[str]:
        """Return the sides for which a destination is paused."""
        return self._sides.get(target, frozenset())

    def targets(self) -> list[str]:
        """Return the paused destinations."""
        return [*self._sides]

    def pause(self, target: str, sides: Iterable[str]) -> None:
        """Pause a destination for these sides, too."""
        self._sides[target] = self.sides(target).union(sides)

    def resume(self, target: str) -> None:
        """End the pause of a destination."""
        self._sides.pop(target, None)

    def apply(self, queue: Queue) -> None:
        """Let a queue do what its destination may."""
        sides = self.sides(queue.name if queue.topic is None else TOPIC_PREFIX + queue.topic)
        queue.takes_sends, queue.delivers = "producers" not in sides, "consumers" not in sides
        queue.wake()

    def find_paused(self, targets: Iterable[str]) -> list[str]:
        """Return those of the destinations that are paused for producers."""
        return [target for target in targets if "producers" in self.sides(target)] if self._sides else []
