"""The command ``jepsen-run claims --refute``: it tries each row with a changed broker.

The changed broker lacks what the row is about, so the row must notice.

A refuter counts if three things hold. First, the changed broker passes the same run without faults
(for a probe: every step before the one that must fail); a change that breaks that is mere breakage,
which refutes everything. Second, with the faults the row is not as expected. Third, the expectation
that fails is the one that the refuter names. Each row is tried in processes of its own, from a copy
of the broker's package in which the texts are replaced; scenarios run in the simulation, and probes
start the changed ``brokerd``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.claims.scenarios import Probe, Scenario
from harness.history import judge as judging
from mutants.changed import ROOT, StaleReplacementError, grow, variables
from mutants.refutation_worker import Tried
from mutants.refuters import REFUTERS
from mutants.refuters.refuter import Refuter

PATIENCE_S: Final = 900.0
"""The limit of one row (s), reached only by a changed broker that runs in an endless loop."""

AS_IT_SHOULD: Final = "failed as it should"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefutationRequest:
    """The request of ``claims --refute``.

    Each row is tried with ``runs`` seeds, and must notice in each.
    """

    rows: Sequence[Scenario | Probe]
    runs: int
    root: Path
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Teeth:
    """The result of trying one row.

    ``status`` says whether the row noticed (``judging.VALID``, ``INVALID``, or ``UNKNOWN``),
    ``words`` says so in a few words, and ``failed`` is what failed.
    """

    status: int
    words: str
    failed: str = ""

    def __str__(self) -> str:
        return f"{self.words}: {self.failed}" if self.failed else self.words


def run(request: RefutationRequest) -> int:
    """Try all rows and print the table as it grows; return the exit status.

    0 if every row noticed, 1 if a row did not, 2 if one could not be decided.
    """
    out = sys.stderr if request.as_json else sys.stdout
    outcomes = asyncio.run(_try_all(request, out))
    good = sum(teeth.status == judging.VALID for teeth in outcomes)
    print(
        f"\n{good} of {len(outcomes)} rows fail, as they must, with a broker that lacks the tested feature",
        file=out,
    )
    if request.as_json:
        print(msgspec.json.encode(_document(request.rows, outcomes)).decode())
    statuses = {teeth.status for teeth in outcomes}
    return next(
        (status for status in (judging.INVALID, judging.UNKNOWN) if status in statuses), judging.VALID
    )


async def _try_all(request: RefutationRequest, out: Any) -> list[Teeth]:
    """Try as many rows at a time as this machine has cores; print them in their order."""
    free = asyncio.Semaphore(os.cpu_count() or 1)
    width = max(len(row.id) for row in request.rows)

    async def try_row(row: Scenario | Probe) -> Teeth:
        async with free:
            return await refute(row, REFUTERS.get(row.id), request.runs, request.root)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(try_row(row)) for row in request.rows]
        for row, task in zip(request.rows, tasks, strict=True):
            print(f"{row.id:<{width}}  {await task}", file=out)
            if (refuter := REFUTERS.get(row.id)) is not None:
                print(f"{'':<{width}}    {refuter.without}", file=out)
            out.flush()
    return [task.result() for task in tasks]


async def refute(row: Scenario | Probe, refuter: Refuter | None, runs: int, root: Path) -> Teeth:
    """Try one row with a refuter."""
    if refuter is None:
        return Teeth(judging.INVALID, "no refuter")
    with tempfile.TemporaryDirectory(prefix="refute-") as directory:
        try:
            tree = grow(Path(directory), refuter.changes)
        except StaleReplacementError as error:
            return Teeth(judging.UNKNOWN, "the refuter is older than the broker", str(error))
        except OSError as error:
            return Teeth(judging.UNKNOWN, "the broker's package cannot be copied", str(error))
        answer = await _ask(row.id, runs, root, tree)
    if isinstance(answer, str):
        return Teeth(judging.UNKNOWN, "could not be tried", answer)
    return decide(refuter, answer)


async def _ask(identifier: str, runs: int, root: Path, tree: Path) -> Tried | str:
    """Return what a process with the changed broker says of the row, or its last line of errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "mutants.refutation_worker",
        identifier,
        str(runs),
        str(Path.cwd() / root),
        env=variables(tree, ROOT / "tests", ROOT),
        cwd=tree,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            printed, complained = await process.communicate()
    except TimeoutError:
        return f"no end within {PATIENCE_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    last = printed.strip().rpartition(b"\n")[2]
    if process.returncode != 0 or not last:
        words = complained.decode(errors="replace").strip().rpartition("\n")[2]
        return words or f"exit status {process.returncode}"
    return msgspec.json.decode(last, type=Tried)


def decide(refuter: Refuter, tried: Tried) -> Teeth:
    """Decide whether the row noticed, in every run, by the expectation of its refuter."""
    if tried.before:
        return Teeth(judging.INVALID, "REFUTES EVERYTHING, the run without faults too", tried.before)
    several = len(tried.runs) > 1
    for number, outcome in enumerate(tried.runs):
        seed_words = f" (seed {number})" if several else ""
        if outcome.undecided:
            return Teeth(judging.UNKNOWN, f"undecided{seed_words}", outcome.undecided)
        if not outcome.problem:
            return Teeth(judging.INVALID, f"NO TEETH: still as expected{seed_words}")
        if refuter.fails not in outcome.problem:
            return Teeth(
                judging.INVALID, f'FAILED OTHERWISE{seed_words}, not by "{refuter.fails}"', outcome.problem
            )
    return Teeth(judging.VALID, AS_IT_SHOULD, tried.runs[0].problem)


def _document(rows: Sequence[Scenario | Probe], outcomes: Sequence[Teeth]) -> dict[str, Any]:
    return {
        "rows": [
            {
                "id": row.id,
                "without": refuter.without if refuter else None,
                "fails": refuter.fails if refuter else None,
                "has-teeth": {judging.VALID: True, judging.INVALID: False}.get(teeth.status),
                "words": teeth.words,
                "failed": teeth.failed,
            }
            for row, teeth in zip(rows, outcomes, strict=True)
            for refuter in [REFUTERS.get(row.id)]
        ]
    }
