"""What a message's body says.

Who it is, so that a delivery is judged by what arrived and not by its headers.

Layout: ``jr1 <message> <producer> <sequence> <queue> <group> `` in ASCII, a note where a workload
has one, then padding of dots. A message without a group has ``-`` there. The digest is the CRC-32C
of the whole body, padding included, so that damage anywhere shows (``corrupted``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google_crc32c import value as _crc32c

MAGIC: Final = b"jr1"
NO_GROUP: Final = b"-"
PRODUCER_SHIFT: Final = 40
"""A message id is ``producer << 40 | counter``.

Unique without asking anybody, 63 bits, and its producer can be read off it.
"""
PRODUCER_MAX: Final = (1 << 63 - PRODUCER_SHIFT) - 1
_MESSAGE_MAX: Final = (1 << 63) - 1


class Payload(NamedTuple):
    """What a body says of itself."""

    message: int
    queue: str
    group: str | None
    producer: int
    sequence: int


class Writer:
    """Bodies of one producer for one queue and group; what they have in common is made once.

    ``large_share`` of them, evenly spread over the sequence, are ``large_bytes`` long instead of
    ``payload_bytes``. Raises ValueError for a name with a space or beyond ASCII, or a group that is
    called "-".
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
        """The body of one message, at least ``payload_bytes`` (or ``large_bytes``) long.

        ``note`` is what it says behind who it is, for people.
        """
        size, share = self._bytes, self._large_share
        if share and int((sequence + 1) * share) > int(sequence * share):
            size = self._large_bytes
        return (b"jr1 %d %d %d%b" % (message, self._producer, sequence, self._tail) + note).ljust(size, b".")


def encode(payload: Payload, payload_bytes: int = 0) -> bytes:
    """One body."""
    writer = Writer(payload.producer, payload.queue, payload.group, payload_bytes)
    return writer.encode(payload.message, payload.sequence)


def decode(body: bytes) -> Payload | None:
    """What a body says; None for one that is not ours.

    Or that is damaged beyond reading (``unreadable`` has words for it).
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
    """CRC-32C of a body, unsigned."""
    return _crc32c(body)  # type: ignore[no-any-return]


def unreadable(body: bytes) -> str:
    """Why there is no message id in a row: the body's length and beginning."""
    return f"unreadable body of {len(body)} bytes: {body[:32]!r}"
