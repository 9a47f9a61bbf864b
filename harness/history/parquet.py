"""A finished history as Parquet, laid out so that Spark need not sort the world.

Why: every rule that costs anything looks at one group, one message or one producer at a time. The
files give each of them its rows together and in order, so that a reader may work file by file and
shuffle nothing:

- ``history/part-NNNNN.parquet`` holds the rows that carry messages (``send``, ``ack``, ``nack``,
  ``deliver`` and ``browse`` with a queue). All rows of one (queue, group) are in one file: its
  number is the CRC-32C of the queue, a zero byte and the group, modulo the number of files. Rows
  without a group are spread by (queue, producer), so that all rows of a message and all rows of a
  producer are in one file too: rules for ungrouped messages are per message and per producer. A
  delivery whose body could not be read has no message; it is with its group, or under producer 0.
- ``history/control.parquet`` holds everything else: faults, roles, phases, and what concerns
  sessions and transactions rather than messages (``connect``, ``subscribe``, ``disconnect``,
  ``begin``, ``commit`` ...). It is small, and every part is read together with it.

Within each file rows are sorted by ``index``. The number of files is a power of two that grows with
the history. The history is complete when ``history/_complete.json`` exists and agrees with the
files; it is written last. (Spark ignores names that begin with an underscore.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.arrow_schema import SCHEMA
from checkers.schema import DECLARED
from checkers.source import WITH_MESSAGES
from harness.history.store import HISTORY
from harness.interface import UsageError

DIRECTORY: Final = HISTORY
CONTROL: Final = "control.parquet"
MARKER: Final = "_complete.json"

ROWS_PER_FILE: Final = 500_000
MAX_FILES: Final = 256
CHUNK_ROWS: Final = 2_000_000
"""The rows partitioned at a time: they bound the memory, whatever the length of the history."""

_PRODUCER_STRIDE: Final = 2_654_435_761  # spreads consecutive producers over the files

_DELTA: Final = ("index", "time", "sequence", "time_low", "time_high")
WRITING: Final[Mapping[str, Any]] = {
    "compression": "lz4",
    "column_encoding": dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
    "use_dictionary": [name for name in SCHEMA.names if name not in _DELTA],
    "write_statistics": ["index", "time", *(field.name for field in SCHEMA if field.nullable)],
}
"""The options with which Arrow writes a file of a history.

The statistics say which columns have no value at all: those need not be read. With zstd files would
be a seventh smaller, and decompression would take a quarter of the time of reading them.
"""

Index = npt.NDArray[np.int64]


VERSION: Final = 1
"""The version of the layout."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``_complete.json``.

    It has the rows of each file, so that a missing or foreign file is noticed.
    """

    version: int
    rows: int
    files: dict[str, int]


def files_for(stream_bytes: int) -> int:
    """Return how many part files a history gets, from the size of its stream in bytes.

    A power of two, one for small runs.
    """
    rows = stream_bytes // 16  # a typical compressed row; only the order of magnitude matters
    count = max(1, min(MAX_FILES, rows // ROWS_PER_FILE + 1))
    return 1 << (count - 1).bit_length()


def file_name(number: int) -> str:
    """Return the name of the part file with that number."""
    return f"part-{number:05d}.parquet"


def file_number(queue: str, group: str | None, producer: int | None, parts: int) -> int:
    """Return which of ``parts`` files has the rows of a group, or of a producer without groups.

    ``producer`` matters only without a group.
    """
    of_queue = google_crc32c.extend(0, queue.encode() + b"\0")
    if group is not None:
        return int(google_crc32c.extend(of_queue, group.encode()) % parts)
    return int(((of_queue + (producer or 0) * _PRODUCER_STRIDE) >> 8) % parts)


def complete_files(store: Path, *, certain: bool = False) -> list[Path] | None:
    """Return the Parquet files of a complete history; None if there is none (yet).

    ``certain``: nothing could complete it later, so a difference from its marker is an error, too.
    Raises UsageError for that, for a history of another version, and for files that are not of it.
    """
    directory = store / DIRECTORY
    try:
        content = (directory / MARKER).read_bytes()
    except OSError:
        return None
    try:
        marker = msgspec.json.decode(content, type=Marker)
        if marker.version != VERSION:
            raise UsageError(
                f"{directory / MARKER}: the history has version {marker.version}, but this program reads "
                f"version {VERSION}"
            )
        strange = sorted(file.name for file in directory.glob("*.parquet") if file.name not in marker.files)
        if strange:
            raise UsageError(
                f"{directory / strange[0]} does not belong to this history: {MARKER} does not name it"
            )
        files = [directory / name for name in marker.files]
        for file, rows in zip(files, marker.files.values(), strict=True):
            row_count = pq.read_metadata(file).num_rows
            if row_count != rows:
                if certain:
                    raise UsageError(
                        f"{file} has {row_count:,} rows, and {MARKER} says {rows:,}: rows are missing or "
                        "were added"
                    )
                return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException) as error:
        if certain:
            of_marker = isinstance(error, (msgspec.MsgspecError, UnicodeDecodeError))
            where = directory / MARKER if of_marker else file
            raise UsageError(f"{where} cannot be read: {' '.join(str(error).split())}") from None
        return None
    return files


def write(
    store: Path,
    batches: Iterable[pa.RecordBatch],
    parts: int,
    *,
    columns: Callable[[], Sequence[str]] | None = None,
) -> list[Path]:
    """Write ``batches`` (rows in order of index) as a complete history of ``parts`` part files.

    ``columns``, called when all batches are written, returns the columns that an imported history
    has. Raises OSError.
    """
    directory = store / DIRECTORY
    directory.mkdir(exist_ok=True)
    for old in (directory / MARKER, *directory.glob("*.parquet")):
        old.unlink(missing_ok=True)
    names = [*(file_name(number) for number in range(parts)), CONTROL]
    counts = dict.fromkeys(names, 0)
    writers: dict[str, pq.ParquetWriter] = {}

    def append(piece: tuple[str, pa.Table]) -> None:
        name, rows = piece
        if name not in writers:
            writers[name] = pq.ParquetWriter(directory / name, SCHEMA, **WRITING)
        writers[name].write_table(rows)
        counts[name] += rows.num_rows

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        try:
            for chunk in _chunks(batches):
                list(pool.map(append, _split(chunk, names)))
            if not writers:
                append((CONTROL, SCHEMA.empty_table()))
            if columns is not None:
                for writer in writers.values():
                    writer.add_key_value_metadata({DECLARED.decode(): ",".join(columns())})
            list(pool.map(_close, writers.values()))
        except pa.ArrowException as error:  # Arrow's own words for a full disk
            raise OSError(str(error)) from error
    files = {name: counts[name] for name in names if name in writers}
    for name in files:
        _sync(directory / name)
    marker = Marker(version=VERSION, rows=sum(files.values()), files=files)
    temporary = directory / f"{MARKER}.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(marker), indent=1))
    _sync(temporary)
    temporary.replace(directory / MARKER)
    _sync(directory)
    return [directory / name for name in files]


def _close(writer: pq.ParquetWriter) -> None:
    writer.close()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield _table(pending)
            pending, rows = [], 0
    if rows:
        yield _table(pending)


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, SCHEMA).unify_dictionaries().combine_chunks()


def _split(chunk: pa.Table, names: list[str]) -> list[tuple[str, pa.Table]]:
    """Return the rows of each file, in order; the last of ``names`` is for control rows."""
    file = _file_numbers(chunk, len(names) - 1)
    order = np.argsort(file, kind="stable")
    ends = np.cumsum(np.bincount(file, minlength=len(names)))
    rows = chunk.take(pa.array(order))
    pieces = []
    start = 0
    for name, end in zip(names, ends.tolist(), strict=True):
        if end > start:
            pieces.append((name, rows.slice(start, end - start)))
        start = end
    return pieces


def _file_numbers(chunk: pa.Table, parts: int) -> npt.NDArray[np.int16]:
    """Return for each row the number of its part file, or ``parts`` for control rows."""
    queue, queues = _codes(chunk, "queue")
    group, groups = _codes(chunk, "group")
    operation, operations = _codes(chunk, "f")
    with_messages = np.array([name in WITH_MESSAGES for name in operations] + [False])
    data = with_messages[operation] & (queue < len(queues))
    grouped = group < len(groups)

    queue_hashes = [google_crc32c.extend(0, name.encode() + b"\0") for name in queues]
    number = np.full(chunk.num_rows, parts, dtype=np.int64)

    pair = queue * len(groups) + group
    rows = data & grouped
    used, inverse = np.unique(pair[rows], return_inverse=True)
    hashes = [
        google_crc32c.extend(queue_hashes[p // len(groups)], groups[p % len(groups)].encode())
        for p in used.tolist()
    ]
    number[rows] = (np.array(hashes, dtype=np.int64) % parts)[inverse]

    rows = data & ~grouped
    producer = pc.fill_null(chunk.column("producer"), 0).to_numpy().astype(np.int64)
    spread = np.array([*queue_hashes, 0], dtype=np.int64)[queue] + producer * _PRODUCER_STRIDE
    number[rows] = ((spread >> 8) % parts)[rows]
    return number.astype(np.int16)


def _codes(chunk: pa.Table, column: str) -> tuple[Index, list[Any]]:
    """Return a dictionary column as numbers, and the texts that they stand for.

    Null is the number one past the last text.
    """
    array = chunk.column(column).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    texts = array.dictionary.to_pylist()
    return pc.fill_null(array.indices, len(texts)).to_numpy(zero_copy_only=False).astype(np.int64), texts
