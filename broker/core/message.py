"""A message as a queue holds it, and its bytes in the journal.

Why the headers are bytes: a message leaves as it came, byte for byte, so its headers are kept as
the STOMP 1.2 header lines in which they travel (escaped, each ended by LF) and are never built
again per delivery. What the broker itself says of a delivery (message-id, ack, redelivered ...)
goes before them and is not part of them.

Records of the journal written by the core (``Operation.kind``); kinds from 32 on are free for
policies:

    QUEUE 1      a queue exists: its name in UTF-8
    MESSAGE 2    see ``encode``; an update is DELIVERIES
    DUPLICATE 3  as FORWARDED, in journals of versions up to 0.2: record id at the sender (u64),
                 sender's node ID in UTF-8
    CLEAN 4      the broker ended cleanly and nothing has happened since
    DELIVERIES 5 update of a message: deliveries (u32), refusals (u32)
    PAGE 6       a run of a queue's messages is in a blob: see ``pages``
    CONSUMED 7   some messages of a page are consumed: the page's record id (u64), their ids (u64
                 each)
    COUNTED 8    a message of a page was delivered: the page's record id, its id or 0 for all of
                 them, deliveries, refusals
    SUBSCRIPTION 9  a subscription to a topic exists, and a queue for it; an update
                 is DROPPED or CLAIMED
    DROPPED 10   update of a subscription or queue: it was dropped with what is still in it
    SENT 11      a client's id of a message was taken: bytes of its destination (u16), destination,
                 id
    CLAIMED 12   update of a subscription that was stored without a login: the login that it belongs
                 to, in UTF-8
    FORWARDED 13  a forwarded message was accepted: its identity (see ``identity``), sender's node
                 ID in UTF-8
    INTEREST 14  another node has lasting subscriptions to a topic: see ``interests``
    KNOWN 15     update of a subscription: since when another node knows of it, see ``interests``
    PREPARED 16  a transaction of another broker is prepared here: see ``two_phase``
    DECIDED 17   a transaction that spans brokers commits: see ``two_phase``
    CHANGE 18    the last change of an entity in the change record of the cluster: see ``changes``
    CHANGE_HEAD 19  how far this broker has the change record
    RESTORED 20  a change record that was restored from a backup, with which the next start begins
    HOST 21      another broker's clients may hold messages of this one: its address in UTF-8
    LIMITS 22    an administrator gave a queue other limits: see ``limit_updates``
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from broker.core.identity import MessageId, packed_bytes, unpack_identity
from broker.core.pages import Page
from broker.core.properties import PACKED_BYTES, Properties, unpack
from broker.core.tested import Tested
from broker.storage.blobs import Blob
from broker.storage.journal import ID_BLOCK_BITS

QUEUE: Final = 1
MESSAGE: Final = 2
DUPLICATE: Final = 3
CLEAN: Final = 4
DELIVERIES: Final = 5
PAGE: Final = 6
CONSUMED: Final = 7
COUNTED: Final = 8
SUBSCRIPTION: Final = 9
DROPPED: Final = 10
SENT: Final = 11
CLAIMED: Final = 12
FORWARDED: Final = 13
INTEREST: Final = 14
KNOWN: Final = 15
PREPARED: Final = 16
DECIDED: Final = 17
CHANGE: Final = 18
CHANGE_HEAD: Final = 19
RESTORED: Final = 20
HOST: Final = 21
LIMITS: Final = 22

HEAD: Final = struct.Struct("<QBHHI")
"""How a message's record begins.

Its queue's record id, flags, and the bytes of group, target and headers, which follow with the
body.
"""
_QUEUE_ID: Final = struct.Struct("<Q")
_COUNTS: Final = struct.Struct("<II")
_STORED: Final = struct.Struct("<QIII")
LARGE: Final = struct.Struct("<QQI")
_CLOSES: Final = 1
_GROUPED: Final = 2
HAS_PROPERTIES: Final = 8
"""Flag of a record with ``properties``, which stand before the body, and behind a file's name."""
HAS_IDENTITY: Final = 16
"""Flag of a record with ``identity``, which stands before the body, and behind all others."""
IS_LARGE: Final = 4
"""Flag of a record whose body is in a file.

Its id, bytes and checksum (LARGE) stand before what is kept of the body.
"""

OVERHEAD: Final = 256
"""Bytes of memory a message costs beside its headers and body, about; counted in ``size``."""


class Message:
    """One message in one queue.

    ``id`` is its record in the journal. ``place`` is its place in its queue, given when it is lined
    up: places grow, so a message that comes back goes before all younger ones. (Ids grow too, but
    those of a broker that was taken over may be lower than what was lined up before.) ``target`` is
    the queue it is meant for, which differs from the one it is in only for store-and-forward
    queues. ``deliveries`` counts dispatches to clients: a message that has any is dispatched as
    ``redelivered``, because an earlier delivery cannot be excluded. ``refusals`` counts those that
    a client refused (NACK, or an ACK it rolled back): only these lead to the dead letters, since a
    lost connection says nothing about the messages that were in flight on it. ``large``: the body
    is in a file, and ``body`` has only its beginning, for who wants to see which message it is.
    ``page``: the page whose blob stores it, None for one with a record of its own. ``held``: it has
    left its lane, or is in no lane yet because it is prepared, and may come back. ``properties``:
    what its client asked for it, None for nothing. ``identity``: its identity between brokers if it
    came from another one; None if it was stored here first, for then the identity follows from
    ``id``.
    """

    __slots__ = (
        "body", "closes", "deliveries", "group", "headers", "held", "id", "identity", "large", "page",
        "place", "properties", "refusals", "size", "target", "tested",
    )  # fmt: skip

    def __init__(
        self,
        target: str,
        headers: bytes,
        body: bytes,
        group: str | None = None,
        *,
        closes: bool = False,
        large: Blob | None = None,
        properties: Properties | None = None,
    ) -> None:
        self.id = 0
        self.target = target
        self.headers = headers
        self.body = body
        self.group = group
        self.closes = closes
        self.large = large
        self.properties = properties
        self.identity: MessageId | None = None
        self.page: Page | None = None
        self.place = 0
        self.deliveries = 0
        self.refusals = 0
        self.held = False
        self.tested: Tested | None = None
        """What its topic's selectors have said, until it is stored."""
        self.size = len(headers) + len(body) + OVERHEAD

    def identity_at(self, node_id: str) -> MessageId:
        """Return the identity between brokers, at the broker with that node ID, which has it."""
        return self.identity or MessageId(node_id, self.id)

    def copy(self, target: str | None = None, extra_headers: bytes = b"") -> Message:
        """The same content as a new message, not yet stored, with an identity of its own."""
        return Message(
            target or self.target,
            extra_headers + self.headers,
            self.body,
            self.group,
            closes=self.closes,
            large=self.large,
            properties=self.properties,
        )


def encode(message: Message, queue_id: int) -> bytes:
    """The message's record in the queue that has that record id."""
    target = message.target.encode()
    group = message.group
    large = message.large
    properties = message.properties
    identity = b"" if message.identity is None else message.identity.packed()
    if group is None and large is None and properties is None:
        head = HEAD.pack(queue_id, HAS_IDENTITY if identity else 0, 0, len(target), len(message.headers))
        return b"".join((head, target, message.headers, identity, message.body))
    name = b"" if group is None else group.encode()
    flags = (group is not None and _GROUPED) | (message.closes and _CLOSES) | (large is not None and IS_LARGE)
    flags |= (properties is not None and HAS_PROPERTIES) | (bool(identity) and HAS_IDENTITY)
    head = HEAD.pack(queue_id, flags, len(name), len(target), len(message.headers))
    file = b"" if large is None else LARGE.pack(*large)
    asked = b"" if properties is None else properties.packed()
    return b"".join((head, name, target, message.headers, file, asked, identity, message.body))


def readdressed(data: bytes, queue_id: int) -> bytes:
    """The record of the same message in another queue."""
    return _QUEUE_ID.pack(queue_id) + data[_QUEUE_ID.size :]


def decode(record_id: int, data: bytes) -> tuple[int, Message]:
    """(record id of its queue, message). The journal's checksums have vouched for ``data``."""
    queue_id, flags, group_size, target_size, headers_size = HEAD.unpack_from(data)
    target_at = HEAD.size + group_size
    headers_at = target_at + target_size
    body_at = headers_at + headers_size
    group = data[HEAD.size : target_at].decode() if flags & _GROUPED else None
    target = data[target_at:headers_at].decode()
    large = None
    file_at = body_at
    if flags & IS_LARGE:
        large = Blob(*LARGE.unpack_from(data, file_at))
        body_at += LARGE.size
    properties = None
    if flags & HAS_PROPERTIES:
        properties = unpack(data, body_at)
        body_at += PACKED_BYTES
    identity = None
    if flags & HAS_IDENTITY:
        identity, body_at = unpack_identity(data, body_at)
    message = Message(
        target,
        data[headers_at:file_at],
        data[body_at:],
        group,
        closes=bool(flags & _CLOSES),
        large=large,
        properties=properties,
    )
    message.id = record_id
    message.identity = identity
    return queue_id, message


def encode_stored(message: Message, queue_id: int) -> bytes:
    """A message as it stands in the blob of a page."""
    data = encode(message, queue_id)
    return _STORED.pack(message.id, message.deliveries, message.refusals, len(data)) + data


def decode_stored(page: Page, data: bytes) -> Iterator[Message]:
    """Messages of a page that are not consumed, oldest first; a checksum has vouched for them."""
    position = 0
    while position < len(data):
        id_, deliveries, refusals, size = _STORED.unpack_from(data, position)
        position += _STORED.size + size
        if id_ in page.consumed:
            continue
        _, message = decode(id_, data[position - size : position])
        message.deliveries, message.refusals = page.counts.get(id_, (deliveries, refusals))
        message.deliveries = max(message.deliveries, page.least_deliveries)
        message.page = page
        yield message


def stored_size(data: bytes) -> int:
    """``Message.size`` of an encoded one."""
    flags: int
    group_size: int
    target_size: int
    headers_size: int
    _, flags, group_size, target_size, headers_size = HEAD.unpack_from(data)
    beside = HEAD.size + group_size + target_size
    return len(data) - beside - optional_bytes(data, flags, beside + headers_size) + OVERHEAD


def optional_bytes(data: bytes, flags: int, position: int) -> int:
    """Return the bytes of a record from that position, behind its headers, to its body."""
    size = (LARGE.size if flags & IS_LARGE else 0) + (PACKED_BYTES if flags & HAS_PROPERTIES else 0)
    return size + packed_bytes(data, position + size) if flags & HAS_IDENTITY else size


def block(id_: int) -> int:
    """The opening of a journal that gave this id out.

    Ids say who is older within a block; across blocks a message that was taken over may come later.
    """
    return id_ >> ID_BLOCK_BITS


def encode_counts(message: Message) -> bytes:
    """The DELIVERIES update with the message's present counts."""
    return _COUNTS.pack(message.deliveries, message.refusals)


def decode_counts(data: bytes) -> tuple[int, int]:
    """(deliveries, refusals) of a DELIVERIES update."""
    deliveries, refusals = _COUNTS.unpack(data)
    return deliveries, refusals
