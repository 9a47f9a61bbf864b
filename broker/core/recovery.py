"""From the records of a journal to queues and messages, when a broker becomes live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.core.duplicates import DuplicateId, decode_duplicate
from broker.core.message import CLEAN, DELIVERIES, DUPLICATE, MESSAGE, QUEUE, Message, decode, decode_counts
from broker.storage.journal import Record


@dataclass(slots=True)
class Image:
    """What the journal says: queues by record id, messages oldest first with the record id of their queue."""

    queues: dict[int, str] = field(default_factory=dict)
    messages: list[tuple[int, Message]] = field(default_factory=list)
    duplicates: list[tuple[int, DuplicateId]] = field(default_factory=list)
    clean_marks: list[int] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """The broker that wrote it ended cleanly: its delivery counts are exact. An empty journal is clean too."""
        return bool(self.clean_marks) or not self.messages


def read(records: Iterable[Record]) -> Image:
    """Read the core's records; those of other kinds are left to whoever wrote them.

    After an unclean end every message counts as delivered at least once: nobody knows, and to claim otherwise would be a redelivery without
    its flag.
    """
    image = Image()
    for record in sorted(records, key=lambda record: record.id):
        if record.kind == MESSAGE:
            queue_id, message = decode(record.id, record.data)
            for update in record.updates:
                if update.kind == DELIVERIES:
                    message.deliveries, message.refusals = decode_counts(update.data)
            image.messages.append((queue_id, message))
        elif record.kind == QUEUE:
            image.queues[record.id] = record.data.decode()
        elif record.kind == DUPLICATE:
            image.duplicates.append((record.id, decode_duplicate(record.data)))
        elif record.kind == CLEAN:
            image.clean_marks.append(record.id)
    if not image.clean:
        for _, message in image.messages:
            message.deliveries = max(message.deliveries, 1)
    for _, message in image.messages:
        message.redelivered = message.deliveries > 0
    return image
