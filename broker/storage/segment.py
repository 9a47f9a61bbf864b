"""A file of a journal: its name, its header, and reading it from start to end in small slices."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Self

from broker.storage.entry import (
    FRAME_SIZE,
    HEADER_SIZE,
    BadFrameError,
    Header,
    JournalFrame,
    decode_frames,
    decode_header,
    find_mark,
)
from broker.storage.errors import JournalDamagedError
from broker.storage.volume import Volume

SLICE: Final = 64 * 1024
"""The bytes that are read and decoded without a turn of the loop.

Decoding small entries takes well under a millisecond.
"""

_NAME: Final = re.compile(r"journal-([0-9]{16,20})\.seg\Z")


def segment_name(first: int) -> str:
    """Return a segment's file name, made of its first sequence so that names sort alike."""
    return f"journal-{first:016d}.seg"


def segment_first(name: str) -> int | None:
    """Return the sequence in a segment's name; None if it is not the name of a segment."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


@dataclass(slots=True)
class Segment:
    """A segment as the running journal knows it. ``size`` includes what is still to be written."""

    path: str
    ordinal: int
    first: int
    last: int
    size: int = HEADER_SIZE
    sealed: bool = False
    """True if all of it is on disk, and nothing more is written to it."""

    @property
    def name(self) -> str:
        """The file's name without its directory."""
        return self.path.rpartition("/")[2]


async def read_header(volume: Volume, path: str) -> Header:
    """Read the header of a segment.

    Raises JournalDamagedError: headers are created atomically, so a bad one is never torn.
    """
    try:
        header = decode_header(await volume.read(path, 0, HEADER_SIZE))
    except BadFrameError as error:
        raise JournalDamagedError(path, error.offset, error.reason) from None
    if segment_first(path.rpartition("/")[2]) != header.first:
        raise JournalDamagedError(path, 0, f"the header belongs to {segment_name(header.first)}")
    return header


class Slices:
    """A file in slices that overlap where a frame was cut.

    Use it with ``async for offset, data in slices``, and call ``slices.used(n)`` in each turn.

    The next slice begins where the used bytes end. Raises BadFrameError if the file ends before
    ``size``.
    """

    def __init__(self, volume: Volume, path: str, size: int, slice_size: int = SLICE) -> None:
        self._volume = volume
        self._path = path
        self._size = size
        self._slice = self._wanted = slice_size
        self._offset = HEADER_SIZE
        self._data = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        start = self._offset + len(self._data)
        if start >= self._size:
            raise StopAsyncIteration
        more = await self._volume.read(self._path, start, min(self._wanted, self._size - start))
        if not more:
            raise BadFrameError(start, f"the file ends, though it had {self._size} bytes")
        self._data = self._data + more if self._data else more
        return self._offset, self._data

    def used(self, count: int) -> None:
        """Tell how many bytes of the last slice were whole frames."""
        self._offset += count
        self._data = self._data[count:]
        # A frame longer than the slice: fetch all of it at once rather than decoding its start
        # again and again.
        missing = (
            FRAME_SIZE + int.from_bytes(self._data[:4], "little") - len(self._data)
            if len(self._data) >= FRAME_SIZE
            else 0
        )
        self._wanted = max(self._slice, missing)


async def read_frames(
    volume: Volume, path: str, first: int, size: int
) -> AsyncIterator[tuple[int, list[JournalFrame]]]:
    """Yield (offset, frames) in slices, marks included, up to ``size``.

    Raises BadFrameError if frames end before the file does.
    """
    slices = Slices(volume, path, size)
    async for offset, data in slices:
        frames, bad = decode_frames(data, offset, first, size)
        if frames:
            yield offset, frames
        if bad is not None:
            raise bad
        slices.used(sum(frame.size for frame in frames))


async def has_mark_after(volume: Volume, path: str, first: int, offset: int) -> int | None:
    """Return where a mark proves that ``offset`` had reached the disk; None if no mark does."""
    return find_mark(await volume.read(path, offset), offset, first)
