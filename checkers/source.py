"""Reading a history part by part, each part with whole groups, so that no rule has to move its rows.

Why: the recorder puts all rows of one (queue, group), and of one message, into one file. A task of Spark that is given a file can judge
its groups alone, and what it answers is small. So work goes to the files, and nothing is exchanged. Where the files have
other names, rows are exchanged once, by queue and group, and the same work is done on what arrives: slower, never wrong.

Rows without a group are spread by producer (or, when exchanged, by message), so a rule that looks at more than one message may only look at
rows that have a group.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as T  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema

from checkers.schema import OLDER, SCHEMA, completed

CONTROL: Final = "control.parquet"
SLICE_ROWS: Final = 4_000_000
"""A part with more rows is read again and again, some of its messages at a time: a single huge group must pass too."""
_BATCH_ROWS: Final = 500_000
_ROWS_A_BUCKET: Final = 500_000
_RESULT: Final = "part int, result binary"
WITH_MESSAGES: Final = ("send", "ack", "nack", "deliver", "browse")
"""Operations whose rows carry messages, where they name a queue."""
_WITH_MESSAGES: Final = f"f in {WITH_MESSAGES} and queue is not null"

Result = TypeVar("Result")


class HistoryError(Exception):
    """What was given is no history; the text says what is wrong and where."""


class Part(Protocol):
    """Some whole groups of a history, within a task."""

    @property
    def number(self) -> int:
        """Its number among the parts."""
        ...

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Tables of whole messages; together all rows. One table, unless the part is huge."""
        ...


SomePart = TypeVar("SomePart", bound=Part)


@dataclass(frozen=True, slots=True)
class FilePart:
    """One file of the recorder's."""

    number: int
    path: str
    rows: int
    slice_rows: int = SLICE_ROWS

    def slices(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """One slice for each ``slice_rows`` rows, messages spread over them by their id."""
        file = opened(self.path)
        count = -(-self.rows // self.slice_rows) if self.rows else 1
        if count == 1:
            yield file.read(list(columns), use_threads=False)
            return
        for number in range(count):
            batches = (
                batch.filter(pa.array(_slice_of(batch.column("message"), count) == number))
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns), use_threads=False)
            )
            yield pa.Table.from_batches(batches)


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


TEXTS: Final = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)]
"""The columns that are read as codes and what they stand for."""


def opened(path: str, *, verified: bool = False) -> pq.ParquetFile:
    """A file of a history to read from, texts as codes; ``verified``: whose pages must agree with their checksums."""
    metadata = pq.read_metadata(path)
    there = set(metadata.schema.names)
    texts = [name for name in TEXTS if name in there]
    return pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, page_checksum_verification=verified)


def _plain() -> pa.Schema:
    return pa.schema(
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA
    )


COLUMNS: Final[T.StructType] = from_arrow_schema(_plain())


class Source(ABC):
    """One history as Spark's tasks read it, or many told apart by a column ``run``.

    ``control`` has the rows that carry no messages, ``last_ns`` the time of the last row of each run (0 where there are no runs).
    """

    def __init__(self, spark: SparkSession, control: pa.Table, last_ns: Mapping[int, int], rows: int) -> None:
        self.spark = spark
        self.control = control
        self.last_ns = last_ns
        self.rows = rows

    @abstractmethod
    def ask(self, work: Callable[[Part], Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """Do the work on every part (or the parts of these numbers), as one job; what it gave by number of the part."""
        ...

    def tag(self, name: str) -> None:
        """From now on the jobs of this thread can be cancelled by this name."""
        self.spark.sparkContext.addJobTag(name)

    def cancel(self, name: str) -> None:
        """End the jobs of that name, whatever they are at."""
        self.spark.sparkContext.cancelJobsWithTag(name)

    @staticmethod
    def open(paths: Path | Sequence[Path], spark: SparkSession, *, slice_rows: int = SLICE_ROWS) -> Source:
        """The history in a store directory, in its ``history/``, or in the given Parquet files; raises HistoryError."""
        files = _files([paths] if isinstance(paths, Path) else list(paths))
        rows = {file: _rows(file) for file in files}
        parts = [file for file in files if file.name != CONTROL]
        control = [file for file in files if file.name == CONTROL]
        laid_out = all(file.name.startswith("part-") for file in parts) and len(control) <= 1
        if laid_out and str(spark.sparkContext.master).startswith("local"):
            numbered = [
                FilePart(number, str(file.resolve()), rows[file], slice_rows)
                for number, file in enumerate(parts)
            ]
            few = pq.read_table(control[0], schema=None) if control else SCHEMA.empty_table()
            last = max((_last_ns(file) for file in files), default=0)
            return FileSource(spark, numbered, completed(few), {0: last}, sum(rows.values()))
        everything = spark.read.schema(COLUMNS).parquet(*map(str, files))
        return FrameSource(spark, everything, sum(rows.values()))


class FileSource(Source):
    """A history that lies as the recorder laid it out."""

    def __init__(
        self,
        spark: SparkSession,
        parts: Sequence[FilePart],
        control: pa.Table,
        last_ns: Mapping[int, int],
        rows: int,
    ) -> None:
        super().__init__(spark, control, last_ns, rows)
        self._parts = tuple(parts)

    def ask(self, work: Callable[[Part], Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """One task a file."""
        wanted = None if parts is None else set(parts)
        mine = [part for part in self._parts if wanted is None or part.number in wanted]
        return on_tasks(self.spark, mine, work)


class FrameSource(Source):
    """Rows that lie anywhere: exchanged by queue and group before each question."""

    def __init__(self, spark: SparkSession, everything: DataFrame, rows: int) -> None:
        runs = "run" in everything.columns
        run = F.col("run") if runs else F.lit(0)
        last = everything.groupBy(run.alias("run")).agg(F.max("time").alias("last")).collect()
        control = everything.where(f"not ({_WITH_MESSAGES})").toArrow()
        super().__init__(spark, control, {row["run"]: row["last"] for row in last}, rows)
        cores = spark.sparkContext.defaultParallelism
        self._buckets = max(2 * cores, -(-rows // _ROWS_A_BUCKET))
        keys = [*(["run"] if runs else []), "queue", "group"]
        alone = F.when(F.col("group").isNull(), F.col("message"))
        self._frame = everything.where(_WITH_MESSAGES).withColumn(
            "bucket", F.pmod(F.xxhash64(*keys, alone), F.lit(self._buckets)).cast("int")
        )

    def ask(self, work: Callable[[Part], Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """One group of rows a bucket."""
        frame = self._frame if parts is None else self._frame.where(F.col("bucket").isin(*sorted(parts)))

        def run(table: pa.Table) -> pa.Table:
            number = table.column("bucket")[0].as_py()
            return pa.Table.from_batches([_packed(number, work(TablePart(number, table)))])

        return _unpacked(frame.groupBy("bucket").applyInArrow(run, _RESULT))


def on_tasks(
    spark: SparkSession, parts: Sequence[SomePart], work: Callable[[SomePart], Result]
) -> dict[int, Result]:
    """Do the work on each part in a task of its own; what it gave by number of the part."""
    if not parts:
        return {}

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                yield _packed(parts[n].number, work(parts[n]))

    return _unpacked(spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, _RESULT))


def _packed(part: int, result: object) -> pa.RecordBatch:
    data = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.RecordBatch.from_arrays(
        [pa.array([part], pa.int32()), pa.array([data], pa.binary())], names=["part", "result"]
    )


def _unpacked(jobs: DataFrame) -> dict[int, Any]:
    return {row["part"]: pickle.loads(row["result"]) for row in jobs.collect()}  # noqa: S301 - our own tasks wrote it


def _files(given: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in given:
        if (path / "history").is_dir():
            files += sorted((path / "history").glob("*.parquet"))
        elif path.is_dir():
            files += sorted(path.glob("*.parquet"))
        elif path.is_file():
            files.append(path)
        else:
            raise HistoryError(f"{path} does not exist; give a test's store directory or its history/")
    if not files:
        named = ", ".join(map(str, given)) or "no path"
        raise HistoryError(f"{named} holds no Parquet files; give a test's store directory or its history/")
    return list(dict.fromkeys(files))


def _rows(file: Path) -> int:
    try:
        metadata = pq.read_metadata(file)
        names = set(pq.read_schema(file).names)
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{file} is not a Parquet file that can be read: {error}") from None
    missing = [name for name in OLDER.names if name not in names]
    if missing:
        raise HistoryError(f'{file} is not a history: it has no column "{missing[0]}"')
    return int(metadata.num_rows)


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
