"""Which messages were already taken, so that a bridge or a client may repeat itself.

Why: a bridge that loses its connection cannot know whether its last message arrived and must send
it again. The receiver writes the identity of the message into the same journal entry as the message
itself, so both survive or neither does, and remembers the last 20,000 of each ring (the size of
Artemis' duplicate id cache, ``id-cache-size``). What a client sends with an id of its own
(``_AMQ_DUPL_ID``) is remembered in the same way.

There is a ring for each broker that forwards messages, and one for each destination to which
clients send with ids. A ring for each *origin* of messages would not do: what one broker may send
again is among the last that it has sent, but not among the last of an origin from which others
bring thousands of messages meanwhile.

Clients may name any number of destinations, so the ids of all together are bounded, too. Beyond
that bound the destination to which nothing with an id was sent for the longest time forgets its
oldest. A client that uses up the bound with many destinations thus makes idle ones forget, and not
those that are in use.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict, deque
from typing import Final, Generic, NamedTuple, TypeVar

from broker.core.identity import MessageId, unpack_identity
from broker.core.message import DUPLICATE
from broker.storage.records import Record

RING_SIZE: Final = 20_000

RING_BYTES: Final = 850
"""The memory for a ring, without its name and its ids."""
ID_BYTES: Final = 350
"""The memory for an id, without its characters."""

_ID: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<H")


class SentId(NamedTuple):
    """A client's id of a message, unique among those that were sent to that destination."""

    target: str
    id: str


Id = TypeVar("Id", MessageId, SentId)


class Duplicates(Generic[Id]):
    """The ids remembered, by ring, with the sequence of the entry that took it (0: recovered).

    At most ``max_bytes`` of memory for all rings together, and ``size`` ids of each.
    """

    def __init__(self, size: int = RING_SIZE, max_bytes: float = math.inf) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self.bytes = 0
        """The memory that the ids take, about."""
        self._sequences: dict[Id, int] = {}
        self._rings: OrderedDict[str, deque[tuple[int, Id]]] = OrderedDict()
        """By name; the one whose last id is the oldest comes first."""

    def sequence(self, duplicate: Id) -> int | None:
        """The sequence of the entry that accepted it; None: never seen, or forgotten."""
        return self._sequences.get(duplicate)

    def accepted(self, duplicate: Id, sequence: int) -> None:
        """The entry that accepted it is known."""
        self._sequences[duplicate] = sequence

    def remember(
        self, name: str, duplicate: Id, record_id: int, sequence: int, size: int | None = None
    ) -> list[int]:
        """Remember an id in the ring of that name, and return the records to delete for it.

        They are those of the ids that are forgotten instead. ``size``: how many ids the ring has.
        """
        ring = self._rings.get(name)
        if ring is None:
            ring = self._rings[name] = deque()
            self.bytes += RING_BYTES + len(name)
        self._rings.move_to_end(name)
        self._sequences[duplicate] = sequence
        ring.append((record_id, duplicate))
        self.bytes += _bytes(duplicate)
        most = self._size if size is None else size
        forgotten = []
        while len(ring) > most:
            forgotten.append(self._forget_oldest(ring))
        while self.bytes > self._max_bytes:
            oldest, ring = next(iter(self._rings.items()))
            forgotten.append(self._forget_oldest(ring))
            if not ring:
                self.forget(oldest)
        return forgotten

    def forget(self, name: str) -> list[int]:
        """Forget all ids of a ring, and return the records to delete."""
        ring = self._rings.pop(name, None)
        if ring is None:
            return []
        self.bytes -= RING_BYTES + len(name)
        return [self._forget_oldest(ring) for _ in range(len(ring))]

    def _forget_oldest(self, ring: deque[tuple[int, Id]]) -> int:
        record_id, oldest = ring.popleft()
        self._sequences.pop(oldest, None)
        self.bytes -= _bytes(oldest)
        return record_id


def _bytes(duplicate: MessageId | SentId) -> int:
    return ID_BYTES + (len(duplicate.id) if isinstance(duplicate, SentId) else 0)


def encode_forwarded(sender: str, identity: MessageId) -> bytes:
    """Return the data of the FORWARDED record of a message that ``sender`` has forwarded."""
    return identity.packed() + sender.encode()


def decode_forwarded(record: Record) -> tuple[str, MessageId]:
    """Return sender and identity from a FORWARDED record, or from a DUPLICATE one."""
    if record.kind == DUPLICATE:
        sender = record.data[_ID.size :].decode()
        return sender, MessageId(sender, *_ID.unpack_from(record.data))
    identity, end = unpack_identity(record.data)
    return record.data[end:].decode(), identity


def encode_sent(sent: SentId) -> bytes:
    """The data of its journal record."""
    target = sent.target.encode()
    return b"%b%b%b" % (_SIZE.pack(len(target)), target, sent.id.encode())


def decode_sent(data: bytes) -> SentId:
    """From the data of its journal record."""
    end = _SIZE.size + _SIZE.unpack_from(data)[0]
    return SentId(data[_SIZE.size : end].decode(), data[end:].decode())
