"""A history read part by part.

Each part has whole groups, so that no rule has to move its rows.

Why: the recorder puts all rows of one (queue, group), and of one message, into one file. Who is
given a file, a task of Spark or this very process, can judge its groups alone, and what it answers
is small. So work goes to the files, and nothing is exchanged. Where the files have other names,
rows are exchanged once, by queue and group, and the same work is done on what arrives: slower,
never wrong.

Rows without a group are spread by producer (or, when exchanged, by message), so a rule that looks
at more than one message may only look at rows that have a group.
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
"""A part with more rows is read again and again, some of its messages at a time.

A single huge group must pass too.
"""
_BATCH_ROWS: Final = 500_000
WITH_MESSAGES: Final = ("send", "ack", "nack", "deliver", "timeout", "browse")
"""Operations whose rows carry messages, where they name a queue."""

Result = TypeVar("Result")


class HistoryError(Exception):
    """What was given is no history; the text says what is wrong and where."""


class HistoryPart(Protocol):
    """Some whole groups of a history, within a task."""

    @property
    def number(self) -> int:
        """Its number among the parts."""
        ...

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Tables of whole messages; together all rows. One table, unless the part is huge."""
        ...


@dataclass(frozen=True, slots=True)
class FilePart:
    """One file of the recorder's."""

    number: int
    path: str
    rows: int
    slice_rows: int = SLICE_ROWS

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """One slice for each ``slice_rows`` rows, messages spread over them by their id."""
        try:
            yield from self._slices(columns)
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{Path(self.path).name} cannot be read: {_line(error)}") from error

    def _slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        file = opened(self.path)
        empty = _empty(file.metadata)
        some = [name for name in columns if name not in empty]
        count = -(-self.rows // self.slice_rows) if self.rows else 1
        told = "subscription" in empty and "subscription" in columns
        if count == 1:
            yield _telling(file.read(some, use_threads=False), told=told)
            return
        for number in range(count):
            batches = (
                batch.filter(pa.array(_slice_of(batch.column("message"), count) == number))
                for batch in file.iter_batches(_BATCH_ROWS, columns=some, use_threads=False)
            )
            yield _telling(pa.Table.from_batches(batches), told=told)


def _telling(table: pa.Table, *, told: bool) -> pa.Table:
    """With a column ``subscription``, where it was not read: that there is one tells of topics."""
    field = SCHEMA.field("subscription")
    return table.append_column(field, pa.nulls(len(table), field.type)) if told else table


def _empty(metadata: pq.FileMetaData) -> list[str]:
    """Columns that have no value, as the file's statistics say.

    They need not be read, which would take as long as of a column that is full.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        name
        for n, name in enumerate(metadata.schema.names)
        if name not in ALWAYS and groups and all(_no_value(group.column(n)) for group in groups)
    ]


def _no_value(column: pq.ColumnChunkMetaData) -> bool:
    known = column.statistics
    return known is not None and bool(known.has_null_count) and known.null_count == column.num_values


def _slice_of(message: pa.Array, count: int) -> Any:
    plain = pc.fill_null(message, 0).to_numpy(zero_copy_only=False).view(np.uint64)
    return ((plain * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) % np.uint64(count)


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows that Spark brought here."""

    number: int
    table: pa.Table

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """All rows."""
        present = [name for name in columns if name in self.table.column_names]
        yield self.table.select([*present, *(["run"] if "run" in self.table.column_names else [])])


Work: TypeAlias = Callable[[HistoryPart], Result]
"""What is done on a part."""

_NULLABLE: Final = pa.schema([field.with_nullable(True) for field in SCHEMA])
"""What is null and must not be is told of, so it has to be read."""

TEXTS: Final = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)]
"""The columns that are read as codes and what they stand for."""


def opened(path: str, *, verified: bool = False) -> pq.ParquetFile:
    """A file to read, texts as codes; ``verified``: pages must agree with their checksums."""
    metadata = pq.read_metadata(path)
    there = set(metadata.schema.names)
    texts = [name for name in TEXTS if name in there]
    return pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, page_checksum_verification=verified)


class HistorySource(ABC):
    """One history as it is asked part by part, or many told apart by a column ``run``.

    ``control`` has the rows that carry no messages, ``last_ns`` the time of the last row of each
    run (0 where there are no runs). ``files`` are where the rows come from, if they come from
    files; ``laid_out``: a part is one of them. ``undeclared`` are columns that rows lack which are
    in no file.
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
        """Columns that the history says it does not have."""
        return self.undeclared if self.files is None else self.files.lacking

    def holding(self, index: int | None) -> str:
        """The files that have a row of that index, for a message.

        All together where there is none.
        """
        return "the history" if self.files is None else self.files.holding(index)

    @abstractmethod
    def ask(self, work: Work[Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """Do the work on all parts (or those of these numbers): results by part number."""
        ...

    def tag(self, name: str) -> None:  # noqa: B027 - not everything can be cancelled
        """Name what this thread asks from now on, to cancel it where that is possible."""

    def cancel(self, name: str) -> None:  # noqa: B027 - as above
        """End what is asked under that name, whatever it is at."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one history, and how many rows each has.

    ``laid_out``: as the recorder does, whole groups in parts, the rest in one file.
    """

    rows: Mapping[Path, int]
    lacking: frozenset[str] = frozenset()
    """Columns that some of them say they do not have."""

    @classmethod
    def of(cls, paths: Path | Sequence[Path]) -> Files:
        """In a store directory, its ``history/``, or files given. Raises HistoryError."""
        files = _files([paths] if isinstance(paths, Path) else list(paths))
        opened_ = {file: _looked_at(file) for file in files}
        lacking = frozenset[str]().union(*(lacking for _, lacking in opened_.values()))
        return cls({file: rows for file, (rows, _) in opened_.items()}, lacking)

    @property
    def laid_out(self) -> bool:
        """Whether their names say that the recorder laid them out."""
        parts = [file for file in self.rows if file.name != CONTROL]
        return len(self.rows) - len(parts) <= 1 and all(file.name.startswith("part-") for file in parts)

    @property
    def total(self) -> int:
        """Rows of all files."""
        return sum(self.rows.values())

    def parts(self, slice_rows: int = SLICE_ROWS) -> list[FilePart]:
        """The files with whole groups."""
        return [
            FilePart(number, str(file.resolve()), self.rows[file], slice_rows)
            for number, file in enumerate(file for file in self.rows if file.name != CONTROL)
        ]

    def control(self) -> pa.Table:
        """The rows that carry no messages."""
        tables = [_read(file) for file in self.rows if file.name == CONTROL]
        return tables[0] if tables else SCHEMA.empty_table()

    def everything(self) -> pa.Table:
        """All rows of all files."""
        return pa.concat_tables([_read(file).cast(_NULLABLE) for file in self.rows])

    def last_ns(self) -> int:
        """The time of the last row."""
        return max((_last_ns(file) for file in self.rows), default=0)

    def holding(self, index: int | None) -> str:
        """The files that have a row of that index, for a message.

        The directory of all where none has.
        """
        found = [] if index is None else [file for file in self.rows if _has(file, index)]
        return " and ".join(map(str, found)) or str(next(iter(self.rows)).parent)


class HereSource(HistorySource):
    """A history judged in this process, part by part: no JVM, nothing sent anywhere."""

    def __init__(self, parts: Sequence[HistoryPart], control: pa.Table, last_ns: int, rows: int) -> None:
        super().__init__(control, {0: last_ns}, rows)
        self._parts = tuple(parts)

    @classmethod
    def of(cls, files: Files) -> HereSource:
        """Of files as they lie; where they are not laid out, all rows are one part."""
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
        """One part after the other."""
        return {part.number: work(part) for part in chosen(self._parts, parts)}


def chosen(parts: Iterable[HistoryPart], numbers: Iterable[int] | None) -> list[HistoryPart]:
    """The parts of these numbers; None: all."""
    wanted = None if numbers is None else set(numbers)
    return [part for part in parts if wanted is None or part.number in wanted]


def with_messages(table: pa.Table) -> pa.ChunkedArray:
    """Which rows carry messages."""
    operation = pc.is_in(table["f"].cast(pa.string()), pa.array(WITH_MESSAGES))
    return pc.and_(operation, pc.is_valid(table["queue"].cast(pa.string())))


def _files(given: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in given:
        if (path / "history").is_dir():
            files += sorted((path / "history").glob("*.parquet"))
        elif path.is_dir():
            files += sorted(path.glob("*.parquet"))
        elif path.exists():
            files.append(path)
        else:
            raise HistoryError(f"{path} does not exist; give a test's store directory or its history/")
    if not files:
        named = ", ".join(map(str, given)) or "no path"
        raise HistoryError(f"{named} holds no Parquet files; give a test's store directory or its history/")
    strange = next((file for file in files if file.exists() and not file.is_file()), None)
    if strange is not None:  # a FIFO, for example, of which reading would never end
        raise HistoryError(f"{strange} is no file: the parts of a history are Parquet files")
    return list(dict.fromkeys(files))


def _looked_at(file: Path) -> tuple[int, frozenset[str]]:
    """How many rows it has, and which columns it says it has not."""
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
    told = OLDER.names if declared is None else (*OLDER.names, "headers")
    return int(metadata.num_rows), frozenset(told) - set(has)


def _read(file: Path) -> pa.Table:
    try:
        return completed(pq.read_table(file))
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{file} cannot be read: {_line(error)}") from error


def _has(file: Path, index: int) -> bool:
    """Whether it has a row of that index."""
    try:
        batches = pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=["index"])
        return any(index in batch.column(0).to_numpy(zero_copy_only=False) for batch in batches)
    except (OSError, pa.ArrowException):
        return False


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _last_ns(file: Path) -> int:
    """From the file's own statistics where it has them: no row need be read."""
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
