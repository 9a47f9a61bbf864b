"""The runs of a sweep whose brokers are deployed, and so have no virtual time.

They are made one after another, because they share a machine. Each is a test like any other, with
its own directory, history and report, and is judged when it ends. A file is written for each, so
that a sweep that was cut off continues with the missing runs.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.parquet as pq

from checkers import facts
from harness.explore.plans import SweepPlan, drawn
from harness.explore.runs import WORDS
from harness.explore.sweep.table import SweptRun
from harness.history import known, parquet
from harness.history import store as stores
from harness.interface import Cautioning, InfrastructureError, Schedule, TestSpec, UsageError
from harness.run import session
from harness.run.compose import compose
from harness.run.reproduction import ordered
from harness.systems import registry as systems
from harness.systems.given import using

if TYPE_CHECKING:
    from checkers.starting import Starting
    from checkers.verdict import Verdict

DIRECTORY: Final = "runs"


class Deployed(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A run that ended, and its directory relative to the sweep's; "" if it has none."""

    run: SweptRun
    store: str


def stored_runs(store: Path) -> Iterator[Deployed]:
    """Yield the runs that were made, except those that a bug of ours ended: it may be fixed."""
    for file in sorted((store / DIRECTORY).glob("run-*.json")):
        try:
            made = msgspec.json.decode(file.read_bytes(), type=Deployed)
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(f"{file} is not the record of a run: {error}") from None
        if made.run.ended != "crashed":
            yield made


def warnings(plan: SweepPlan, homes: Mapping[str, str]) -> Sequence[str]:
    """Return what a person should read before the sweep, each line once."""
    lines: list[str] = []
    for number, cell in enumerate(plan.cells):
        with using(homes[cell.release]):
            spec = plan.swarm(number).base
            system = systems.of(spec)
            lines += system.warnings(spec) if isinstance(system, Cautioning) else ()
    return list(dict.fromkeys(lines))


def make(plan: SweepPlan, number: int, store: Path, spark: Starting, homes: Mapping[str, str]) -> Deployed:
    """Draw one run, make it and store its outcome; ``homes`` are the distributions by release.

    Raises KeyboardInterrupt if it was interrupted.
    """
    with using(homes[plan.cell(number).release]):
        spec, schedule = drawn(plan, number)
        made = _made(plan, number, spec, schedule, store, spark)
    stores.save(store / DIRECTORY, f"run-{number:05}.json", made)
    return made


def _made(
    plan: SweepPlan, number: int, spec: TestSpec, schedule: Schedule, store: Path, spark: Starting
) -> Deployed:
    directory, trouble, verdict = "", "", None
    ended, interrupted = "unknown", False
    try:
        outcome = session.execute(compose(spec, schedule, ""), store / DIRECTORY, io.StringIO(), spark=spark)
        directory, verdict = str(outcome.store.relative_to(store)), outcome.verdict
        interrupted = outcome.interrupted
        if verdict is not None:
            ended, trouble = WORDS[verdict.valid], next(iter(verdict.reasons), "")
        else:
            ended, trouble = "crashed", f"a bug of jepsen-run: see {outcome.store}"
    except (InfrastructureError, UsageError) as error:
        trouble = str(error)
    except Exception:  # noqa: BLE001 - reported with the run's number, which alone is unknown
        ended, trouble = "crashed", traceback.format_exc()
    if interrupted:
        raise KeyboardInterrupt
    run_facts = _facts(store / directory) if verdict is not None else facts.Facts()
    bit = any(span.bit for span in run_facts.spans())
    return Deployed(
        run=SweptRun(
            number=number,
            cell=plan.cell(number),
            ended=ended,
            findings=_counted(verdict),
            grave=ordered(finding.name for finding in verdict.findings if finding.severity == "grave")
            if verdict
            else (),
            trouble=trouble or None,
            seed=spec.seed,
            faults=len(schedule.faults),
            digest="",
            bit=bit,
            exposed=bit and verdict is not None and verdict.valid is not None,
            complete=verdict is not None and run_facts.undecided() is None,
            doubts=tuple(known.doubts(verdict)) if verdict else (),
        ),
        store=directory,
    )


def _counted(verdict: Verdict | None) -> dict[str, int]:
    counts = {finding.name: finding.count for finding in verdict.findings} if verdict else {}
    return {name: counts[name] for name in ordered(counts)}


def _facts(store: Path) -> facts.Facts:
    rows = pq.read_table(store / parquet.DIRECTORY / parquet.CONTROL).to_pylist()
    return facts.gather(sorted(rows, key=lambda row: row["index"]))
