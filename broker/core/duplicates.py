"""Which forwarded messages were already taken, so that a bridge may repeat itself.

Why: a bridge that loses its connection cannot know whether its last message arrived and must send
it again. The receiver writes the origin's id of the message into the same journal entry as the
message itself, so both survive or neither does, and remembers the last 20,000 of each origin (the
size of Artemis' duplicate id cache, ``id-cache-size``).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, NamedTuple

RING_SIZE: Final = 20_000

_ID: Final = struct.Struct("<Q")


class DuplicateId(NamedTuple):
    """Who first took a message, and the id of its record there: unique in the cluster for ever."""

    origin: str
    record: int


class Duplicates:
    """The ids remembered, by origin, with the sequence of the entry that took it (0: recovered)."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self._size = size
        self._sequences: dict[DuplicateId, int] = {}
        self._rings: dict[str, deque[tuple[int, DuplicateId]]] = {}

    def sequence(self, duplicate: DuplicateId) -> int | None:
        """The sequence of the entry that accepted it; None: never seen, or forgotten."""
        return self._sequences.get(duplicate)

    def accepted(self, duplicate: DuplicateId, sequence: int) -> None:
        """The entry that accepted it is known."""
        self._sequences[duplicate] = sequence

    def remember(self, duplicate: DuplicateId, record_id: int, sequence: int) -> int | None:
        """Remember an id; the record id to be deleted for it where its origin's ring is full."""
        ring = self._rings.get(duplicate.origin)
        if ring is None:
            ring = self._rings[duplicate.origin] = deque()
        self._sequences[duplicate] = sequence
        ring.append((record_id, duplicate))
        if len(ring) <= self._size:
            return None
        oldest_id, oldest = ring.popleft()
        del self._sequences[oldest]
        return oldest_id


def encode_duplicate(duplicate: DuplicateId) -> bytes:
    """The data of its journal record."""
    return _ID.pack(duplicate.record) + duplicate.origin.encode()


def decode_duplicate(data: bytes) -> DuplicateId:
    """From the data of its journal record."""
    return DuplicateId(data[_ID.size :].decode(), _ID.unpack_from(data)[0])
