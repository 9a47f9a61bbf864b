"""Sessions: one subscription from its SUBSCRIBE to its end.

Numbers are unique in a test, so that "held by two sessions" means what it says.
"""

from __future__ import annotations


class Session:
    """One subscription of a client.

    ``subscription`` is its id in frames, ``broker`` who serves it over which ``connection``.
    """

    __slots__ = ("broker", "confirmed", "connection", "ending", "number", "queue", "subscription")

    def __init__(self, number: int, queue: str, broker: str, connection: int | None) -> None:
        self.number = number
        self.queue = queue
        self.broker = broker
        self.connection = connection
        self.subscription = str(number)
        self.confirmed = False
        self.ending = False


class Sessions:
    """Gives every session of a test its number."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def begin(self, queue: str, broker: str, connection: int | None) -> Session:
        """A session that is about to subscribe."""
        self._count += 1
        return Session(self._count, queue, broker, connection)
