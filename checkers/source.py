"""Reading a history so that no rule has to move its rows.

Why: the recorder puts all rows of one (queue, group), and of one message, into one file. Spark cannot know that, and would
exchange the whole history over the disk before each aggregation. So the part files are shown to it as the buckets of a table
clustered by (queue, group): a promise about *co-location*, which is all that aggregations and windows ask for. Spark takes a file's
bucket from its name; a directory of symbolic links gives it one. Where the files have other names, or the master is
another machine, they are read plainly and Spark exchanges what it must: slower, never wrong.

Rows without a group are spread by producer, so a rule that looks at more than one message may only look at rows that have a group.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema

from checkers.schema import SCHEMA

CONTROL: Final = "control.parquet"
INTERPRETED_MAX_ROWS: Final = 20_000
"""Up to so many rows Spark interprets its plans: compiling them takes longer than running them (measured on tiny histories: 0.8 s instead of 3 s)."""
_numbers: Final = itertools.count()


class HistoryError(Exception):
    """What was given is no history; the text says what is wrong and where."""


def _plain() -> pa.Schema:
    return pa.schema(
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA
    )


COLUMNS: Final[T.StructType] = from_arrow_schema(_plain())


class Source:
    """One history, or many told apart by ``scope``, as Spark reads it; a context manager that removes its links.

    ``data`` has the rows that carry messages, ``control`` all others. ``scope`` are leading key columns of every aggregation:
    none for a history, ``("run",)`` where many small ones are judged at once.
    """

    def __init__(
        self, spark: SparkSession, data: DataFrame, control: DataFrame, scope: tuple[str, ...] = ()
    ) -> None:
        self.spark = spark
        self.data = data
        self.control = control
        self.scope = scope
        self.rows = 0
        self._links: Path | None = None
        self._table: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._links is not None:  # first: a JVM that has died cannot drop a table
            shutil.rmtree(self._links, ignore_errors=True)
        if self._table is not None:
            self.spark.sql(f"DROP TABLE IF EXISTS {self._table}")

    @classmethod
    def open(
        cls, paths: Path | Sequence[Path], spark: SparkSession, *, interpreted: bool | None = None
    ) -> Source:
        """The history in a store directory, in its ``history/``, or in the given Parquet files; raises HistoryError.

        ``interpreted`` None decides by the number of rows.
        """
        files = _files([paths] if isinstance(paths, Path) else list(paths))
        rows = sum(_rows(file) for file in files)
        spark = spark.newSession()
        interpret(spark, rows <= INTERPRETED_MAX_ROWS if interpreted is None else interpreted)
        parts = [file for file in files if file.name != CONTROL]
        control = [file for file in files if file.name == CONTROL]
        named = all(file.name.startswith("part-") for file in parts) and len(control) <= 1
        if not (named and parts and str(spark.sparkContext.master).startswith("local")):
            everything = spark.read.schema(COLUMNS).parquet(*map(str, files))
            source = cls(
                spark,
                everything.where("f in ('send','ack','nack','deliver','browse') and queue is not null"),
                everything.where("not (f in ('send','ack','nack','deliver','browse') and queue is not null)"),
            )
        else:
            links = Path(tempfile.mkdtemp(prefix="jepsen-history-"))
            for number, file in enumerate(parts):
                (links / f"part_{number:05d}.parquet").symlink_to(file.resolve())
            table = f"history_{next(_numbers)}"
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in COLUMNS)
            spark.sql(
                f"CREATE TABLE {table} ({columns}) USING parquet CLUSTERED BY (`queue`, `group`) "
                f"INTO {len(parts)} BUCKETS LOCATION '{links.as_uri()}'"
            )
            few = (
                spark.read.schema(COLUMNS).parquet(str(control[0]))
                if control
                else spark.createDataFrame([], COLUMNS)
            )
            source = cls(spark, spark.table(table), few)
            source._links, source._table = links, table
        source.rows = rows
        return source


def interpret(spark: SparkSession, yes: bool) -> None:
    """Whether this session interprets its plans or compiles them; its own setting, no other session's."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false" if yes else "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if yes else "FALLBACK")


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
    missing = [name for name in SCHEMA.names if name not in names]
    if missing:
        raise HistoryError(f'{file} is not a history: it has no column "{missing[0]}"')
    return int(metadata.num_rows)
