"""Sessions: one subscription from its SUBSCRIBE to its end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Session:
    """One subscription of a client.

    ``number`` is unique in a test, so that "held by two sessions" means what it says; ``broker``
    is who serves it over which ``connection``. ``subscription_name`` is the name, in the history,
    of the subscription to a topic that it consumes from, and ``asked`` the ``value`` of its
    subscribe; None for a queue.
    """

    number: int
    queue: str
    broker: str
    connection: int | None
    subscription_name: str | None = None
    asked: str | None = None
    frame_id: str | None = None
    confirmed: bool = False
    ending: bool = False

    @property
    def subscription(self) -> str:
        """Its id in frames: its number, where the broker's dialect wants no other."""
        return str(self.number) if self.frame_id is None else self.frame_id


class Sessions:
    """Gives every session of a test its number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def begin(self, queue: str, broker: str, connection: int | None) -> Session:
        """A session that is about to subscribe."""
        return Session(next(self._numbers), queue, broker, connection)
