"""A history that Spark's tasks read, many parts at once, here or on a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as T  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema

from checkers.arrow_schema import SCHEMA
from checkers.source import (
    SLICE_ROWS,
    WITH_MESSAGES,
    Files,
    HistoryPart,
    HistorySource,
    Result,
    TablePart,
    Work,
    chosen,
)

_ROWS_A_BUCKET: Final = 500_000
_TASKS_A_CORE: Final = 8
_RESULT: Final = "part int, result binary"
_WITH_MESSAGES: Final = f"f in {WITH_MESSAGES} and queue is not null"


class Numbered(Protocol):
    """A thing to work on that has a number of its own."""

    @property
    def number(self) -> int:
        """The number of this thing."""
        ...


SomePart = TypeVar("SomePart", bound=Numbered)


def _plain() -> pa.Schema:
    return pa.schema(
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA
    )


COLUMNS: Final[T.StructType] = from_arrow_schema(_plain())


class SparkSource(HistorySource):
    """A history that jobs of Spark read."""

    def __init__(self, spark: SparkSession, control: pa.Table, last_ns: Mapping[int, int], rows: int) -> None:
        super().__init__(control, last_ns, rows)
        self.spark = spark

    def tag(self, name: str) -> None:
        """Give this thread's jobs a name from now on, by which they can be cancelled."""
        self.spark.sparkContext.addJobTag(name)

    def cancel(self, name: str) -> None:
        """Cancel the jobs with a name, however far they are."""
        self.spark.sparkContext.cancelJobsWithTag(name)


def open_with(files: Files, spark: SparkSession, *, slice_rows: int = SLICE_ROWS) -> HistorySource:
    """Return a history of some files for Spark; its parts are the files in the recorder's layout.

    In another layout, rows are exchanged by queue and group. Either way a cluster's executors must
    see the files under the same paths.
    """
    if files.laid_out:
        last = {0: files.last_ns()}
        source: HistorySource = FileSource(spark, files.parts(slice_rows), files.control(), last, files.total)
        source.laid_out = True
    else:
        everything = spark.read.schema(COLUMNS).parquet(*map(str, files.rows))
        source = FrameSource(spark, everything, files.total)
    source.files = files
    return source


class FileSource(SparkSource):
    """A history whose files are its parts."""

    def __init__(
        self,
        spark: SparkSession,
        parts: Sequence[HistoryPart],
        control: pa.Table,
        last_ns: Mapping[int, int],
        rows: int,
    ) -> None:
        super().__init__(spark, control, last_ns, rows)
        self._parts = tuple(parts)

    def ask(self, work: Work[Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """Do the work on the parts, one after the other in each of some tasks for each core.

        Why not in one task for each part: each task unpacks the work anew, which may be as large as
        a part.
        """
        tasks = _TASKS_A_CORE * self.spark.sparkContext.defaultParallelism
        return on_tasks(self.spark, chosen(self._parts, parts), work, tasks=tasks)


class FrameSource(SparkSource):
    """A history in any layout; before each work its rows are exchanged by queue and group."""

    def __init__(self, spark: SparkSession, everything: DataFrame, rows: int) -> None:
        runs = "run" in everything.columns
        run = F.col("run") if runs else F.lit(0)
        last = everything.groupBy(run.alias("run")).agg(F.max("time").alias("last")).collect()
        control = everything.where(f"not ({_WITH_MESSAGES})").toArrow()
        super().__init__(spark, control, {row["run"]: row["last"] for row in last}, rows)
        cores = spark.sparkContext.defaultParallelism
        self._buckets = max(2 * cores, -(-rows // _ROWS_A_BUCKET))
        keys = [*(["run"] if runs else []), "queue", "group"]
        ungrouped = F.when(F.col("group").isNull(), F.col("message"))
        self._frame = everything.where(_WITH_MESSAGES).withColumn(
            "bucket", F.pmod(F.xxhash64(*keys, ungrouped), F.lit(self._buckets)).cast("int")
        )

    def ask(self, work: Work[Result], parts: Iterable[int] | None = None) -> dict[int, Result]:
        """Do the work on each bucket of rows as one part."""
        frame = self._frame if parts is None else self._frame.where(F.col("bucket").isin(*sorted(parts)))

        def run(table: pa.Table) -> pa.Table:
            number = table.column("bucket")[0].as_py()
            return pa.Table.from_batches([_packed(number, work(TablePart(number, table)))])

        return _unpacked(frame.groupBy("bucket").applyInArrow(run, _RESULT))


def on_tasks(
    spark: SparkSession,
    parts: Sequence[SomePart],
    work: Callable[[SomePart], Result],
    *,
    tasks: int | None = None,
) -> dict[int, Result]:
    """Do the work on each part in a task of its own, or in ``tasks`` tasks; results by number."""
    if not parts:
        return {}

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                yield _packed(parts[n].number, work(parts[n]))

    return _unpacked(
        spark.range(0, len(parts), 1, min(tasks or len(parts), len(parts))).mapInArrow(run, _RESULT)
    )


def _packed(part: int, result: object) -> pa.RecordBatch:
    data = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.RecordBatch.from_arrays(
        [pa.array([part], pa.int32()), pa.array([data], pa.binary())], names=["part", "result"]
    )


def _unpacked(jobs: DataFrame) -> dict[int, Any]:
    return {row["part"]: pickle.loads(row["result"]) for row in jobs.collect()}  # noqa: S301 - our own tasks wrote it
