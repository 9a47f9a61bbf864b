"""From the records of a journal to queues and what is stored in them, when a broker becomes live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter

from broker.core.duplicates import DuplicateId, decode_duplicate
from broker.core.message import (
    CLEAN,
    DUPLICATE,
    HEAD,
    IS_LARGE,
    LARGE,
    MESSAGE,
    OVERHEAD,
    QUEUE,
)
from broker.storage.blobs import Blob
from broker.storage.records import Record


@dataclass(slots=True)
class Image:
    """What the journal says: queues by record id, and by the same the records of their messages, oldest first."""

    queues: dict[int, str] = field(default_factory=dict)
    messages: dict[int, list[Record]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    """Their bytes, as ``Message.size`` counts them."""
    large: list[Blob] = field(default_factory=list)
    """The bodies in files that they name, one for each message."""
    duplicates: list[tuple[int, DuplicateId]] = field(default_factory=list)
    clean_marks: list[int] = field(default_factory=list)
    least_deliveries: int = 0
    """How often each message was delivered at the least, whatever its own counts say."""

    @property
    def clean(self) -> bool:
        """The broker that wrote it ended cleanly: its delivery counts are exact. An empty journal is clean too."""
        return bool(self.clean_marks) or not self.messages

    def lines(self) -> dict[str, list[Record]]:
        """What each queue holds, oldest first. A store that came from several brokers has a record for each one's queue of that name."""
        found: dict[str, list[Record]] = {}
        for queue_id, records in self.messages.items():
            name = self.queues[queue_id]
            there = found.get(name)
            found[name] = records if there is None else list(merge(there, records, key=itemgetter(0)))
        return found

    @property
    def count(self) -> int:
        """How many messages there are."""
        return sum(map(len, self.messages.values()))


def read(records: Iterable[Record]) -> Image:
    """Read the core's records; those of other kinds are left to whoever wrote them. Messages stay records: see ``backlog``.

    After an unclean end every message counts as delivered at least once: nobody knows, and to claim otherwise would be a redelivery without
    its flag.
    """
    image = Image()
    messages = image.messages
    sizes = image.sizes
    head = HEAD.unpack_from
    beside = OVERHEAD - HEAD.size
    for record in sorted(records, key=itemgetter(0)):
        kind = record[1]
        if kind == MESSAGE:
            data = record[2]
            queue_id, flags, group_size, target_size, headers_size = head(data)
            stored = messages.get(queue_id)
            if stored is None:
                stored = messages[queue_id] = []
                sizes[queue_id] = 0
            stored.append(record)
            sizes[queue_id] += len(data) - group_size - target_size + beside
            if flags & IS_LARGE:
                sizes[queue_id] -= LARGE.size
                file_at = HEAD.size + group_size + target_size + headers_size
                image.large.append(Blob(*LARGE.unpack_from(data, file_at)))
        elif kind == QUEUE:
            image.queues[record.id] = record.data.decode()
        elif kind == DUPLICATE:
            image.duplicates.append((record.id, decode_duplicate(record.data)))
        elif kind == CLEAN:
            image.clean_marks.append(record.id)
    if not image.clean:
        image.least_deliveries = 1
    return image
