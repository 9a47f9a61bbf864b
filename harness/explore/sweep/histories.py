"""The histories of a sweep: a file for each run.

Why a file for each run: it exists as a whole or not at all, so a sweep that was cut off continues
with what is missing. And one task can judge a run alone. Together the files are one Parquet data
set, told apart by the column ``run``. The metadata of a run's file has what decided it (its spec
and its schedule) and how it went. So no second file can disagree with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.runs import RUNS_SCHEMA, RunFile
from harness.explore.plans import SweepPlan
from harness.explore.runs import ExploredRun, made
from harness.history.recorder import to_batch
from harness.interface import InfrastructureError, UsageError

DIRECTORY: Final = "histories"
_METADATA: Final = b"jepsen-run"
_BATCH_ROWS: Final = 50_000


def recorded(plan: SweepPlan, directory: Path, number: int) -> ExploredRun:
    """Draw and simulate one run and write its file, to be judged with the others.

    Raises InfrastructureError.
    """
    record, run = made(plan, number, judge=False)
    path = directory / name(number)
    try:
        _write(record, () if run is None else run.recorded, path)
    except OSError as error:
        raise InfrastructureError(f"run {number}: {path} cannot be written: {error}") from error
    return record


def _write(record: ExploredRun, rows: Sequence[Any], path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        schema = RUNS_SCHEMA.with_metadata({_METADATA: msgspec.json.encode(record)})
        with pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer:
            for start in range(0, len(rows), _BATCH_ROWS):
                batch = to_batch(list(rows[start : start + _BATCH_ROWS]))
                run = pa.repeat(pa.scalar(record.number, pa.int32()), batch.num_rows)
                writer.write_table(pa.Table.from_arrays([run, *batch.columns], schema=schema))
        temporary.replace(path)
    except pa.ArrowException as error:  # Arrow's own words for a full disk
        raise OSError(str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def name(number: int) -> str:
    """Return the name of a run's file."""
    return f"run-{number:06d}.parquet"


def read(directory: Path, runs: int) -> Iterator[tuple[Path, ExploredRun]]:
    """Yield those of the first ``runs`` runs that have a file, by number.

    Raises UsageError that names the first file that is not of a run.
    """
    for path in sorted(directory.glob("run-*.parquet")):
        record = _record(path)
        if record.number < runs:
            yield path, record


def _record(path: Path) -> ExploredRun:
    mend = "remove it, and the sweep simulates that run again with --resume"
    try:
        metadata: dict[bytes, bytes] = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path} is damaged ({_line(error)}): {mend}") from None
    try:
        record = msgspec.json.decode(metadata.get(_METADATA, b""), type=ExploredRun)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not a run of a sweep ({error}): {mend}") from None
    if path.name != name(record.number):
        raise UsageError(f"{path} holds run {record.number}: {mend}")
    return record


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")


def files(records: Iterable[tuple[Path, ExploredRun]]) -> list[RunFile]:
    """Return the files that have a history, as the checkers take them."""
    return [
        RunFile(run=record.number, path=str(path.resolve()), rows=record.rows)
        for path, record in records
        if record.rows
    ]


def clear(directory: Path) -> None:
    """Remove half-written files that a killed process left."""
    for path in directory.glob(".run-*"):
        path.unlink(missing_ok=True)
