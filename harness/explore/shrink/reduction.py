"""``jepsen-run shrink``.

Make the schedule of a finding smaller where it was found, or in the simulation.

Why apart from shrinking itself: on real processes a run takes a minute and the same faults give the
finding only sometimes. So only faults are taken away there, and a smaller schedule counts when the
finding came in k of at most n runs; how many runs that may cost is said beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from harness.explore import replay
from harness.explore.shrink import delta, shrink
from harness.explore.shrink.case import RUNS, Attempts, Budget, ShrinkCase, describe
from harness.explore.talk import Talk
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import InfrastructureError, UsageError
from harness.run import reproduction
from harness.run.compose import compose
from harness.run.reproduction import Reproduction
from harness.run.simulate import simulate

RUNS_REAL: Final = 60
_TALK: Final = Talk()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkRequest:
    """What was asked for.

    On real processes ``need`` of at most ``times`` runs must give the finding.
    """

    path: Path
    environment: str | None = None
    need: int = 1
    times: int = 3
    runs: int | None = None
    time_limit_s: float = 3600.0
    root: Path = stores.DEFAULT


def enough(once: Callable[[], bool], need: int, times: int) -> bool:
    """Whether ``need`` of at most ``times`` tries succeed; ends as soon as that is decided."""
    had = 0
    for tried in range(times):
        if had + times - tried < need:
            return False
        had += once()
        if had >= need:
            return True
    return False


def run(request: ShrinkRequest) -> int:
    """Shrinks and keeps: 1 with something kept, 0 if the finding did not come at all.

    In the second case there was nothing to shrink.
    """
    kept = reproduction.load(request.path)
    if not kept.findings:
        raise UsageError(f"{request.path}: nothing was found there, so there is nothing to make smaller")
    if request.need > request.times:
        raise UsageError(f"--need {request.need} is more than --times {request.times}")
    environment = request.environment or kept.environment
    spec = msgspec.structs.replace(kept.spec, environment=environment)
    anomaly = kept.findings[0]
    start = ShrinkCase(spec, kept.schedule)
    _TALK(f"shrink: {anomaly} with {describe(start)}, environment {environment}")
    if environment == replay.SIMULATED:
        return _simulated(request, start, anomaly)
    return _real(request, kept, start, anomaly)


def _simulated(request: ShrinkRequest, start: ShrinkCase, anomaly: str) -> int:
    first = simulate(start.spec, start.schedule)
    if anomaly not in first.grave:
        return _gone(anomaly)
    budget = Budget(runs=request.runs or RUNS, seconds=request.time_limit_s)
    result = shrink.shrink(first, anomaly, budget=budget, tell=_TALK.indented)
    store = stores.create(request.root, f"{start.spec.name}-shrunk")
    path = reproduction.keep(store, result.evidence, f"shrink of {request.path}")
    return _kept(result.case, path, complete=result.complete, report=store)


def _real(request: ShrinkRequest, kept: Reproduction, start: ShrinkCase, anomaly: str) -> int:
    """Delta debugging over the faults; every run has a store of its own."""
    from checkers import api  # noqa: PLC0415 - imports Spark, which the simulation does without

    compose(start.spec, start.schedule)  # what is wrong with the input is said before a JVM starts
    spark = api.start_in_background(wanted=True)
    left = [request.runs or RUNS_REAL]
    latest: list[Path] = [request.path]
    shown: list[Path] = []
    deadline = time.monotonic() + request.time_limit_s

    def once(case: ShrinkCase) -> bool:
        if left[0] <= 0 or time.monotonic() >= deadline:
            return False
        left[0] -= 1
        attempt = replay.once(case.spec, case.schedule, request.root, _TALK, spark)
        if anomaly in attempt.grave and attempt.store is not None:
            latest[0] = attempt.store
        return anomaly in attempt.grave

    def find(case: ShrinkCase) -> bool | None:
        """Runs that were enough for a smaller case are shown as evidence of it."""
        if not enough(lambda: once(case), request.need, request.times):
            return None
        shown.append(latest[0])
        return True

    _TALK(f"at most {left[0]} runs; a schedule counts with {request.need} of {request.times}")
    if find(start) is None:
        return _gone(anomaly)
    attempts = Attempts(
        start,
        True,
        find,
        seeds=1,
        budget=Budget(seconds=max(0.0, deadline - time.monotonic())),
        tell=_TALK.indented,
    )
    delta.fewer_faults(attempts)
    result = attempts.ended()
    store = stores.create(request.root, f"{start.spec.name}-shrunk")
    smaller = msgspec.structs.replace(
        kept,
        versions=reproduction.versions(),
        environment=result.case.spec.environment,
        spec=result.case.spec,
        schedule=result.case.schedule,
        findings=(anomaly,),
        digest="",
        origin=f"shrink of {request.path}",
        witness=(),
    )
    try:
        path = stores.save(store, reproduction.FILE, smaller)
    except OSError as error:
        raise InfrastructureError(f"cannot write the result into {store}: {error}") from error
    return _kept(result.case, path, complete=result.complete and left[0] > 0, report=shown[-1])


def _gone(anomaly: str) -> int:
    _TALK(f"NOT REPRODUCED  {anomaly}: there is nothing to make smaller")
    return judging.VALID


def _kept(case: ShrinkCase, path: Path, *, complete: bool, report: Path) -> int:
    why = "nothing more can be taken away" if complete else "the budget ended it"
    _TALK(f"SHRUNK  {describe(case)}: {why}")
    for fault in case.schedule.faults:
        _TALK(f"Fault    {msgspec.json.encode(fault).decode()}")
    _TALK(f"Report   {report / stores.REPORT}")
    _TALK(f"Again    {reproduction.line(path)}")
    return judging.INVALID
