"""Which messages were already taken, so that a bridge or a client may repeat itself.

Why: a bridge that loses its connection cannot know whether its last message arrived and must send
it again. The receiver writes the origin's id of the message into the same journal entry as the
message itself, so both survive or neither does, and remembers the last 20,000 of each origin (the
size of Artemis' duplicate id cache, ``id-cache-size``). What a client sends with an id of its own
(``_AMQ_DUPL_ID``) is remembered in the same way, for each destination.

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

RING_SIZE: Final = 20_000

ORIGIN_BYTES: Final = 850
"""The memory for an origin, without its name and its ids."""
ID_BYTES: Final = 350
"""The memory for an id, without its characters."""

_ID: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<H")


class DuplicateId(NamedTuple):
    """Who first took a message, and the id of its record there: unique in the cluster for ever."""

    origin: str
    record: int


class SentId(NamedTuple):
    """A client's id of a message, unique among those that were sent to that destination."""

    origin: str
    id: str


Id = TypeVar("Id", DuplicateId, SentId)


class Duplicates(Generic[Id]):
    """The ids remembered, by origin, with the sequence of the entry that took it (0: recovered).

    At most ``max_bytes`` of memory for all origins together, and ``size`` ids of each.
    """

    def __init__(self, size: int = RING_SIZE, max_bytes: float = math.inf) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self.bytes = 0
        """The memory that the ids take, about."""
        self._sequences: dict[Id, int] = {}
        self._rings: OrderedDict[str, deque[tuple[int, Id]]] = OrderedDict()
        """By origin; the one whose last id is the oldest comes first."""

    def sequence(self, duplicate: Id) -> int | None:
        """The sequence of the entry that accepted it; None: never seen, or forgotten."""
        return self._sequences.get(duplicate)

    def accepted(self, duplicate: Id, sequence: int) -> None:
        """The entry that accepted it is known."""
        self._sequences[duplicate] = sequence

    def remember(self, duplicate: Id, record_id: int, sequence: int, size: int | None = None) -> list[int]:
        """Remember an id, and return the records to delete for what is forgotten instead.

        ``size``: how many ids its origin may have.
        """
        ring = self._rings.get(duplicate.origin)
        if ring is None:
            ring = self._rings[duplicate.origin] = deque()
            self.bytes += ORIGIN_BYTES + len(duplicate.origin)
        self._rings.move_to_end(duplicate.origin)
        self._sequences[duplicate] = sequence
        ring.append((record_id, duplicate))
        self.bytes += _bytes(duplicate)
        most = self._size if size is None else size
        forgotten = []
        while len(ring) > most:
            forgotten.append(self._forget_oldest(ring))
        while self.bytes > self._max_bytes:
            origin, ring = next(iter(self._rings.items()))
            forgotten.append(self._forget_oldest(ring))
            if not ring:
                self.forget(origin)
        return forgotten

    def forget(self, origin: str) -> list[int]:
        """Forget all ids of an origin, and return the records to delete."""
        ring = self._rings.pop(origin, None)
        if ring is None:
            return []
        self.bytes -= ORIGIN_BYTES + len(origin)
        return [self._forget_oldest(ring) for _ in range(len(ring))]

    def _forget_oldest(self, ring: deque[tuple[int, Id]]) -> int:
        record_id, oldest = ring.popleft()
        self._sequences.pop(oldest, None)
        self.bytes -= _bytes(oldest)
        return record_id


def _bytes(duplicate: DuplicateId | SentId) -> int:
    return ID_BYTES + (len(duplicate.id) if isinstance(duplicate, SentId) else 0)


def encode_duplicate(duplicate: DuplicateId) -> bytes:
    """The data of its journal record."""
    return _ID.pack(duplicate.record) + duplicate.origin.encode()


def encode_sent(sent: SentId) -> bytes:
    """The data of its journal record."""
    origin = sent.origin.encode()
    return b"%b%b%b" % (_SIZE.pack(len(origin)), origin, sent.id.encode())


def decode_sent(data: bytes) -> SentId:
    """From the data of its journal record."""
    end = _SIZE.size + _SIZE.unpack_from(data)[0]
    return SentId(data[_SIZE.size : end].decode(), data[end:].decode())


def decode_duplicate(data: bytes) -> DuplicateId:
    """From the data of its journal record."""
    return DuplicateId(data[_ID.size :].decode(), _ID.unpack_from(data)[0])
