"""The identity of a message between brokers.

Why three parts: a broker that stores a message first knows it by its own node ID and by the record
in its journal, and another broker that it is sent to twice recognises it by both. A message may
come back to a broker that it has left, though: by (origin, record) alone that broker would take it
for a repeat, and the message would be lost. So each time it leaves a main queue for another broker
it gets another identity, with ``moves`` increased. In a store-and-forward queue it keeps the one it
has, since all attempts to forward it must be recognised as the same message.

Why ``hops``, too: brokers in between pass a message on, and when links end and begin, it may pass
one of them twice. That broker would take it for a repeat, and the message would be lost. So each
broker that passes it on knows it by one hop more. Its destination knows it without hops: of two
copies that came by different ways it takes one.

Packed: record u64, steps u32, bytes of the node ID u16, the node ID in UTF-8. Steps are the moves
(24 bits) and, above them, the hops (8 bits), so that an identity without hops is as it always was.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

import msgspec
from msgspec import Meta

_HEAD: Final = struct.Struct("<QIH")
_HOP_BIT: Final = 24
"""The lowest bit of the hops in ``steps``."""
_MOVES: Final = (1 << _HOP_BIT) - 1

Name = Annotated[str, Meta(max_length=(2**16 - 1) // 4)]
"""A text whose UTF-8 always fits into a record that counts its bytes as u16."""
Count = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""A number that fits into a record as u32."""


class MessageId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity of a message: unique in the cluster for ever.

    ``origin`` is the node ID of the broker that stored it first, ``record`` its record there.
    ``moves`` says how often it has left a main queue for another broker, and ``hops`` how many
    brokers have passed it on since then; both are in ``steps``.

    It is no NamedTuple because there is one for each forwarded message in memory, and the garbage
    collector would look at all of them again and again.
    """

    origin: Name
    record: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    steps: Count = 0

    @property
    def moves(self) -> int:
        """The number of times that the message has left a main queue for another broker."""
        return self.steps & _MOVES

    @property
    def hops(self) -> int:
        """The number of brokers that have passed the message on since it left a main queue."""
        return self.steps >> _HOP_BIT

    def moved(self) -> MessageId:
        """Return the identity under which the message leaves a main queue for another broker."""
        return MessageId(self.origin, self.record, self.moves + 1)

    def passed(self) -> MessageId:
        """Return the identity that the message has at a broker that is to pass it on."""
        return MessageId(self.origin, self.record, self.steps + (1 << _HOP_BIT))

    def arrived(self) -> MessageId:
        """Return the identity that the message has at its destination."""
        return MessageId(self.origin, self.record, self.moves) if self.hops else self

    def packed(self) -> bytes:
        """Return the identity as it stands in a record of the journal."""
        origin = self.origin.encode()
        return _HEAD.pack(self.record, self.steps, len(origin)) + origin


def unpack_identity(data: bytes, position: int = 0) -> tuple[MessageId, int]:
    """Return the identity at that position of a record, and the position behind it."""
    record, steps, size = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    return MessageId(data[start : start + size].decode(), record, steps), start + size


def packed_bytes(data: bytes, position: int) -> int:
    """Return how many bytes the identity at that position of a record has."""
    size: int
    _, _, size = _HEAD.unpack_from(data, position)
    return _HEAD.size + size
