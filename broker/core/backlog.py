"""What a queue held when its broker became live, and nobody has asked for yet.

Why not decoded at once: a backup that takes over 10^6 messages has to serve its first client long before the last of these is delivered. A
message becomes an object, with its group in a lane, when a consumer has room for it and nothing older is left. What arrives meanwhile
waits behind, in the same line, so that order is what it would have been.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from broker.core.message import DELIVERIES, Message, decode, decode_counts
from broker.storage.records import Record

CHUNK: Final = 256
"""Messages taken from a backlog in one turn of the loop: about a millisecond."""


def restore(record: Record, *, least_deliveries: int) -> Message:
    """A record of the journal as a message. ``least_deliveries`` is 1 where an earlier delivery cannot be excluded, else 0."""
    _, message = decode(record.id, record.data)
    for update in record.updates:
        if update.kind == DELIVERIES:
            message.deliveries, message.refusals = decode_counts(update.data)
    message.deliveries = max(message.deliveries, least_deliveries)
    message.redelivered = message.deliveries > 0
    return message


class Backlog:
    """Records and, behind them, messages that arrived since; oldest first."""

    __slots__ = ("_line", "least_deliveries")

    def __init__(self, records: Iterable[Record], *, least_deliveries: int) -> None:
        self.least_deliveries = least_deliveries
        self._line: deque[Record | Message] = deque(records)

    def __len__(self) -> int:
        return len(self._line)

    def append(self, message: Message) -> None:
        """A message that arrived after all these."""
        self._line.append(message)

    def take(self) -> Message:
        """The oldest one."""
        oldest = self._line.popleft()
        if isinstance(oldest, Message):
            return oldest
        return restore(oldest, least_deliveries=self.least_deliveries)
