"""The runs of a sweep: which there are, one of them as a task, and the file that each leaves.

Why a file for each run: it is there whole or not at all, so a sweep that was cut off goes on with
what is missing, and a run lies where one task can judge it alone. Together the files are one
Parquet data set, told apart by the column ``run``; what decided a run (its spec and its schedule)
and how it went are in the metadata of its file, so that no second file can disagree with it.
"""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.runs import RUNS_SCHEMA, RunFile
from harness.explore.swarm import DEFAULTS, Swarm, draw, swarm
from harness.history import spec as specs
from harness.history.recorder import to_batch
from harness.interface import InfrastructureError, Schedule, TestSpec, UsageError
from harness.run import reproduction
from harness.run.simulate import simulate

HISTORIES: Final = "histories"
PLAN: Final = "sweep.json"
_METADATA: Final = b"jepsen-run"
_BATCH_ROWS: Final = 50_000


class Cell(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a run is of: a policy and the one nemesis that breaks it."""

    policy: str
    nemesis: str


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Everything that decides a sweep: ``sweep.json``.

    Run ``n`` is of cell ``n`` modulo their number, drawn from the seed and ``n``.

    ``base`` has what all runs share; ``fixed`` are the names of its fields that are not drawn.
    """

    versions: dict[str, str]
    seed: int
    runs: int
    base: TestSpec
    cells: tuple[Cell, ...]
    fixed: tuple[str, ...] = ()

    def cell(self, number: int) -> Cell:
        """What a run is of."""
        return self.cells[number % len(self.cells)]

    def draw(self, number: int) -> tuple[TestSpec, Schedule]:
        """A run's spec and faults."""
        return draw(self._swarm(self.cell(number)), self.run_seed(number))

    def run_seed(self, number: int) -> str:
        """What decides one run."""
        return f"{self.seed}/{number}"

    def _swarm(self, cell: Cell) -> Swarm:
        base = msgspec.structs.replace(
            self.base,
            name=f"{cell.policy}-{cell.nemesis}",
            policy=cell.policy,
            nemeses=(cell.nemesis,),
        )
        return swarm(base, fixed=frozenset(self.fixed))


def cells(base: TestSpec, policies: Sequence[str], nemeses: Sequence[str]) -> tuple[Cell, ...]:
    """Every policy with every nemesis.

    Without nemeses, with all that the policy is promised to survive.

    Raises UsageError for a policy or a nemesis that there is not, or that does not fit the cluster.
    """
    found = []
    for policy in policies:
        of_policy = swarm(msgspec.structs.replace(base, policy=policy, nemeses=tuple(nemeses)))
        found += [Cell(policy=policy, nemesis=nemesis) for nemesis in of_policy.kinds]
    return tuple(found)


def new_plan(given: Mapping[str, Any], runs: int) -> Plan:
    """The plan of a new sweep, from what was given.

    ``policies``, ``nemeses``, ``seed`` and fields of a spec.

    Raises UsageError for what cannot be.
    """
    values = dict(given)
    policies: Sequence[str] = values.pop("policies", None) or ("replication",)
    nemeses: Sequence[str] = values.pop("nemeses", None) or ()
    seed: int | None = values.pop("seed", None)
    for option, names in (("policy", policies), ("nemesis", nemeses)):
        if len(set(names)) != len(names):
            raise UsageError(f"--{option} {','.join(names)} names one twice")
    base = specs.build({**DEFAULTS, **values, "name": "-".join([*policies, *nemeses])})
    return Plan(
        versions=reproduction.versions(),
        seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
        runs=runs,
        base=base,
        cells=cells(base, policies, nemeses),
        fixed=tuple(sorted(values)),
    )


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """How a run went, apart from its history.

    ``bug`` is the traceback of an error of ours: there is no history then.
    """

    number: int
    spec: TestSpec
    schedule: Schedule
    rows: int = 0
    trouble: str | None = None
    digest: str = ""
    virtual_s: float = 0.0
    bug: str = ""


def attempt(plan: Plan, number: int, histories: Path) -> Record:
    """Simulate one run and leave its file.

    An error of ours in it is kept too: it concerns that run alone. Raises OSError.
    """
    spec, schedule = plan.draw(number)
    batches: list[pa.RecordBatch] = []
    try:
        run = simulate(spec, schedule, judge=False)
        recorded = run.recorded
        batches = [
            to_batch(list(recorded[start : start + _BATCH_ROWS]))
            for start in range(0, len(recorded), _BATCH_ROWS)
        ]
        record = Record(
            number=number,
            spec=run.spec,
            schedule=run.schedule,
            rows=len(recorded),
            trouble=run.trouble,
            digest=run.digest,
            virtual_s=round(run.virtual_s, 3),
        )
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - told by number and seed, and unknown for itself
        batches = []
        record = Record(number=number, spec=spec, schedule=schedule, bug=traceback.format_exc())
    _write(record, batches, histories)
    return record


def _write(record: Record, batches: Sequence[pa.RecordBatch], histories: Path) -> None:
    path = histories / name(record.number)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        schema = RUNS_SCHEMA.with_metadata({_METADATA: msgspec.json.encode(record)})
        with pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer:
            for batch in batches:
                run = pa.repeat(pa.scalar(record.number, pa.int32()), batch.num_rows)
                writer.write_table(pa.Table.from_arrays([run, *batch.columns], schema=schema))
        temporary.replace(path)
    except pa.ArrowException as error:  # Arrow's own words for a full disk
        raise OSError(str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def name(number: int) -> str:
    """The file of a run."""
    return f"run-{number:06d}.parquet"


def read(histories: Path) -> Iterator[tuple[Path, Record]]:
    """The runs that are there, by number. Raises UsageError naming the first file that is none."""
    for path in sorted(histories.glob("run-*.parquet")):
        yield path, _record(path)


def _record(path: Path) -> Record:
    mend = "remove it, and the sweep simulates that run again with --resume"
    try:
        metadata: dict[bytes, bytes] = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path} is damaged ({_line(error)}): {mend}") from None
    try:
        record = msgspec.json.decode(metadata.get(_METADATA, b""), type=Record)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not a run of a sweep ({error}): {mend}") from None
    if path.name != name(record.number):
        raise UsageError(f"{path} holds run {record.number}: {mend}")
    return record


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")


def files(found: Iterable[tuple[Path, Record]]) -> list[RunFile]:
    """Those that have a history, as the checkers take them."""
    return [
        RunFile(run=record.number, path=str(path.resolve()), rows=record.rows)
        for path, record in found
        if record.rows
    ]


def clear(histories: Path) -> None:
    """Remove what tasks that were killed left half written."""
    for path in histories.glob(".run-*"):
        path.unlink(missing_ok=True)


def load_plan(store: Path) -> Plan:
    """Raises UsageError if ``store`` is not the directory of a sweep."""
    path = store / PLAN
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except FileNotFoundError:
        raise UsageError(
            f"{store} is not the directory of a sweep: it has no {PLAN}; give what the sweep named as "
            "its store"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not the plan of a sweep: {error}") from None


def simulate_all(spark: Any, plan: Plan, numbers: Sequence[int], histories: Path, slices: int) -> None:
    """Simulate runs in tasks of Spark, each task some of them.

    Raises InfrastructureError where a file cannot be written.
    """
    directory = histories.resolve()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for position in batch.column(0).to_pylist():
                number, trouble = numbers[position], ""
                try:
                    attempt(plan, number, directory)
                except OSError as error:
                    trouble = f"run {number}: {directory / name(number)} cannot be written: {error}"
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([trouble])], names=["run", "trouble"]
                )

    done = spark.range(0, len(numbers), 1, min(slices, len(numbers))).mapInArrow(
        work, "run int, trouble string"
    )
    troubles = [row["trouble"] for row in done.collect() if row["trouble"]]
    if troubles:
        raise InfrastructureError(troubles[0])


__all__ = [
    "HISTORIES",
    "PLAN",
    "Cell",
    "Plan",
    "Record",
    "attempt",
    "cells",
    "clear",
    "files",
    "load_plan",
    "name",
    "new_plan",
    "read",
    "simulate_all",
]
