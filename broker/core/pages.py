"""Pages: runs of a queue's messages that wait on the disk and take no memory.

``address-full-policy`` PAGE; ``paging`` in AMQ 17.3.2.

Why a message moves there from the journal and not at once: its receipt waits for one sync as ever,
whether or not the queue is full; a page is written when there is enough for one, off the way of any
client. It takes the place of its messages' records, so that a start reads one record instead of
thousands, and a compaction has nothing to copy.

The record PAGE is ``queue's record id u64, blob (id u64, bytes u64, CRC-32C u32), id of the oldest
message u64, messages u32``, then for each large message among them ``its id u64, its body's blob``.
The blob is a message after the other: ``id u64, deliveries u32, refusals u32, bytes u32`` and the
bytes of ``message.encode``. What has become of single messages since is told by records of their
own (CONSUMED, COUNTED), the page's *marks*, which end with it: so a page may be kept wherever
records are, with as many readers as there are consumers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from broker.storage.blobs import Blob
from broker.storage.records import Record

_PAGE: Final = struct.Struct("<QQQIQI")
_LARGE: Final = struct.Struct("<QQQI")
_COUNTED: Final = struct.Struct("<QQII")
_ID: Final = struct.Struct("<Q")


class Page:
    """One page that a queue waits for.

    ``id`` is its record's, ``first`` that of its oldest message, ``left`` how many are not
    consumed.

    ``consumed`` and ``counts`` (deliveries and refusals by message id) are what its marks, records
    of the ids ``marks``, say; ``large`` are the bodies that its messages name, by message id.
    ``least_deliveries``: each was delivered so often at the least.
    """

    __slots__ = (
        "blob",
        "consumed",
        "counts",
        "first",
        "id",
        "large",
        "least_deliveries",
        "left",
        "marks",
        "prepared",
    )

    def __init__(self, id_: int, blob: Blob, first: int, left: int, large: dict[int, Blob]) -> None:
        self.id = id_
        self.blob = blob
        self.first = first
        self.left = left
        self.large = large
        self.consumed: dict[int, None] = {}
        self.counts: dict[int, tuple[int, int]] = {}
        self.marks: list[int] = []
        self.least_deliveries = 0
        self.prepared = False
        """True if some of its messages are in a prepared transaction, and the page was not read."""

    def consume(self, ids: Iterable[int]) -> None:
        """A CONSUMED record says so."""
        for message_id in ids:
            self.consumed[message_id] = None
            self.large.pop(message_id, None)
            self.left -= 1

    def count(self, message_id: int, deliveries: int, refusals: int) -> None:
        """A COUNTED record says so."""
        if message_id:
            self.counts[message_id] = deliveries, refusals
        else:
            self.least_deliveries = max(self.least_deliveries, deliveries)


def encode_page(page: Page, queue_id: int) -> bytes:
    """The page's record in the queue that has that record id."""
    large = [_LARGE.pack(message_id, *blob) for message_id, blob in page.large.items()]
    return b"".join((_PAGE.pack(queue_id, *page.blob, page.first, page.left), *large))


def decode_page(record: Record) -> tuple[int, Page]:
    """(record id of its queue, page)."""
    data = record.data
    queue_id, blob_id, size, checksum, first, left = _PAGE.unpack_from(data)
    large = {message_id: Blob(*blob) for message_id, *blob in _LARGE.iter_unpack(data[_PAGE.size :])}
    return queue_id, Page(record.id, Blob(blob_id, size, checksum), first, left, large)


def encode_consumed(page: Page, ids: Iterable[int]) -> bytes:
    """These messages of the page are consumed."""
    return b"".join((_ID.pack(page.id), *map(_ID.pack, ids)))


def decode_consumed(data: bytes) -> tuple[int, list[int]]:
    """(page's record id, ids of messages)."""
    page_id, *ids = (id_ for (id_,) in _ID.iter_unpack(data))
    return page_id, ids


def encode_counted(page: Page, message_id: int, deliveries: int, refusals: int) -> bytes:
    """So often was this message delivered and refused; 0: each of the page's, at the least."""
    return _COUNTED.pack(page.id, message_id, deliveries, refusals)


def decode_counted(data: bytes) -> tuple[int, int, int, int]:
    """(page's record id, message id, deliveries, refusals)."""
    page_id, message_id, deliveries, refusals = _COUNTED.unpack(data)
    return page_id, message_id, deliveries, refusals
