"""The fast way through a slice of a segment, for recovery.

Entries that add or delete one record, which nearly all entries are.

Why apart from ``entry.decode_frames``: a start-up looks at every entry that was ever written and
not yet compacted away, and does nothing else meanwhile. One unpacking per entry, one checksum, and
straight into the tables, without a frame and an operation as objects in between, is four times as
fast. Whatever is not of that shape, or is not as it should be, is left where it stands for the way
that knows every shape and every error.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

import google_crc32c

from broker.storage.entry import ADD, DELETE, FRAME_SIZE, MARK, OPERATION_SIZE, Header, encode_mark
from broker.storage.liveness import SIZE_BITS, SIZE_MASK
from broker.storage.records import Record

_ENTRY: Final = struct.Struct("<IIQBBQI")
_CONTENT: Final = _ENTRY.size - FRAME_SIZE
"""Bytes of an entry's content before the data of its only operation."""


class Tables(Protocol):
    """What a scan fills: see ``recovery.Image`` and ``liveness.Liveness``.

    ``last`` is the last sequence, ``ids`` the highest id added.
    """

    @property
    def places(self) -> dict[int, int | tuple[int, ...]]:
        """Where each live record's bytes lie."""
        ...

    @property
    def live_bytes(self) -> dict[int, int]:
        """Live bytes of each segment."""
        ...

    records: dict[int, Record] | None
    last: int
    ids: int


def scan(
    tables: Tables, data: bytes, position: int, offset: int, header: Header, ordinal: int
) -> tuple[int, bool]:
    """Account for the frames of ``data`` from ``position`` on.

    (where it stopped, whether the last one was a mark).

    ``data`` begins at ``offset`` of its file, ``ordinal`` is its segment's. Stops, without an
    error, before the first frame that is cut by the end of ``data``, has a wrong checksum or
    sequence, is neither a mark nor an entry of one ADD or DELETE, or says what cannot be.
    """
    unpack, checksum, make = _ENTRY.unpack_from, google_crc32c.value, tuple.__new__
    places, records = tables.places, tables.records
    last, compacted, first = tables.last, header.last, header.first
    here = ordinal << SIZE_BITS
    added = 0
    highest = tables.ids
    marked = False
    end = len(data)
    latest = end - _ENTRY.size
    while position <= latest:
        length, crc, sequence, action, kind, id_, size = unpack(data, position)
        start = position + FRAME_SIZE
        stop = start + length
        if stop > end:
            break
        if length != size + _CONTENT or not (
            last < sequence <= compacted if compacted else sequence == last + 1
        ):
            if sequence != MARK or data[position:stop] != encode_mark(offset + position, first):
                break
            marked = True
            position = stop
            continue
        if action == ADD:
            if id_ in places or checksum(data[start:stop]) != crc:
                break
            size += OPERATION_SIZE
            places[id_] = here | size
            added += size
            if id_ > highest:  # noqa: PLR1730 - max() takes three times as long, a million times
                highest = id_
            if records is not None:
                records[id_] = make(Record, (id_, kind, data[start + _CONTENT : stop], ()))
        elif action == DELETE:
            place = places.get(id_)
            if not isinstance(place, int) or checksum(data[start:stop]) != crc:
                break  # dead already, or with parts in several segments: rare
            del places[id_]
            if place >> SIZE_BITS == ordinal:
                added -= place & SIZE_MASK
            else:
                tables.live_bytes[place >> SIZE_BITS] -= place & SIZE_MASK
            if records is not None:
                del records[id_]
        else:
            break
        last = sequence
        marked = False
        position = stop
    tables.live_bytes[ordinal] += added
    tables.last = last
    tables.ids = highest
    return position, marked
