"""The runs of a search or of a sweep: drawn, simulated, and recorded."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Final

import msgspec

from harness.explore.plans import SearchPlan, SweepPlan, drawn
from harness.history import judge as judging
from harness.interface import InfrastructureError, Schedule, TestSpec
from harness.run import reproduction
from harness.run.simulate import Simulated, simulate

WORDS: Final[Mapping[bool | None, str]] = {True: "valid", False: "invalid", None: "unknown"}


class ExploredRun(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The outcome of a run, apart from its history.

    ``valid`` and ``grave`` (causes first) are None and empty if the run is judged later. ``bug`` is
    the traceback of an error of ours: there is no history then. ``coverage`` counts what happened
    in the run. ``at_s`` is when it ended, in seconds of the search.
    """

    number: int
    spec: TestSpec
    schedule: Schedule
    rows: int = 0
    valid: bool | None = None
    grave: tuple[str, ...] = ()
    trouble: str | None = None
    digest: str = ""
    virtual_s: float = 0.0
    coverage: Mapping[str, int] = {}
    bug: str = ""
    at_s: float = 0.0

    @property
    def word(self) -> str:
        """The outcome in a word: "valid", "invalid", "unknown" or "failed"."""
        return "failed" if self.bug else WORDS[self.valid]


def status(ended: Mapping[str, int], broken: int = 0) -> int:
    """Return the gravest exit status, from how many runs ended in each way.

    The order is: a finding, a bug of ours ("failed" in a search, "crashed" in a sweep), files that
    are ``broken``, no decided run.
    """
    if ended.get("invalid"):
        return judging.INVALID
    if ended.get("failed") or ended.get("crashed"):
        return judging.INTERNAL
    if broken:
        return judging.USAGE
    return judging.VALID if ended.get("valid") else judging.UNKNOWN


def made(plan: SearchPlan | SweepPlan, number: int, *, judge: bool) -> tuple[ExploredRun, Simulated | None]:
    """Draw and simulate one run; return its record, and all of it.

    An error of ours gives a record, too: it concerns that run alone, and is reported with its seed.
    Raises InfrastructureError if the machine has no room for the run.
    """
    spec, schedule = drawn(plan, number)
    try:
        run = simulate(spec, schedule, judge=judge)
    except OSError as error:
        raise InfrastructureError(f"run {number} could not be simulated: {error}") from error
    except Exception:  # noqa: BLE001 - reported with the run's number, which alone is unknown
        return ExploredRun(number=number, spec=spec, schedule=schedule, bug=traceback.format_exc()), None
    record = ExploredRun(
        number=number,
        spec=run.spec,
        schedule=run.schedule,
        rows=len(run.recorded),
        valid=run.valid,
        grave=reproduction.ordered(run.grave),
        trouble=run.trouble,
        digest=run.digest,
        virtual_s=run.virtual_s,
        coverage=run.coverage,
    )
    return record, run


def judged(plan: SearchPlan | SweepPlan, number: int) -> ExploredRun:
    """Draw and simulate one run, and judge it."""
    return made(plan, number, judge=True)[0]
