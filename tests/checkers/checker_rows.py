"""One tiny constructor for history rows, and both implementations behind one call."""

from __future__ import annotations

import dataclasses
import os
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import share
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from checkers import judge, reference
from checkers.arrow_schema import SCHEMA
from checkers.decide import undecidable
from checkers.instance import Instance
from checkers.schema import HARNESS
from checkers.source import WITH_MESSAGES, FilePart, HereSource
from checkers.spark_source import COLUMNS, FrameSource
from checkers.verdict import CheckOptions

Row = dict[str, Any]
MS = 1_000_000
S = 1_000 * MS


def o(index: int, process: int, type_: str, f: str, message: int | None = None, **columns: Any) -> Row:
    """A row; messages are in queue "q", group "g" unless said otherwise, time is 1 ms an index."""
    row: Row = {"index": index, "time": index * MS, "process": process, "type": type_, "f": f}
    if message is not None or (f in WITH_MESSAGES and process >= 0):
        row |= {"queue": "q", "group": "g", "message": message}
    row |= columns
    return {name: value for name, value in row.items() if value is not None}


class Story:
    """Rows one after the other."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, process: int, type_: str, f: str, message: int | None = None, **columns: Any) -> Self:
        """One more."""
        self.rows.append(o(len(self.rows), process, type_, f, message, **columns))
        return self


def phase(index: int, value: str, **columns: Any) -> Row:
    return o(index, HARNESS, "info", "phase", value=value, **columns)


def finished(index: int, *, read: Sequence[str] = ("a1",)) -> list[Row]:
    """The end of a test in which all was drained and the stores of some brokers were read."""
    phases = [phase(index + n, value) for n, value in enumerate(("heal", "recovered", "drain", "browse"))]
    readings = [o(index + 4 + n, HARNESS, "ok", "browse", broker=broker) for n, broker in enumerate(read)]
    return [*phases, *readings, phase(index + 4 + len(read), "end")]


BROWSING = finished(60, read=())[:4]
"""The same to where the stores are read."""
BROWSED = [phase(95, "end")]


def dense(rows: Sequence[Row]) -> list[Row]:
    """With rows that say nothing between those whose indexes leave gaps, and times that never go
    back.
    """
    given = {row["index"]: row for row in rows}
    whole: list[Row] = []
    for index in range(max(given) + 1):
        row = given.get(index) or o(index, HARNESS, "info", "restart", broker="z9")
        whole.append({**row, "time": max(row["time"], whole[-1]["time"] if whole else 0)})
    return whole


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def spark_instances(
    spark: SparkSession, runs: Sequence[Sequence[Row]], options: CheckOptions | None = None
) -> list[set[Instance]]:
    """Every instance in each of many histories, judged by the rules on Spark in one go."""
    options = msgspec.structs.replace(options or CheckOptions(), examples=10**9)
    schema = pa.schema([pa.field("run", pa.int32())] + [pa.field(f.name, _plain(f.type)) for f in SCHEMA])
    rows = [{**row, "run": run} for run, history in enumerate(runs) for row in history]
    columns = T.StructType([T.StructField("run", T.IntegerType()), *COLUMNS.fields])
    everything = spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema), columns).cache()
    check_run = judge.CheckRun(FrameSource(spark, everything, len(rows)), options)
    case = judge.examine(check_run)
    everything.unpersist()
    assert case is not None
    assert not check_run.unknown, check_run.unknown
    return [found_in(case, run) for run in range(len(runs))]


class Here(HereSource):
    """Judged in this process, but what is asked goes through pickle, as between Spark's
    processes.
    """

    def ask(self, work, parts=None):
        return super().ask(pickle.loads(cloudpickle.dumps(work)), parts)  # noqa: S301


SLICES_MOST = 3
"""In so many slices a part is judged at most: messages of one group lie in different ones."""


def lay_out(directory: Path, rows: Sequence[Row], *, slice_rows: int) -> Here:
    """One part for each of the groups, so that proofs must come from others; control rows apart."""
    directory.mkdir()
    carries = [r["f"] in WITH_MESSAGES and "queue" in r for r in rows]
    groups: dict[Any, list[Row]] = {}
    for row, carried in zip(rows, carries, strict=True):
        if carried:
            groups.setdefault((row["queue"], row.get("group")), []).append(row)
    parts = []
    for number, some in enumerate(groups.values()):
        path = directory / f"part-{number:05d}.parquet"
        pq.write_table(table(some), path)
        parts.append(FilePart(number, str(path), len(some), max(slice_rows, -(-len(some) // SLICES_MOST))))
    control = table([row for row, carried in zip(rows, carries, strict=True) if not carried])
    return Here(parts, control, max(row["time"] for row in rows), len(rows))


def file_instances(
    directory: Path, rows: Sequence[Row], options: CheckOptions | None = None, *, slice_rows: int = 10**6
) -> set[Instance]:
    """Every instance in one history that lies in files."""
    check_run = judge.CheckRun(
        lay_out(directory, rows, slice_rows=slice_rows),
        msgspec.structs.replace(options or CheckOptions(), examples=10**9),
    )
    case = judge.examine(check_run)
    assert case is not None
    assert not check_run.unknown, check_run.unknown
    return found_in(case, 0)


WAYS = {"whole": 10**6, "sliced": 3}
"""How files are read, by name: with so many rows in each slice."""

tried = share.ALL
"""The share of the histories that are read both ways; ``conftest.py`` sets that of the commit."""


def ways_of(rows: Sequence[Row]) -> list[str]:
    """The ways to read a history: both if it is of the share, else the one that its rows decide."""
    number = zlib.crc32(repr(rows).encode())
    if tried == share.ALL or share.SHARES.index(tried) == number % len(share.SHARES):
        return [*WAYS]
    return [[*WAYS][number // len(share.SHARES) % len(WAYS)]]


def agreed(directory: Path, rows: Sequence[Row], options: CheckOptions) -> set[Instance]:
    """What the reference finds.

    Columns must find the same: at once, in files, if the history is read both ways; else later, in
    one go with the histories of other tests (``differences``).
    """
    directory.mkdir(exist_ok=True)
    found = set(reference.find(rows, options))
    ways = ways_of(rows)
    if len(ways) < len(WAYS):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
        waiting.append(Waiting(test, [dict(row) for row in rows], options, ways[0], frozenset(found)))
        return found
    for way in ways:
        assert file_instances(directory / way, rows, options, slice_rows=WAYS[way]) == found, way
    return found


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A history that the reference has judged, and the columns have not."""

    test: str
    rows: list[Row]
    options: CheckOptions
    way: str
    found: frozenset[Instance]

    @property
    def batch(self) -> tuple[str, str]:
        """What is the same for all histories that are judged in one go."""
        return repr(self.options), self.way


waiting: list[Waiting] = []
"""Of this process; ``conftest.py`` has them judged when its session ends."""
PARTS = 3


def differences() -> list[str]:
    """Judge all histories that wait; return a line for each of which columns say something else."""
    batches: dict[tuple[str, str], list[Waiting]] = {}
    for one in waiting:
        batches.setdefault(one.batch, []).append(one)
    waiting.clear()
    return [line for batch in batches.values() for line in differences_of(batch)]


def differences_of(batch: Sequence[Waiting]) -> list[str]:
    """As the campaign judges them, in several parts, so that proofs must come from others.

    If a rule crashes, each history is judged alone, to tell with which.
    """
    from bench.agreement import on_columns  # it imports tests, which import this module

    way = batch[0].way
    slices = 1 if way == "whole" else SLICES_MOST
    try:
        by_columns = on_columns([one.rows for one in batch], batch[0].options, slices, parts=PARTS)
    except Exception as error:
        alone = [line for one in batch for line in differences_of([one])] if len(batch) > 1 else []
        return alone or [f"{', '.join(one.test for one in batch)} ({way}): columns did not judge it: {error}"]
    return [
        f"{one.test} ({way}): columns alone find {sorted(map(str, found - one.found))}, "
        f"the reference alone {sorted(map(str, one.found - found))}"
        for one, found in zip(batch, by_columns, strict=True)
        if found != one.found
    ]


def judge_those_that_wait() -> None:
    """Fail if columns say something else of a history that waits."""
    if lines := differences():
        pytest.fail("\n".join(lines), pytrace=False)


def found_in(case: judge.Examination, run: int) -> set[Instance]:
    """What was found in one run, as the reference names it."""
    return {
        dataclasses.replace(i, run=0)
        for name, found in case.found.get(run, {}).items()
        for i in found.first
        if not name.startswith("~") and name not in undecidable(case.facts_by_run[run])
    }


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_
