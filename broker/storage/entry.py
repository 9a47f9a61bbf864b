"""The format of a journal on disk: frames, entries, marks and segment headers. No I/O.

A *frame* is ``length u32, crc32c u32, content``, little endian; the checksum covers the content, so
a wrong length shows as a wrong checksum. The content is one of
- an *entry*: ``sequence u64``, then operations ``action u8, kind u8, id u64, size u32, data``.
  It is read as a whole or not at all.
- a *mark*: the sequence ``MARK``, a magic word, its own offset in the file and the file's first
  sequence. It says that everything before it in this file had reached the disk when it was written.
  It tells a torn tail (bad bytes and no mark after them: never acknowledged) from damage (bad bytes
  with a mark after them: data that was synced is gone). An entry after the bad bytes proves
  nothing: a disk may keep any sectors of an unsynced write.

A *segment* is a header of ``HEADER_SIZE`` bytes, then frames.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import google_crc32c

ADD: Final = 1
UPDATE: Final = 2
DELETE: Final = 3

OPERATION_SIZE: Final = 14
"""The bytes of an operation without its data."""

MARK: Final = 2**64 - 1
HEADER_SIZE: Final = 64

_MAGIC: Final = b"brokerd journal\n"
_MARK_MAGIC: Final = b"synced up to me\n"
_VERSION: Final = 1

_FRAME: Final = struct.Struct("<II")
_SEQUENCE: Final = struct.Struct("<Q")
_OPERATION: Final = struct.Struct("<BBQI")
_FIRST: Final = struct.Struct("<QBBQI")
_MARK: Final = struct.Struct("<Q16sQQ")
_HEADER: Final = struct.Struct("<16sIIQQQ8x")
_MARK_START: Final = _SEQUENCE.pack(MARK) + _MARK_MAGIC

FRAME_SIZE: Final = _FRAME.size
MARK_SIZE: Final = FRAME_SIZE + _MARK.size
ENTRY_SIZE_MAX: Final = 2**31

_crc = google_crc32c.value


class Operation(NamedTuple):
    """A change of one record; several changes in one entry happen together or not at all."""

    action: int
    kind: int
    id: int
    data: bytes = b""


class Header(NamedTuple):
    """The first bytes of a segment.

    ``first`` is the sequence of the first entry that belongs to it. ``last`` is 0 in a log segment.
    In a compacted one it is the last sequence whose effects are in it, and segments with a lower
    ``first`` are obsolete. ``ids`` is the lowest id that had never been given out when the segment
    was begun.
    """

    first: int
    last: int
    ids: int


class BadFrameError(ValueError):
    """The bytes at ``offset`` of their file are not a frame."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"at offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


def encode_entry(sequence: int, operations: Sequence[Operation]) -> bytes:
    """Return one frame. Raises ValueError for no operation, or for values out of their ranges."""
    try:
        if len(operations) == 1:
            action, kind, id_, data = operations[0]
            content = _FIRST.pack(sequence, action, kind, id_, len(data)) + data
        else:
            if not operations:
                raise ValueError("an entry needs at least one operation")
            pack = _OPERATION.pack
            parts = [_SEQUENCE.pack(sequence)]
            for action, kind, id_, data in operations:
                parts.append(pack(action, kind, id_, len(data)))
                parts.append(data)
            content = b"".join(parts)
    except struct.error as error:
        raise ValueError(f"entry {sequence}: {error}") from None
    if len(content) > ENTRY_SIZE_MAX:
        raise ValueError(f"entry {sequence} has {len(content)} bytes; at most {ENTRY_SIZE_MAX} are possible")
    return _FRAME.pack(len(content), _crc(content)) + content


def decode_entry(entry: bytes) -> tuple[int, list[Operation]]:
    """Return (sequence, operations) of an encoded entry.

    Raises BadFrameError, with offsets within the entry.
    """
    if len(entry) < FRAME_SIZE:
        raise BadFrameError(0, f"{len(entry)} bytes are no entry")
    length, crc = _FRAME.unpack_from(entry)
    if length != len(entry) - FRAME_SIZE:
        raise BadFrameError(0, f"an entry of {len(entry)} bytes says that it has {length + FRAME_SIZE}")
    content = entry[FRAME_SIZE:]
    if _crc(content) != crc:
        raise BadFrameError(0, "the checksum does not match")
    return _operations(content, 0)


def encode_mark(offset: int, first: int) -> bytes:
    """Return the mark for ``offset`` of the segment that begins with sequence ``first``."""
    content = _MARK.pack(MARK, _MARK_MAGIC, offset, first)
    return _FRAME.pack(len(content), _crc(content)) + content


def encode_header(header: Header) -> bytes:
    """Return a header, exactly HEADER_SIZE bytes."""
    body = _HEADER.pack(_MAGIC, _VERSION, HEADER_SIZE, *header)
    return body + _SEQUENCE.pack(_crc(body))


def decode_header(data: bytes) -> Header:
    """Return the header at the start of a segment. Raises BadFrameError."""
    if len(data) < HEADER_SIZE:
        raise BadFrameError(len(data), f"the header ends after {len(data)} of {HEADER_SIZE} bytes")
    body = data[: HEADER_SIZE - 8]
    if data[HEADER_SIZE - 8 : HEADER_SIZE] != _SEQUENCE.pack(_crc(body)):
        raise BadFrameError(0, "the header's checksum does not match")
    magic, version, _, first, last, ids = _HEADER.unpack(body)
    if magic != _MAGIC or version != _VERSION:
        raise BadFrameError(
            0, f"not a journal segment of version {_VERSION} (magic {magic!r}, version {version})"
        )
    return Header(first, last, ids)


class JournalFrame(NamedTuple):
    """A frame of ``size`` bytes: an entry, or a mark (sequence MARK, no operations)."""

    sequence: int
    size: int
    operations: list[Operation]


def decode_frames(
    data: bytes, offset: int, first: int, file_size: int
) -> tuple[list[JournalFrame], BadFrameError | None]:
    """Return the whole frames at the start of ``data``, which begins at ``offset`` of its file.

    A frame that is merely cut by the end of ``data`` is left for the next call. Bytes that cannot
    be a frame come back as the error, after the good frames before them.
    """
    frames: list[JournalFrame] = []
    position = 0
    end = len(data)
    unpack = _FRAME.unpack_from
    while position < end:
        here = offset + position
        if file_size - here < FRAME_SIZE:
            return frames, BadFrameError(
                here, f"the file ends within a frame, after {file_size - here} bytes of it"
            )
        if end - position < FRAME_SIZE:
            break
        length, crc = unpack(data, position)
        if length > file_size - here - FRAME_SIZE:
            return frames, BadFrameError(here, f"a frame of {length} bytes would pass the end of the file")
        start = position + FRAME_SIZE
        if start + length > end:
            break
        content = data[start : start + length]
        if _crc(content) != crc:
            return frames, BadFrameError(here, "the checksum does not match")
        try:
            sequence, operations = _operations(content, here)
        except BadFrameError as error:
            return frames, error
        if sequence == MARK and content != _MARK.pack(MARK, _MARK_MAGIC, here, first):
            return frames, BadFrameError(here, "a mark that belongs elsewhere")
        frames.append(JournalFrame(sequence, FRAME_SIZE + length, operations))
        position = start + length
    return frames, None


def find_mark(data: bytes, offset: int, first: int) -> int | None:
    """Return where the first valid mark at or after ``offset`` is; None if there is none.

    ``offset`` is where ``data`` begins in its file.
    """
    position = data.find(_MARK_START, FRAME_SIZE)
    while position >= 0:
        start = position - FRAME_SIZE
        if data[start : start + MARK_SIZE] == encode_mark(offset + start, first):
            return offset + start
        position = data.find(_MARK_START, position + 1)
    return None


def _operations(content: bytes, offset: int) -> tuple[int, list[Operation]]:
    """Parse content whose checksum is right; any error in it was made when it was written."""
    size = len(content)
    if size < 8:
        raise BadFrameError(offset, f"a frame of {size} bytes holds no sequence")
    sequence: int
    if size >= 22:
        sequence, action, kind, id_, length = _FIRST.unpack_from(content)
        if sequence == MARK:
            return MARK, []
        end = 22 + length
        if end == size and ADD <= action <= DELETE:
            return sequence, [Operation(action, kind, id_, content[22:])]
    (sequence,) = _SEQUENCE.unpack_from(content)
    operations = []
    position = 8
    while position < size:
        if size - position < OPERATION_SIZE:
            raise BadFrameError(offset, f"entry {sequence} ends within an operation")
        action, kind, id_, length = _OPERATION.unpack_from(content, position)
        position += OPERATION_SIZE
        if not ADD <= action <= DELETE or length > size - position:
            raise BadFrameError(
                offset, f"entry {sequence} holds an operation with action {action} and {length} bytes"
            )
        operations.append(Operation(action, kind, id_, content[position : position + length]))
        position += length
    if not operations:
        raise BadFrameError(offset, f"entry {sequence} holds no operation")
    return sequence, operations
