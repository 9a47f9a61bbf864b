"""Reading a journal back after a crash, and telling the effects of a crash from damage.

A crash may tear what was never synced: the end of the last segment, back to the last mark at the
most. This is cut off, with a line in the log. Everything else that differs from what was written is
damage, and the journal refuses to start. Damage is a bad frame in any earlier segment, or one with
a mark after it in the last. Damage is also entries missing at the end that had been synced
(``synced``), a missing sequence, a bad header, and a missing segment. ``entry`` says what a mark
is.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Final

from broker.storage.entry import (
    HEADER_SIZE,
    MARK,
    BadFrameError,
    Header,
    JournalFrame,
    decode_frames,
)
from broker.storage.errors import JournalDamagedError
from broker.storage.manifest import Manifest, read_manifest, write_manifest
from broker.storage.records import Record
from broker.storage.scan import JournalImage, scan
from broker.storage.segment import (
    Segment,
    Slices,
    has_mark_after,
    read_header,
    segment_first,
    segment_name,
)
from broker.storage.synced import Synced, read_synced
from broker.storage.volume import Volume

SLICE: Final = 512 * 1024
"""The bytes that are read and accounted for without a turn of the loop.

This takes about a millisecond, while the broker serves no client yet.
"""

_ODD: Final = 64 * 1024
"""The bytes that are read in the general way before the fast way is tried again."""

_log = logging.getLogger(__name__)


async def recover(
    volume: Volume, directory: str, manifest: Manifest, records: dict[int, Record] | None
) -> JournalImage:
    """Read a journal, remove what a crash left, cut a torn tail. Raises JournalDamagedError."""
    synced = await read_synced(volume, directory)
    present = await volume.list(directory)
    names = [name for name in present if (segment_first(name) or -1) >= manifest.first]
    image = await load(volume, directory, names, itertools.count(), records=records, torn_allowed=True)
    oldest = image.segments[0] if image.segments else None
    if manifest.first and (oldest is None or oldest.first != manifest.first):
        if oldest is None or segment_name(manifest.first) not in names:
            raise JournalDamagedError(
                f"{directory}/{segment_name(manifest.first)}", 0, "the segment is missing"
            )
        # A crash ended the last steps of a compaction: its output is in place, its input is not
        # removed yet.
        await write_manifest(volume, directory, Manifest("complete", oldest.first))
    if oldest is not None and not manifest.first and oldest.first != 1:
        raise JournalDamagedError(f"{directory}/{segment_name(1)}", 0, "the segment is missing")
    if synced is not None and image.last < synced.sequence:
        raise _cut_short(directory, image, synced)
    for name in present:
        first = segment_first(name)
        if name.endswith(".tmp") or (first is not None and oldest is not None and first < oldest.first):
            await volume.remove(f"{directory}/{name}")
    if image.torn is not None:
        path, offset, size = image.torn
        _log.warning(
            "journal: cut off a torn tail: %s at offset %d, %d bytes; nothing shows that they were ever "
            "synced",
            path,
            offset,
            size,
        )
        await volume.truncate(path, offset)
    elif image.segments:
        # The journal is whole, but its end was perhaps never synced: what a killed process had
        # written is read from the system's memory. No delivery and no later segment may be built
        # on it while a power loss could still take it away.
        file = await volume.open(image.segments[-1].path)
        try:
            await file.sync()
        finally:
            await file.close()
    return image


def _cut_short(directory: str, image: JournalImage, synced: Synced) -> JournalDamagedError:
    """Return the error for a journal that ends before what had been synced."""
    if image.torn is not None:
        path, offset, _ = image.torn
    elif image.segments:
        path, offset = image.segments[-1].path, image.segments[-1].size
    else:
        path, offset = f"{directory}/{segment_name(synced.first)}", 0
    return JournalDamagedError(
        path,
        offset,
        f"entries {image.last + 1} to {synced.sequence} had been synced and cannot be read (see "
        "brokerctl journal check)",
    )


async def load(
    volume: Volume,
    directory: str,
    names: list[str],
    ordinals: Iterator[int],
    *,
    records: dict[int, Record] | None,
    torn_allowed: bool,
) -> JournalImage:
    """Read the named segments, in order, and check that nothing is missing between them.

    Changes nothing on disk.

    Segments before the last compacted one are obsolete and left out. With ``torn_allowed`` false, a
    torn tail is damage.
    """
    headers = [
        (f"{directory}/{name}", await read_header(volume, f"{directory}/{name}")) for name in sorted(names)
    ]
    compacted = max((place for place, (_, header) in enumerate(headers) if header.last), default=0)
    headers = headers[compacted:]
    image = JournalImage(records=records)
    for place, (path, header) in enumerate(headers):
        if place and header.first != image.last + 1:
            raise JournalDamagedError(
                path, 0, f"begins with sequence {header.first}; {image.last + 1} is missing"
            )
        image.ids = max(image.ids, header.ids)
        last_one = place == len(headers) - 1
        await _load_segment(
            volume, path, header, next(ordinals), image, torn_allowed=torn_allowed and last_one
        )
    image.finish()
    return image


async def _load_segment(
    volume: Volume, path: str, header: Header, ordinal: int, image: JournalImage, *, torn_allowed: bool
) -> None:
    size = await volume.size(path)
    image.liveness.begin(ordinal)
    # A compacted segment has the name of the last segment in it, and the entries of all.
    image.last = 0 if header.last else header.first - 1
    end = HEADER_SIZE
    marked = False
    try:
        slices = Slices(volume, path, size, SLICE)
        async for offset, data in slices:
            used, marked = _take(path, offset, data, size, header, ordinal, image)
            slices.used(used)
            end = offset + used
    except BadFrameError as error:
        if not torn_allowed or header.last:
            raise JournalDamagedError(path, error.offset, error.reason) from None
        mark = await has_mark_after(volume, path, header.first, error.offset)
        if mark is not None:
            reason = f"{error.reason}; the mark at offset {mark} says that it had been synced"
            raise JournalDamagedError(path, error.offset, reason) from None
        image.torn = (path, error.offset, size - error.offset)
        size = end = error.offset
    if header.last:
        if not marked:
            raise JournalDamagedError(path, end, "a compacted segment without its closing mark")
        image.last = header.last
    image.segments.append(Segment(path, ordinal, header.first, image.last, size, sealed=True))


def _take(
    path: str, offset: int, data: bytes, file_size: int, header: Header, ordinal: int, image: JournalImage
) -> tuple[int, bool]:
    """Account for the whole frames at the start of a slice.

    Returns (bytes that they take, whether the last one was a mark).

    Raises BadFrameError for bytes that cannot be a frame, JournalDamagedError for an entry at a
    wrong place.
    """
    position = 0
    marked = False
    while position < len(data):
        before = position
        position, mark = scan(image, data, position, offset, header, ordinal)
        marked = mark if position > before else marked
        # The fast way stopped: read some frames in the general way, then go on fast.
        for reach in (_ODD, len(data)):
            frames, bad = decode_frames(
                data[position : position + reach], offset + position, header.first, file_size
            )
            if frames:
                _take_frames(path, offset + position, frames, header, ordinal, image)
                marked = frames[-1].sequence == MARK
                position += sum(frame.size for frame in frames)
            if bad is not None:
                raise bad
            if frames:
                break
        else:
            break
    return position, marked


def _take_frames(
    path: str, offset: int, frames: list[JournalFrame], header: Header, ordinal: int, image: JournalImage
) -> None:
    last = image.last
    compacted = header.last
    for sequence, size, operations in frames:
        if sequence != MARK:
            if (last < sequence <= compacted) if compacted else sequence == last + 1:
                last = sequence
            else:
                raise JournalDamagedError(path, offset, f"entry {sequence} stands where {last + 1} should")
            image.take(path, offset, operations, ordinal)
        offset += size
    image.last = last


async def manifest_of(volume: Volume, directory: str) -> Manifest | None:
    """Return the manifest of a journal; None for an empty or missing directory.

    Raises JournalDamagedError when there are segments without a manifest, or sync marks of
    segments.
    """
    manifest = await read_manifest(volume, directory)
    if manifest is None:
        for name in await volume.list(directory):
            if segment_first(name) is not None:
                raise JournalDamagedError(
                    f"{directory}/{name}", 0, "a segment in a directory without a manifest"
                )
        synced = await read_synced(volume, directory)
        if synced is not None:
            raise _cut_short(directory, JournalImage(), synced)
    return manifest
