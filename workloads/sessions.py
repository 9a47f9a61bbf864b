"""Sessions, each a subscription of a client from its SUBSCRIBE to its end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Session:
    """A subscription of a client, from its SUBSCRIBE to its end.

    ``number`` is unique in a test, so that "held by two sessions" is unambiguous. ``broker`` serves
    the session on ``connection``. ``subscription_name`` is the name, in the history, of the
    subscription to a topic that it consumes from; None for a queue. ``asked`` is the ``value`` of
    its subscribe. ``frame_id`` is its id in frames, where the dialect demands one.
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
        """The id of the session in frames: its number, unless the dialect demands another id."""
        return str(self.number) if self.frame_id is None else self.frame_id


class Sessions:
    """The source of the numbers of a test's sessions."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def begin(self, queue: str, broker: str, connection: int | None) -> Session:
        """Return a new session, which is about to subscribe."""
        return Session(next(self._numbers), queue, broker, connection)
