"""A history that is read part by part; each part has all rows of whole groups.

Why: no rule has to move rows. The recorder puts all rows of one (queue, group), and of one message,
into one file. A task of Spark, or this process, can judge the groups of a file by itself, and its
answer is small. So work goes to the files, and no rows are exchanged. If the files have other
names, rows are exchanged once, by queue and group, and the same work is done on the result; that is
slower, but as right.

Rows without a group are spread over the parts by producer (or, when exchanged, by message). So a
rule that compares messages may read only rows that have a group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.arrow_schema import OLDER, SCHEMA, completed
from checkers.breakage import of_schema
from checkers.schema import ALWAYS, DECLARED

CONTROL: Final = "control.parquet"
SLICE_ROWS: Final = 4_000_000
"""The most rows of a part that are read at once.

A part with more rows is read several times, some of its messages each time, so that a single huge
group can be judged, too.
"""
_BATCH_ROWS: Final = 500_000
WITH_MESSAGES: Final = ("send", "ack", "nack", "deliver", "timeout", "browse")
"""The operations whose rows carry messages if they name a queue."""

Result = TypeVar("Result")


class HistoryError(Exception):
    """An error: the input is not a history; the text says what is wrong and where."""


class HistoryPart(Protocol):
    """A part of a history with all rows of whole groups, as a task reads it."""

    @property
    def number(self) -> int:
        """The number of the part."""
        ...

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield tables of whole messages, which together have all rows of the part.

        There is one table, unless the part is huge.
        """
        ...


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part that is one file, as the recorder writes it."""

    number: int
    path: str
    rows: int
    slice_rows: int = SLICE_ROWS

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield one slice for each ``slice_rows`` rows; a message's id decides its slice."""
        try:
            yield from self._slices(columns)
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{Path(self.path).name} cannot be read: {_line(error)}") from error

    def _slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        file = opened(self.path)
        empty = _empty(file.metadata)
        present = [name for name in columns if name not in empty]
        count = -(-self.rows // self.slice_rows) if self.rows else 1
        adds_subscription = "subscription" in empty and "subscription" in columns
        if count == 1:
            yield _telling(file.read(present, use_threads=False), adds_subscription=adds_subscription)
            return
        for number in range(count):
            batches = (
                batch.filter(pa.array(_slice_of(batch.column("message"), count) == number))
                for batch in file.iter_batches(_BATCH_ROWS, columns=present, use_threads=False)
            )
            yield _telling(pa.Table.from_batches(batches), adds_subscription=adds_subscription)


def _telling(table: pa.Table, *, adds_subscription: bool) -> pa.Table:
    """Return the table, with a column ``subscription`` of nulls if ``adds_subscription``.

    Why: that the column exists says that the history may have topics, even if it was not read
    because it is empty.
    """
    field = SCHEMA.field("subscription")
    return table.append_column(field, pa.nulls(len(table), field.type)) if adds_subscription else table


def _empty(metadata: pq.FileMetaData) -> list[str]:
    """Return the columns that have no value, by the file's statistics.

    Why: they need not be read, which would take as long as reading a full column.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        name
        for n, name in enumerate(metadata.schema.names)
        if name not in ALWAYS and groups and all(_no_value(group.column(n)) for group in groups)
    ]


def _no_value(column: pq.ColumnChunkMetaData) -> bool:
    written = column.statistics
    return written is not None and bool(written.has_null_count) and written.null_count == column.num_values


def _slice_of(message: pa.Array, count: int) -> Any:
    plain = pc.fill_null(message, 0).to_numpy(zero_copy_only=False).view(np.uint64)
    return ((plain * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) % np.uint64(count)


@dataclass(frozen=True, slots=True)
class TablePart:
    """A part that is a table of rows in memory."""

    number: int
    table: pa.Table

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows as one table."""
        present = [name for name in columns if name in self.table.column_names]
        yield self.table.select([*present, *(["run"] if "run" in self.table.column_names else [])])


Work: TypeAlias = Callable[[HistoryPart], Result]
"""A function that a task calls with a part."""

_NULLABLE: Final = pa.schema([field.with_nullable(True) for field in SCHEMA])
"""The history's columns, all nullable: a null where none may be must be read to be reported."""

TEXTS: Final = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)]
"""The columns of texts, which are read dictionary-encoded."""


def opened(path: str, *, verified: bool = False) -> pq.ParquetFile:
    """Open a Parquet file whose texts are read dictionary-encoded.

    ``verified``: its pages must agree with their checksums.
    """
    metadata = pq.read_metadata(path)
    columns = set(metadata.schema.names)
    texts = [name for name in TEXTS if name in columns]
    return pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, page_checksum_verification=verified)


class HistorySource(ABC):
    """A history that is judged part by part, or many histories with a column ``run``.

    ``control`` has the rows that carry no messages, ``last_ns`` the time of the last row of each
    run (run 0 if there are no runs). ``files`` are the files of the rows, if they come from files;
    ``laid_out``: each part is one of these. ``undeclared`` are the columns that rows lack which
    come from no file.
    """

    files: Files | None = None
    undeclared: frozenset[str] = frozenset()
    laid_out = False

    def __init__(self, control: pa.Table, last_ns: Mapping[int, int], rows: int) -> None:
        self.control = control
        self.last_ns = last_ns
        self.rows = rows

    @property
    def lacking(self) -> frozenset[str]:
        """The columns that the history declares not to have."""
        return self.undeclared if self.files is None else self.files.lacking

    def holding(self, index: int | None) -> str:
        """Return the names of the files that have a row with an index, for an error message.

        If no file has it, the result stands for all files together.
        """
        return "the history" if self.files is None else self.files.holding(index)

    @abstractmethod
    def ask(self, work: Work[Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """Do the work on all parts, or on those with some numbers; return results by number."""
        ...

    def tag(self, name: str) -> None:  # noqa: B027 - not everything can be cancelled
        """Give this thread's work a name from now on, to cancel it where that is possible."""

    def cancel(self, name: str) -> None:  # noqa: B027 - as above
        """Cancel the work with a name, however far it is."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one history, and how many rows each has."""

    rows: Mapping[Path, int]
    lacking: frozenset[str] = frozenset()
    """The columns that some of the files declare not to have."""

    @classmethod
    def of(cls, paths: Path | Sequence[Path]) -> Files:
        """Return the files of a store directory, of its ``history/``, or some given files.

        Raises HistoryError.
        """
        files = _files([paths] if isinstance(paths, Path) else list(paths))
        opened_ = {file: _looked_at(file) for file in files}
        lacking = frozenset[str]().union(*(lacking for _, lacking in opened_.values()))
        return cls({file: rows for file, (rows, _) in opened_.items()}, lacking)

    @property
    def laid_out(self) -> bool:
        """True if the names are the recorder's: parts with whole groups, and one control file."""
        parts = [file for file in self.rows if file.name != CONTROL]
        return len(self.rows) - len(parts) <= 1 and all(file.name.startswith("part-") for file in parts)

    @property
    def total(self) -> int:
        """The number of rows of all files."""
        return sum(self.rows.values())

    def parts(self, slice_rows: int = SLICE_ROWS) -> list[FilePart]:
        """Return the files with whole groups as parts."""
        return [
            FilePart(number, str(file.resolve()), self.rows[file], slice_rows)
            for number, file in enumerate(file for file in self.rows if file.name != CONTROL)
        ]

    def control(self) -> pa.Table:
        """Return the rows that carry no messages."""
        tables = [_read(file) for file in self.rows if file.name == CONTROL]
        return tables[0] if tables else SCHEMA.empty_table()

    def everything(self) -> pa.Table:
        """Return all rows of all files."""
        return pa.concat_tables([_read(file).cast(_NULLABLE) for file in self.rows])

    def last_ns(self) -> int:
        """Return the time (ns) of the last row."""
        return max((_last_ns(file) for file in self.rows), default=0)

    def holding(self, index: int | None) -> str:
        """Return the names of the files that have a row with an index, for an error message.

        If no file has it, return the directory of the files.
        """
        holders = [] if index is None else [file for file in self.rows if _has(file, index)]
        return " and ".join(map(str, holders)) or str(next(iter(self.rows)).parent)


class HereSource(HistorySource):
    """A history that this process judges part by part, without a JVM."""

    def __init__(self, parts: Sequence[HistoryPart], control: pa.Table, last_ns: int, rows: int) -> None:
        super().__init__(control, {0: last_ns}, rows)
        self._parts = tuple(parts)

    @classmethod
    def of(cls, files: Files) -> HereSource:
        """Return the history of some files.

        If their layout is not the recorder's, all rows are one part.
        """
        if files.laid_out:
            source = cls(files.parts(), files.control(), files.last_ns(), files.total)
        else:
            everything = files.everything()
            messages = with_messages(everything)
            control = everything.filter(pc.invert(messages))
            source = cls([TablePart(0, everything.filter(messages))], control, files.last_ns(), files.total)
        source.files, source.laid_out = files, files.laid_out
        return source

    def ask(self, work: Work[Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """Do the work on one part after the other."""
        return {part.number: work(part) for part in chosen(self._parts, parts)}


def chosen(parts: Iterable[HistoryPart], numbers: Iterable[int] | None) -> list[HistoryPart]:
    """Return the parts with some numbers; None: all parts."""
    chosen_numbers = None if numbers is None else set(numbers)
    return [part for part in parts if chosen_numbers is None or part.number in chosen_numbers]


def with_messages(table: pa.Table) -> pa.ChunkedArray:
    """Return which rows carry messages."""
    operation = pc.is_in(table["f"].cast(pa.string()), pa.array(WITH_MESSAGES))
    return pc.and_(operation, pc.is_valid(table["queue"].cast(pa.string())))


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if (path / "history").is_dir():
            files += sorted((path / "history").glob("*.parquet"))
        elif path.is_dir():
            files += sorted(path.glob("*.parquet"))
        elif path.exists():
            files.append(path)
        else:
            raise HistoryError(f"{path} does not exist; give a test's store directory or its history/")
    if not files:
        named = ", ".join(map(str, paths)) or "no path"
        raise HistoryError(f"{named} holds no Parquet files; give a test's store directory or its history/")
    strange = next((file for file in files if file.exists() and not file.is_file()), None)
    if strange is not None:  # a FIFO, for example, of which reading would never end
        raise HistoryError(f"{strange} is no file: the parts of a history are Parquet files")
    return list(dict.fromkeys(files))


def _looked_at(file: Path) -> tuple[int, frozenset[str]]:
    """Return how many rows a file has, and the columns that it declares not to have."""
    try:
        metadata = pq.read_metadata(file)
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{file} is not a Parquet file that can be read: {_line(error)}") from None
    declared = (metadata.metadata or {}).get(DECLARED)
    has = OLDER.names if declared is None else [*ALWAYS, *declared.decode(errors="replace").split(",")]
    wrong = of_schema(schema, has)
    if wrong:
        raise HistoryError(f"{file} is not a history: {wrong}")
    known_columns = OLDER.names if declared is None else (*OLDER.names, "headers")
    return int(metadata.num_rows), frozenset(known_columns) - set(has)


def _read(file: Path) -> pa.Table:
    try:
        return completed(pq.read_table(file))
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{file} cannot be read: {_line(error)}") from error


def _has(file: Path, index: int) -> bool:
    """Return whether a file has a row with an index."""
    try:
        batches = pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=["index"])
        return any(index in batch.column(0).to_numpy(zero_copy_only=False) for batch in batches)
    except (OSError, pa.ArrowException):
        return False


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _last_ns(file: Path) -> int:
    """Return the time (ns) of a file's last row, by its statistics if it has them."""
    metadata = pq.read_metadata(file)
    column = metadata.schema.to_arrow_schema().get_field_index("time")
    last = 0
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            time = pc.max(pq.read_table(file, columns=["time"])["time"]).as_py()
            return int(time or 0)
        last = max(last, int(statistics.max))
    return last
