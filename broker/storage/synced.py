"""The file that says how far a journal had been synced, in the directory of its segments.

It tells a torn tail from a tail that was lost.

Why a file of its own: a mark within the segment only says that what is *before* it was synced, and
so nothing about the last entries. And what destroys the end of a segment destroys the marks there,
too. After each group commit, a record is appended to this file, without a sync of its own. It is
written after the journal's sync has returned, so whatever of it reaches the disk is true. The death
of the process loses none of the file. A power loss may lose the latest records, and then the end of
the journal is judged as if it had not been synced. A file that is missing or damaged claims
nothing.

A record is 32 bytes: sequence u64, first sequence of the segment u64, offset in it u64, CRC-32C of
these u32, four zeros.
"""

from __future__ import annotations

import logging
import struct
from typing import Final, NamedTuple, Self

import google_crc32c

from broker.storage.volume import Volume, VolumeFile

NAME: Final = "journal.synced"
SIZE_MAX: Final = 256 * 1024
"""The file is begun anew when it is larger than this."""

_FIELDS: Final = struct.Struct("<QQQ")
_RECORD: Final = struct.Struct("<QQQI4x")

_log = logging.getLogger(__name__)


class Synced(NamedTuple):
    """Entries up to ``sequence``, at ``offset`` of the segment that begins with ``first``."""

    sequence: int
    first: int
    offset: int


def encode_synced(synced: Synced) -> bytes:
    """Return one record of the file."""
    return _RECORD.pack(*synced, google_crc32c.value(_FIELDS.pack(*synced)))


async def read_synced(volume: Volume, directory: str) -> Synced | None:
    """Return the furthest of the records that can be read; None if there is none.

    Call this before the segments are read: a broker that believes itself alive may go on meanwhile.
    """
    path = f"{directory}/{NAME}"
    if not await volume.exists(path):
        return None
    data = await volume.read(path)
    furthest: Synced | None = None
    for place in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
        *fields, checksum = _RECORD.unpack_from(data, place)
        synced = Synced(*fields)
        if (furthest is None or synced > furthest) and google_crc32c.value(_FIELDS.pack(*synced)) == checksum:
            furthest = synced
    return furthest


async def write_synced(volume: Volume, directory: str, synced: Synced | None) -> None:
    """Replace the file, durably."""
    await volume.write_atomic(f"{directory}/{NAME}", b"" if synced is None else encode_synced(synced))


class SyncedMarks:
    """The file of an open journal; if the disk refuses it, the journal goes on without it."""

    def __init__(self, volume: Volume, directory: str, file: VolumeFile, size: int) -> None:
        self._volume = volume
        self._directory = directory
        self._file: VolumeFile | None = file
        self._size = size
        self._last: Synced | None = None

    @classmethod
    async def open(cls, volume: Volume, directory: str) -> Self:
        """Open the file, and append to the records that it has. Raises OSError."""
        path = f"{directory}/{NAME}"
        size = await volume.size(path) if await volume.exists(path) else 0
        if size % _RECORD.size:  # a torn end: records behind it would not be found
            await write_synced(volume, directory, await read_synced(volume, directory))
            size = _RECORD.size
        return cls(volume, directory, await volume.open(path), size)

    def note(self, synced: Synced) -> None:
        """Record that the journal has been synced so far."""
        self._last = synced
        if self._file is not None:
            try:
                self._file.write(encode_synced(synced))
            except OSError as error:
                self._give_up(error)
            self._size += _RECORD.size

    @property
    def full(self) -> bool:
        """True if it is time to ``begin_anew``."""
        return self._size > SIZE_MAX and self._file is not None

    async def begin_anew(self) -> None:
        """Keep only the last record."""
        try:
            await self.close()
            await write_synced(self._volume, self._directory, self._last)
            self._file = await self._volume.open(f"{self._directory}/{NAME}")
            self._size = _RECORD.size
        except OSError as error:
            self._give_up(error)

    async def close(self, *, sync: bool = False) -> None:
        """Close the file. Raises OSError."""
        file, self._file = self._file, None
        if file is not None:
            if sync:
                await file.sync()
            await file.close()

    def _give_up(self, error: OSError) -> None:
        self._file = None
        _log.warning(
            "journal: %s/%s cannot be written: %s; damage to entries that are synced from now on may be "
            "mistaken for a torn tail",
            self._directory,
            NAME,
            error,
        )
