"""Which messages were already taken, so that a bridge or a client may repeat itself.

Why: a bridge that loses its connection cannot know whether its last message arrived and must send
it again. The receiver writes the origin's id of the message into the same journal entry as the
message itself, so both survive or neither does, and remembers the last 20,000 of each origin (the
size of Artemis' duplicate id cache, ``id-cache-size``). What a client sends with an id of its own
(``_AMQ_DUPL_ID``) is remembered in the same way, for each destination.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

RING_SIZE: Final = 20_000

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
    """The ids remembered, by origin, with the sequence of the entry that took it (0: recovered)."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self._size = size
        self._sequences: dict[Id, int] = {}
        self._rings: dict[str, deque[tuple[int, Id]]] = {}

    def sequence(self, duplicate: Id) -> int | None:
        """The sequence of the entry that accepted it; None: never seen, or forgotten."""
        return self._sequences.get(duplicate)

    def accepted(self, duplicate: Id, sequence: int) -> None:
        """The entry that accepted it is known."""
        self._sequences[duplicate] = sequence

    def remember(self, duplicate: Id, record_id: int, sequence: int, size: int | None = None) -> list[int]:
        """Remember an id; the records to delete for it where its origin has more than ``size``."""
        most = self._size if size is None else size
        ring = self._rings.get(duplicate.origin)
        if ring is None:
            ring = self._rings[duplicate.origin] = deque()
        self._sequences[duplicate] = sequence
        ring.append((record_id, duplicate))
        forgotten = []
        while len(ring) > most:
            oldest_id, oldest = ring.popleft()
            self._sequences.pop(oldest, None)
            forgotten.append(oldest_id)
        return forgotten

    def forget(self, origin: str) -> list[int]:
        """All of an origin; the records to be deleted."""
        ring = self._rings.pop(origin, ())
        for _, duplicate in ring:
            self._sequences.pop(duplicate, None)
        return [record_id for record_id, _ in ring]


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
