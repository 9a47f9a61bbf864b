"""Sessions: one subscription from its SUBSCRIBE to its end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Session:
    """One subscription of a client.

    ``number`` is unique in a test, so that "held by two sessions" means what it says; ``broker``
    is who serves it over which ``connection``.
    """

    number: int
    queue: str
    broker: str
    connection: int | None
    confirmed: bool = False
    ending: bool = False

    @property
    def subscription(self) -> str:
        """Its id in frames."""
        return str(self.number)


class Sessions:
    """Gives every session of a test its number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def begin(self, queue: str, broker: str, connection: int | None) -> Session:
        """A session that is about to subscribe."""
        return Session(next(self._numbers), queue, broker, connection)
