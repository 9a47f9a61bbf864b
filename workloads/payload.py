"""The body of a message, which identifies the message.

Why: a delivery is then judged by the body that arrived, and not by its headers.

Layout: ``jr1 <message> <producer> <sequence> <queue> <group> `` in ASCII, a note where a workload
has one, then padding of dots. A message without a group has ``-`` for it. The digest is the CRC-32C
of the whole body, padding included, so that damage anywhere shows (``corrupted``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google_crc32c import value as _crc32c

MAGIC: Final = b"jr1"
NO_GROUP: Final = b"-"
PRODUCER_SHIFT: Final = 40
"""The shift of the producer's number in a message id, ``producer << 40 | counter``.

So ids of 63 bits are unique without any coordination, and the producer can be read off them.
"""
PRODUCER_MAX: Final = (1 << 63 - PRODUCER_SHIFT) - 1
_MESSAGE_MAX: Final = (1 << 63) - 1


class Payload(NamedTuple):
    """The identity of a message, as its body says it."""

    message: int
    queue: str
    group: str | None
    producer: int
    sequence: int


class Writer:
    """A writer of the bodies of one producer for one queue and group.

    The text that the bodies share is made once. A share of them, ``large_share``, evenly spread
    over the sequence, is ``large_bytes`` long instead of ``payload_bytes``. Raises ValueError for a
    name with a space or beyond ASCII, or a group that is called "-".
    """

    __slots__ = ("_bytes", "_large_bytes", "_large_share", "_producer", "_tail")

    def __init__(
        self,
        producer: int,
        queue: str,
        group: str | None,
        payload_bytes: int,
        *,
        large_share: float = 0.0,
        large_bytes: int = 0,
    ) -> None:
        if group == NO_GROUP.decode():
            raise ValueError('a group cannot be called "-": it stands for none')
        names = (queue, group or "-")
        for name in names:
            if not name or not name.isascii() or not name.isprintable() or " " in name:
                raise ValueError(f"{name!r} is no name for a queue or group: ASCII without spaces")
        self._producer = producer
        self._tail = f" {names[0]} {names[1]} ".encode()
        self._bytes = payload_bytes
        self._large_share = large_share
        self._large_bytes = large_bytes

    def encode(self, message: int, sequence: int, note: bytes = b"") -> bytes:
        """Return the body of a message, at least ``payload_bytes`` (or ``large_bytes``) long.

        ``note`` follows the identity of the message, for people.
        """
        size, share = self._bytes, self._large_share
        if share and int((sequence + 1) * share) > int(sequence * share):
            size = self._large_bytes
        return (b"jr1 %d %d %d%b" % (message, self._producer, sequence, self._tail) + note).ljust(size, b".")


def encode(payload: Payload, payload_bytes: int = 0) -> bytes:
    """Return the body of a message."""
    writer = Writer(payload.producer, payload.queue, payload.group, payload_bytes)
    return writer.encode(payload.message, payload.sequence)


def decode(body: bytes) -> Payload | None:
    """Return the identity in a body; None for a body that is not ours or cannot be read.

    ``unreadable`` has words for such a body.
    """
    parts = body.split(b" ", 6)
    if len(parts) != 7 or parts[0] != MAGIC:
        return None
    _, message, producer, sequence, queue, group, _ = parts
    if (
        not (message.isdigit() and producer.isdigit() and sequence.isdigit())
        or max(map(len, parts[1:4])) > 19
    ):
        return None
    number = int(message)
    if number > _MESSAGE_MAX or int(sequence) > _MESSAGE_MAX or int(producer) > PRODUCER_MAX:
        return None
    try:
        return Payload(
            number,
            queue.decode("ascii"),
            None if group == NO_GROUP else group.decode("ascii"),
            int(producer),
            int(sequence),
        )
    except UnicodeDecodeError:
        return None


def digest(body: bytes) -> int:
    """Return the CRC-32C of a body, unsigned."""
    return _crc32c(body)  # type: ignore[no-any-return]


def unreadable(body: bytes) -> str:
    """Return why a row has no message id: the body's length and beginning."""
    return f"unreadable body of {len(body)} bytes: {body[:32]!r}"
