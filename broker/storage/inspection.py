"""Inspection of a journal that may be damaged, and salvage of what can be read of it.

It changes nothing in the journal.

Why in addition to ``recovery``: a broker must refuse a journal that differs from what was written.
An operator who has only that journal wants to know what is lost, and to have the rest. So a bad
frame ends nothing here: the next whole frame behind it is searched for, byte by byte, and the bytes
between are reported.

A salvaged journal is a new one with the live records, under their ids. Only the numbers of what it
lacks can be known. An ADD that was lost is a message lost; a DELETE that was lost is a message
delivered again.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import google_crc32c

from broker.storage.entry import (
    ADD,
    DELETE,
    FRAME_SIZE,
    HEADER_SIZE,
    MARK,
    UPDATE,
    JournalFrame,
    Operation,
    decode_frames,
    find_mark,
)
from broker.storage.errors import JournalDamagedError
from broker.storage.journal import Journal
from broker.storage.manifest import Manifest, read_manifest
from broker.storage.records import Record, Update
from broker.storage.segment import read_header, segment_first, segment_name
from broker.storage.synced import Synced, read_synced
from broker.storage.volume import Volume

_START: Final = struct.Struct("<IIQ")
_AHEAD_MAX: Final = 1 << 32
"""The greatest step of a sequence behind damage that is still believed."""


class JournalDamage(NamedTuple):
    """A span of ``size`` bytes at ``offset`` that differ from what was written.

    The size 0 says that something is missing there.
    """

    path: str
    offset: int
    size: int
    reason: str


class SegmentFound(NamedTuple):
    """A file: its entries that can be read, from ``first`` to ``last``."""

    name: str
    size: int
    entries: int
    first: int
    last: int


@dataclass(slots=True)
class JournalInspection:
    """The content of a journal; ``records`` live after the entries that can be read."""

    state: str = "complete"
    synced: Synced | None = None
    segments: list[SegmentFound] = field(default_factory=list)
    damage: list[JournalDamage] = field(default_factory=list)
    torn: JournalDamage | None = None
    """An end that nothing proves synced: a start cuts it off, so it is not damage."""
    entries: int = 0
    last: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    """The sequences (first, last) of entries that are missing."""
    orphans: int = 0
    """The number of updates and deletions whose records are in the missing entries."""
    records: dict[int, Record] = field(default_factory=dict)

    def take(self, sequence: int, operations: list[Operation]) -> None:
        """Account for an entry."""
        self.entries += 1
        self.last = sequence
        for action, kind, id_, data in operations:
            if action == ADD:
                self.records[id_] = Record(id_, kind, data)
            elif action == DELETE:
                self.orphans += self.records.pop(id_, None) is None
            elif id_ in self.records:
                record = self.records[id_]
                self.records[id_] = record._replace(updates=(*record.updates, Update(kind, data)))


async def inspect(volume: Volume, directory: str) -> JournalInspection:
    """Read what can be read. Raises OSError, or JournalDamagedError if there is no journal."""
    found = JournalInspection(synced=await read_synced(volume, directory))
    names = sorted(name for name in await volume.list(directory) if segment_first(name) is not None)
    manifest = await _manifest(volume, directory, found)
    if manifest is None and not names and found.synced is None:
        raise JournalDamagedError(directory, 0, "no journal is here")
    await _read_segments(volume, directory, names, manifest, found)
    synced = found.synced
    if synced is not None and found.last < synced.sequence:
        found.lost.append((found.last + 1, synced.sequence))
        torn, found.torn = found.torn, None
        path = f"{directory}/{names[-1] if names else segment_name(synced.first)}"
        found.damage.append(
            JournalDamage(torn.path, torn.offset, torn.size, f"{torn.reason}; it had been synced")
            if torn is not None
            else JournalDamage(
                path,
                found.segments[-1].size if found.segments else 0,
                0,
                "the end, which had been synced, is missing",
            )
        )
    return found


async def _manifest(volume: Volume, directory: str, found: JournalInspection) -> Manifest | None:
    try:
        manifest = await read_manifest(volume, directory)
    except JournalDamagedError as error:
        found.damage.append(JournalDamage(error.path, error.offset, 0, error.reason))
        return None
    if manifest is None:
        found.damage.append(JournalDamage(directory, 0, 0, "the manifest is missing"))
    else:
        found.state = manifest.state
    return manifest


async def _read_segments(
    volume: Volume, directory: str, names: list[str], manifest: Manifest | None, found: JournalInspection
) -> None:
    headers = []
    for name in names:
        path = f"{directory}/{name}"
        try:
            header = await read_header(volume, path)
            compacted = header.last
        except JournalDamagedError as error:
            found.damage.append(JournalDamage(path, error.offset, HEADER_SIZE, error.reason))
            compacted = 0
        headers.append((name, compacted))
    # Segments that compaction has replaced are obsolete, and so are those that the manifest does
    # not count any more.
    begin = max((place for place, (_, compacted) in enumerate(headers) if compacted), default=0)
    oldest = manifest.first if manifest is not None else 0
    headers = [one for one in headers[begin:] if (segment_first(one[0]) or 0) >= oldest]
    if (
        oldest
        and (not headers or (segment_first(headers[0][0]) or 0) > oldest)
        and not (headers and headers[0][1])
    ):
        found.damage.append(
            JournalDamage(f"{directory}/{segment_name(oldest)}", 0, 0, "the segment is missing")
        )
    for place, (name, compacted) in enumerate(headers):
        data = await volume.read(f"{directory}/{name}")
        _read_segment(f"{directory}/{name}", data, compacted, found, last_one=place == len(headers) - 1)


def _read_segment(
    path: str, data: bytes, compacted: int, found: JournalInspection, *, last_one: bool
) -> None:
    name = path.rpartition("/")[2]
    first = segment_first(name) or 1
    if not compacted and first > found.last + 1:
        found.lost.append((found.last + 1, first - 1))
        found.damage.append(
            JournalDamage(path, 0, 0, f"entries {found.last + 1} to {first - 1} should stand before it")
        )
    if not compacted:
        found.last = max(found.last, first - 1)
    entries, begin = 0, 0
    for item in _frames(path, data, first, found.last if not compacted else 0):
        if isinstance(item, JournalDamage):
            # A mark behind it would prove that it had been synced; so would any later segment.
            if (
                last_one
                and not compacted
                and item.offset + item.size == len(data)
                and find_mark(data[item.offset :], item.offset, first) is None
            ):
                found.torn = item
            else:
                found.damage.append(item)
            continue
        sequence, _, operations = item
        if not compacted and sequence > found.last + 1:
            found.lost.append((found.last + 1, sequence - 1))
        entries += 1
        begin = begin or sequence
        found.take(sequence, operations)
    found.segments.append(SegmentFound(name, len(data), entries, begin, found.last if entries else 0))
    found.last = max(found.last, compacted)


def _frames(path: str, data: bytes, first: int, last: int) -> Iterator[JournalFrame | JournalDamage]:
    """Yield the whole entries, and the damaged bytes between them."""
    position = HEADER_SIZE
    while position < len(data):
        frames, bad = decode_frames(data[position:], position, first, len(data))
        for frame in frames:
            position += frame.size
            if frame.sequence == MARK:
                continue
            last = frame.sequence
            yield frame
        if position >= len(data):
            return
        following = _next_frame(data, position + 1, first, last)
        yield JournalDamage(
            path, position, following - position, bad.reason if bad is not None else "no frame"
        )
        position = following


def _next_frame(data: bytes, position: int, first: int, last: int) -> int:
    """Return where the next whole frame of this segment begins; else the end of the data."""
    unpack, checksum = _START.unpack_from, google_crc32c.value
    end = len(data)
    for place in range(position, end - _START.size + 1):
        length, crc, sequence = unpack(data, place)
        if length > end - place - FRAME_SIZE or not (
            last < sequence <= last + _AHEAD_MAX or sequence == MARK
        ):
            continue
        start = place + FRAME_SIZE
        if checksum(data[start : start + length]) == crc:
            frames, _ = decode_frames(data[place : start + length], place, first, end)
            if frames:
                return place
    return end


async def salvage(
    volume: Volume, directory: str, output: Volume, into: str, without: Collection[int] = ()
) -> JournalInspection:
    """Write what can be read of a journal as a new one, to the empty directory ``into``.

    Records of the kinds ``without`` are left out.

    Raises as ``inspect`` does, and FileExistsError.
    """
    found = await inspect(volume, directory)
    if await output.list(into):
        raise FileExistsError(17, "it is not empty", into)
    journal, _ = await Journal.open(output, into)
    try:
        for record in found.records.values():
            if record.kind not in without:
                journal.append(
                    [
                        Operation(ADD, record.kind, record.id, record.data),
                        *(
                            Operation(UPDATE, update.kind, record.id, update.data)
                            for update in record.updates
                        ),
                    ]
                )
        await journal.flush()
    finally:
        await journal.close()
    return found
