"""The identity of a message between brokers.

Why three parts: a broker that stores a message first knows it by its own node ID and by the record
in its journal, and another broker that it is sent to twice recognises it by both. A message may
come back to a broker that it has left, though: by (origin, record) alone that broker would take it
for a repeat, and the message would be lost. So each time it leaves a main queue for another broker
it gets another identity, with ``moves`` increased. In a store-and-forward queue it keeps the one it
has, since all attempts to forward it must be recognised as the same message.

Packed: record u64, moves u32, bytes of the node ID u16, the node ID in UTF-8.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

import msgspec
from msgspec import Meta

_HEAD: Final = struct.Struct("<QIH")

Name = Annotated[str, Meta(max_length=(2**16 - 1) // 4)]
"""A text whose UTF-8 always fits into a record that counts its bytes as u16."""
Count = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""A number that fits into a record as u32."""


class MessageId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity of a message: unique in the cluster for ever.

    ``origin`` is the node ID of the broker that stored it first, ``record`` its record there, and
    ``moves`` how often it has left a main queue for another broker.

    It is no NamedTuple because there is one for each forwarded message in memory, and the garbage
    collector would look at all of them again and again.
    """

    origin: Name
    record: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    moves: Count = 0

    def moved(self) -> MessageId:
        """Return the identity under which the message leaves a main queue for another broker."""
        return MessageId(self.origin, self.record, self.moves + 1)

    def packed(self) -> bytes:
        """Return the identity as it stands in a record of the journal."""
        origin = self.origin.encode()
        return _HEAD.pack(self.record, self.moves, len(origin)) + origin


def unpack_identity(data: bytes, position: int = 0) -> tuple[MessageId, int]:
    """Return the identity at that position of a record, and the position behind it."""
    record, moves, size = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    return MessageId(data[start : start + size].decode(), record, moves), start + size


def packed_bytes(data: bytes, position: int) -> int:
    """Return how many bytes the identity at that position of a record has."""
    size: int
    _, _, size = _HEAD.unpack_from(data, position)
    return _HEAD.size + size
