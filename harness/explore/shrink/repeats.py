"""The repeated runs of a schedule: each costs minutes and gives the finding only sometimes.

Why stored: every run that ended has a file, which is looked for before another run is made. What is
tried next follows from the answers alone, so a shrinking that was cut off comes to where it was
without running anything twice.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from harness.explore import replay
from harness.explore.plans import Plan
from harness.explore.shrink.case import Budget, ShrinkCase
from harness.history import store as stores
from harness.interface import InfrastructureError, Schedule, UsageError
from harness.run import reproduction
from harness.run.compose import compose

if TYPE_CHECKING:
    from checkers.starting import Starting

RUNS: Final = "runs"
"""The directory, within a shrinking's, of the runs, with a file for each that ended."""


class ShrinkPlan(Plan, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Everything that decides a shrinking on deployed brokers: ``shrink.json``.

    ``path`` is the reproduction that is made smaller: ``base`` with ``schedule``. A schedule counts
    if all of ``findings`` came in each of ``need`` of at most ``times`` runs.
    """

    noun: ClassVar[str] = "shrink"

    runs: int
    path: str
    schedule: Schedule
    findings: tuple[str, ...]
    need: int
    times: int
    time_limit_s: float

    @property
    def start(self) -> ShrinkCase:
        """The case as it was found."""
        return ShrinkCase(self.base, self.schedule)


class RepeatedRun(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A run that ended: its case, its outcome, and its directory relative to the shrinking's.

    ``ended`` is "came" (with all the findings that must come), "not" or "unknown".
    """

    number: int
    case: str
    ended: str
    found: tuple[str, ...] = ()
    trouble: str | None = None
    seconds: float = 0.0
    store: str = ""


def standing(ended: Sequence[str], need: int, times: int) -> str:
    """Return what the runs of a case say of it, as soon as it is decided; "" is not yet.

    "came" or "not". A run that was unknown counts neither for nor against. With more than ``times``
    such runs the case is "undecided".
    """
    successes, unknown = ended.count("came"), ended.count("unknown")
    if successes >= need:
        return "came"
    if times - ended.count("not") < need:
        return "not"
    return "undecided" if unknown > times else ""


@dataclass(slots=True)
class Repeats:
    """The runs of one shrinking; runs stored in ``store`` are used before any is made.

    ``make`` runs a case once, in a directory below the one that it gets. ``undecided`` is the
    number of cases of which nothing can be said, ``cut`` whether a limit ended the last case that
    was tried.
    """

    plan: ShrinkPlan
    store: Path
    make: Callable[[ShrinkCase, Path], replay.Attempt]
    tell: Callable[[str], None]
    answers: dict[str, str] = field(default_factory=dict)
    """The answers for the cases that were tried, by their digests."""
    cut: bool = False
    _runs_made: dict[str, list[RepeatedRun]] = field(default_factory=dict)
    _made: int = 0
    _used: list[RepeatedRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        for run in _read(self.store):
            self._runs_made.setdefault(run.case, []).append(run)
            self._made = max(self._made, run.number)

    @property
    def over(self) -> bool:
        """True if no further run may be begun; runs made before count, too."""
        return len(self._used) >= self.plan.runs or self.seconds >= self.plan.time_limit_s

    @property
    def seconds(self) -> float:
        """The time that all runs took together."""
        return sum(run.seconds for run in self._used)

    @property
    def used(self) -> int:
        """The number of runs used so far, made now or before."""
        return len(self._used)

    @property
    def undecided(self) -> int:
        """The number of cases of which nothing can be said."""
        return sum(stands == "undecided" for stands in self.answers.values())

    def find(self, case: ShrinkCase) -> RepeatedRun | None:
        """Return the last of the runs in which a case came; None if it did not come often enough.

        Raises InfrastructureError if the machine ends it, and KeyboardInterrupt if the person does.
        A case that cannot be composed is no smaller case; that is printed.
        """
        digest = digest_of(case)
        try:
            compose(case.spec, case.schedule)
        except UsageError as error:
            self.tell(f"  not possible: {error}")
            self.answers[digest] = "not"
            return None
        made = iter(self._runs_made.get(digest, ()))
        runs: list[RepeatedRun] = []
        need, times = self.plan.need, self.plan.times
        while not (stands := standing([run.ended for run in runs], need, times)):
            if self.over:
                self.cut = True
                return None
            runs.append(next(made, None) or self._once(case, digest))
            self._used.append(runs[-1])
            self.tell(self._line(runs))
        self.answers[digest] = stands
        return [run for run in runs if run.ended == "came"][-1] if stands == "came" else None

    def left_s(self, cases: int) -> float:
        """Return how long so many cases take at most if none fails, at the pace of earlier runs."""
        runs = cases * (self.plan.times - self.plan.need + 1)
        mean_s = self.seconds / self.used if self.used else 0.0
        return min(
            runs * mean_s,
            (self.plan.runs - self.used) * mean_s,
            max(0.0, self.plan.time_limit_s - self.seconds),
        )

    def _once(self, case: ShrinkCase, digest: str) -> RepeatedRun:
        began_s = time.monotonic()
        attempt = self.make(case, self.store / RUNS)
        names = reproduction.ordered(attempt.grave)
        has_come = set(self.plan.findings) <= attempt.grave
        self._made += 1
        run = RepeatedRun(
            number=self._made,
            case=digest,
            ended="came" if has_come else "unknown" if attempt.valid is None else "not",
            found=names,
            trouble=attempt.trouble,
            seconds=round(time.monotonic() - began_s, 1),
            store="" if attempt.store is None else str(attempt.store.relative_to(self.store)),
        )
        stores.save(self.store / RUNS, _file(run.number), run)
        return run

    def _line(self, runs: Sequence[RepeatedRun]) -> str:
        """Return the line about the last run, with its directory.

        "run 3: lost, duplicate: reproduced, 1 of 2 needed; 95 s; store/.../20261123T130000".
        """
        run = runs[-1]
        successes = [past.ended for past in runs].count("came")
        how = {
            "came": f"reproduced, {successes} of {self.plan.need} needed",
            "not": "not reproduced",
            "unknown": "counts neither for nor against",
        }[run.ended]
        why = (run.trouble or "").partition("\n")[0]
        outcome = ", ".join(run.found) or (f"unknown ({why})" if run.ended == "unknown" else "valid")
        return f"  run {run.number}: {outcome}: {how}; {run.seconds:.0f} s; {self.store / run.store}"


class Limits(Budget):
    """The budget of ``Attempts``, counted in runs instead of cases."""

    def __init__(self, repeats: Repeats) -> None:
        super().__init__()
        self._repeats = repeats

    @property
    def over(self) -> bool:
        """True if the limits of the runs are reached."""
        return self._repeats.over


def deployed(case: ShrinkCase, root: Path, spark: Starting) -> replay.Attempt:
    """Make one run on processes, containers or hosts, which prints nothing itself.

    Raises InfrastructureError for trouble with the place where it runs: that is no answer.
    """
    try:
        return replay.once(case.spec, case.schedule, root, io.StringIO(), spark)
    except UsageError as error:
        raise InfrastructureError(str(error)) from error


def digest_of(case: ShrinkCase) -> str:
    """Return the name of a case in files."""
    return hashlib.sha256(case.key).hexdigest()


def _file(number: int) -> str:
    return f"run-{number:05}.json"


def _read(store: Path) -> Iterator[RepeatedRun]:
    for file in sorted((store / RUNS).glob("run-*.json")):
        try:
            yield msgspec.json.decode(file.read_bytes(), type=RepeatedRun)
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(
                f"{file} is not the record of a run: {error}; remove it, and the run is made again"
            ) from None
