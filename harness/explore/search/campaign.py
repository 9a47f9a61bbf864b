"""The campaign of a search: counted while it runs, stored as ``campaign.json``, and summed up.

Why more than the finding: a search that found nothing says something only together with what it
tried. So it stores and prints how runs ended, which faults bit and what happened in none of them.
Every run that was not valid is stored with the seed that draws it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from harness.explore.plans import SearchPlan, run_seed
from harness.explore.runs import ExploredRun
from harness.explore.shrink.case import ShrinkCase, describe
from harness.explore.talk import counted
from harness.history import coverage
from harness.history import store as stores
from harness.interface import Event, Schedule, TestSpec, program
from harness.run import reproduction
from harness.run.simulate import Simulated
from harness.systems import registry as systems

FILE: Final = "campaign.json"


class KeptRun(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A run that was not valid, as ``campaign.json`` lists it.

    It can be drawn again from the search's seed and its number.
    """

    number: int
    seed: str
    ended: str  # "invalid" | "unknown" | "failed"
    findings: tuple[str, ...]
    trouble: str | None
    spec: TestSpec
    schedule: Schedule


class Campaign(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The result of a search: ``campaign.json``.

    ``ended`` counts runs by how they ended. ``coverage`` counts how often each thing happened,
    ``runs_with`` in how many runs, and ``never`` has the names of what happened in none.
    """

    versions: dict[str, str]
    seed: int
    base: TestSpec
    kinds: tuple[str, ...]
    bounded: bool
    runs: int
    ended: dict[str, int]
    real_s: float
    virtual_s: float
    kept: tuple[KeptRun, ...]
    coverage: dict[str, int]
    runs_with: dict[str, int]
    never: dict[str, str]
    stopped: str
    reproduction: str | None = None


class SearchTally:
    """The counts of the runs that have ended, and those runs that were not valid."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.coverage: Counter[str] = Counter()
        self.runs_with: Counter[str] = Counter()
        self.kept: list[ExploredRun] = []
        self.virtual_s = 0.0

    def add(self, record: ExploredRun) -> None:
        """Count one more run."""
        self.ended[record.word] += 1
        self.coverage.update(record.coverage)
        self.runs_with.update(record.coverage.keys())
        self.virtual_s += record.virtual_s
        if record.word != "valid":
            self.kept.append(record)

    @property
    def runs(self) -> int:
        """The number of runs that have ended."""
        return self.ended.total()

    def first(self, word: str) -> ExploredRun | None:
        """Return the run with the lowest number that ended in this way, or None."""
        return min(
            (record for record in self.kept if record.word == word),
            key=lambda record: record.number,
            default=None,
        )


def campaign(
    tally: SearchTally, plan: SearchPlan, *, real_s: float, stopped: str, stored: Path | None
) -> Campaign:
    """Return the stored result of a search that has ended."""
    swarm, seed = plan.swarm(), plan.seed
    events = systems.of(swarm.base).events
    traits = systems.of(swarm.base).policies[swarm.base.policy].traits
    possible = coverage.possible(swarm.nodes, swarm.kinds, swarm.base.workload, events, traits)
    never = coverage.never([tally.coverage], possible)
    return Campaign(
        versions=reproduction.versions(),
        seed=seed,
        base=swarm.base,
        kinds=swarm.kinds,
        bounded=swarm.bounded,
        runs=tally.runs,
        ended=dict(sorted(tally.ended.items())),
        real_s=round(real_s, 3),
        virtual_s=round(tally.virtual_s, 3),
        kept=tuple(
            KeptRun(
                number=record.number,
                seed=run_seed(seed, record.number),
                ended=record.word,
                findings=record.grave,
                trouble=record.bug or record.trouble,
                spec=record.spec,
                schedule=record.schedule,
            )
            for record in sorted(tally.kept, key=lambda record: record.number)
        ),
        coverage=dict(sorted(tally.coverage.items())),
        runs_with=dict(sorted(tally.runs_with.items())),
        never={name: _meaning(name, events) for name in never},
        stopped=stopped,
        reproduction=None if stored is None else str(stored),
    )


def _meaning(name: str, events: Mapping[str, Event]) -> str:
    kind = name.removeprefix("fault/")
    return coverage.meanings(events).get(name, f"a {kind} took effect")


def how(record: ExploredRun) -> str:
    """Return in words how a run that was not valid ended."""
    if record.bug:
        return f"failed\n{record.bug.rstrip()}"
    return f"INVALID: {', '.join(record.grave)}" if record.grave else f"unknown: {record.trouble}"


def counts(tally: SearchTally, real_s: float) -> str:
    """Return one line that says how many runs ended in each way."""
    words = ", ".join(f"{count} {word}" for word, count in sorted(tally.ended.items()))
    runs = counted(tally.runs, "run")
    return f"{runs} in {real_s:.0f} s ({words or 'none'}), {tally.virtual_s:.0f} virtual seconds"


_STOPPED: Final = {"all runs": "after all runs", "interrupted": "by an interrupt"}


def closing(tally: SearchTally, ended: Campaign, store: Path, smallest: Simulated | None) -> Iterator[str]:
    """Yield the last lines of a campaign.

    They say what was found, what it was shrunk to, what happened, what never did, and what to type
    next.
    """
    first_invalid = tally.first("invalid")
    if first_invalid is not None:
        yield f"FOUND  {', '.join(first_invalid.grave)}: run {first_invalid.number} of seed {ended.seed}"
        if smallest is not None:
            yield f"Shrunk   {describe(ShrinkCase(smallest.spec, smallest.schedule))}"
            yield f"Now      {', '.join(reproduction.ordered(smallest.grave))}"
            for fault in smallest.schedule.faults:
                yield f"Fault    {msgspec.json.encode(fault).decode()}"
    elif tally.ended["failed"]:
        yield (
            "FAILED  a bug of jepsen-run, which says nothing about the brokers; please report it with "
            "the lines above"
        )
    elif tally.ended["valid"]:
        yield f"NOTHING FOUND  in {counted(tally.ended['valid'], 'run')}"
    else:
        yield "UNKNOWN  no run could be decided"
    yield f"Stopped  {_STOPPED.get(ended.stopped, f'by {ended.stopped}')}: {counts(tally, ended.real_s)}"
    bit = {
        name: count
        for name, count in tally.coverage.items()
        if name.startswith("fault/") and name.count("/") == 1
    }
    yield "Effect   " + (
        ", ".join(f"{name[6:]} {count}" for name, count in sorted(bit.items())) or "no fault"
    )
    for number, (name, meaning) in enumerate(ended.never.items()):
        yield f"{'Never   ' if not number else '        '} {meaning} ({name})"
    yield f"Kept     {store / FILE}"
    if ended.reproduction is not None:
        if smallest is not None:  # else there is no history
            yield f"Report   {store / stores.REPORT}"
            yield f"Judge    {program.command('check', str(store))}"
        yield f"Again    {reproduction.line(Path(ended.reproduction))}"
