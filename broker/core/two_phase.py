"""Records of transactions that span brokers (two-phase commit with presumed abort).

The client's broker coordinates: each other broker that holds messages of the transaction *prepares*
its part, then the coordinator *decides*, then it tells all of them. A broker that has prepared may
no longer decide alone; a coordinator that has not decided, and does not know the transaction any
more, has rolled it back. So only two things are ever stored, and both for a short time:

    PREPARED   at a participant, until it knows the outcome: ``number of the transaction u64,
               milliseconds since the epoch u64, bytes of the coordinator's node ID u16``, the node
               ID in UTF-8, then for each message ``its id u64, the record id of its page u64 (0: it
               has a record of its own), what is to become of it u8`` (``Settlement``)
    DECIDED    at the coordinator, which commits: until all participants have done so, too:
               ``number u64, milliseconds u64``, then for each participant ``bytes of its node ID
               u16``, the node ID in UTF-8
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from broker.core.identity import Name

_PREPARED: Final = struct.Struct("<QQH")
_PART: Final = struct.Struct("<QQB")
_DECIDED: Final = struct.Struct("<QQ")
_SIZE: Final = struct.Struct("<H")


class TransactionId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity of a transaction that spans brokers: unique in the cluster for ever.

    ``coordinator`` is the node ID of the client's broker, ``number`` an id of its journal.
    """

    coordinator: Name
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]

    def __str__(self) -> str:
        return f"{self.coordinator}-{self.number}"


def parse_transaction_id(text: str) -> TransactionId | None:
    """Return the transaction ID that ``str`` has shown so; None for any other text."""
    coordinator, _, number = text.rpartition("-")
    if not (coordinator and number.isascii() and number.isdecimal() and int(number) < 2**63):
        return None
    return TransactionId(coordinator, int(number))


Outcome = Literal["committed", "rolled back", "open"]
"""What became of a transaction, as its coordinator knows; open: it has not decided yet."""


class Settlement(enum.IntEnum):
    """The fate of a message when its transaction commits."""

    ACKNOWLEDGE = 1
    REFUSE = 2
    GIVE_UP = 3
    """Refuse it for good: it becomes a dead letter, however often it was refused before."""


class PreparedMessage(NamedTuple):
    """A message of a PREPARED record; ``page`` is 0 if it has a record of its own."""

    id: int
    page: int
    settlement: Settlement


class PreparedRecord(NamedTuple):
    """A PREPARED record, as it was read."""

    record_id: int
    id: TransactionId
    since: int
    messages: list[PreparedMessage]


class Decision(NamedTuple):
    """A DECIDED record: that transaction commits, and these nodes have to be told."""

    record_id: int
    id: TransactionId
    since: int
    homes: tuple[str, ...]


def encode_prepared(id_: TransactionId, since: int, messages: Iterable[PreparedMessage]) -> bytes:
    """Return the data of a PREPARED record."""
    coordinator = id_.coordinator.encode()
    head = _PREPARED.pack(id_.number, since, len(coordinator))
    return b"".join((head, coordinator, *(_PART.pack(*message) for message in messages)))


def decode_prepared(record_id: int, data: bytes) -> PreparedRecord:
    """Return the content of a PREPARED record."""
    number, since, size = _PREPARED.unpack_from(data)
    end = _PREPARED.size + size
    id_ = TransactionId(data[_PREPARED.size : end].decode(), number)
    messages = [
        PreparedMessage(message, page, Settlement(settlement))
        for message, page, settlement in _PART.iter_unpack(data[end:])
    ]
    return PreparedRecord(record_id, id_, since, messages)


def encode_decided(decision: Decision) -> bytes:
    """Return the data of a DECIDED record; its coordinator is the broker that stores it."""
    parts = [_DECIDED.pack(decision.id.number, decision.since)]
    for home in decision.homes:
        name = home.encode()
        parts += (_SIZE.pack(len(name)), name)
    return b"".join(parts)


def decode_decided(record_id: int, data: bytes, coordinator: str) -> Decision:
    """Return the content of a DECIDED record of the broker with that node ID."""
    number, since = _DECIDED.unpack_from(data)
    homes = []
    position = _DECIDED.size
    while position < len(data):
        start = position + _SIZE.size
        position = start + _SIZE.unpack_from(data, position)[0]
        homes.append(data[start:position].decode())
    return Decision(record_id, TransactionId(coordinator, number), since, tuple(homes))
