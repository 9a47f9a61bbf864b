"""The command ``jepsen-run search``: it draws simulated runs until one breaks the guarantee.

Why in the simulation only: a run costs a second or two there, and a failing run can be repeated,
made smaller and examined. Each run has a phase under faults; then everything heals, and the run
itself demands that every pair serves, operations succeed and queues drain ("not-recovered",
"stuck", "unavailable" are findings). What a campaign of runs never saw is listed, because it was
never tested.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from harness.explore import workers
from harness.explore.plans import ExploreRequest, SearchPlan, run_seed
from harness.explore.runs import ExploredRun, judged, status
from harness.explore.search.campaign import FILE as CAMPAIGN
from harness.explore.search.campaign import SearchTally, campaign, closing, counts, how
from harness.explore.search.log import Log
from harness.explore.shrink import shrink as shrinking
from harness.explore.shrink.case import Budget, ShrinkCase, describe
from harness.explore.talk import Talk, counted
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import UsageError
from harness.report.progress import Meter
from harness.report.summary import size
from harness.run import reproduction
from harness.run.simulate import Simulated, simulate
from nemesis.registry import KINDS

_SHRINK_LEAST_S: Final = 1.0
"""The least time for shrinking (s): in less, nothing could be taken away."""


def run(request: ExploreRequest[SearchPlan]) -> int:
    """Search, print and store the result; return the exit status.

    1 if something was found, 0 if not, 2 if no run could be decided.
    """
    plan = request.plan
    store = plan.directory(request.root, plan.base.policy, request.store)
    talk = Talk(request.as_json)
    with plan.resumable(store), Log(store, plan) as log:
        plan.save(store)
        return _search(request, store, log, talk)


def _search(request: ExploreRequest[SearchPlan], store: Path, log: Log, talk: Talk) -> int:
    plan = request.plan
    tally, made, spent_s = SearchTally(), set[int](), 0.0
    for record in log.read():
        spent_s = max(spent_s, record.at_s)
        if not record.bug:  # else the run is made again: the bug may be fixed
            made.add(record.number)
            tally.add(record)
    talk("\n".join(_opening(request, store, len(made))))
    began = time.monotonic() - spent_s
    interrupted = False
    try:
        with (
            contextlib.closing(tried(request, made, began, over=_over(plan, tally))) as trying,
            talk.metered() as meter,
        ):
            _show(meter, plan, tally, began)
            for record in trying:
                log.add(msgspec.structs.replace(record, at_s=round(time.monotonic() - began, 3)))
                tally.add(record)
                if record.bug:
                    talk.always(f"  run {record.number}: {how(record)}")
                elif record.word != "valid":
                    talk.indented(f"run {record.number}: {how(record)}")
                else:
                    talk.detail(
                        f"run {record.number}: valid, {counted(len(record.schedule.faults), 'fault')}"
                    )
                _show(meter, plan, tally, began)
                talk.now_and_then(counts(tally, time.monotonic() - began))
    except KeyboardInterrupt:
        interrupted = True
        workers.stop_spark()
        talk.always("interrupted: what was tried is kept")
    real_s = time.monotonic() - began
    first_invalid = tally.first("invalid")
    smallest: Simulated | None = None
    stored: Path | None = None
    if first_invalid is not None:
        origin = f"search {run_seed(plan.seed, first_invalid.number)}"
        try:
            if not interrupted:
                smallest = _simulated_again(request, first_invalid)
                smallest = _shrunk(plan, smallest, talk, left_s=began + _limit_s(plan) - time.monotonic())
        except KeyboardInterrupt:
            interrupted = True
            talk.always("interrupted: what was found is kept as it is")
        if smallest is not None:
            stored = reproduction.keep(store, smallest, origin)
        else:
            bare = reproduction.of_found(
                first_invalid.spec, first_invalid.schedule, first_invalid.grave, origin
            )
            stored = stores.save(store, reproduction.FILE, bare)
    stopped = "interrupted" if interrupted else _stopped(plan, tally)
    ended = campaign(tally, plan, real_s=real_s, stopped=stopped, stored=stored)
    stores.save(store, CAMPAIGN, ended)
    talk.result(closing(tally, ended, store, smallest))
    if interrupted:
        talk.result([f"Go on    {plan.resume_line(store)}"])
    talk.document(ended)
    return judging.INTERRUPTED if interrupted else status(tally.ended)


def _show(meter: Meter, plan: SearchPlan, tally: SearchTally, began: float) -> None:
    """Show how much of the limit that ends the search first is used."""
    spent_s = time.monotonic() - began
    by_runs = (tally.runs, plan.runs) if plan.runs is not None else None
    by_time = (spent_s, plan.time_limit_s) if plan.time_limit_s is not None else None
    done, total = max(filter(None, (by_runs, by_time)), key=lambda part: part[0] / part[1], default=(0, None))
    meter.update(f"searching: {counted(tally.runs, 'run')}, {tally.ended['invalid']} invalid", done, total)


def tried(
    request: ExploreRequest[SearchPlan], made: Collection[int], began: float, *, over: bool = False
) -> Generator[ExploredRun, None, None]:
    """Yield the runs that are not ``made`` yet, as they end.

    The search ends at a limit, or when a run ends invalid (unless told to keep going) or by a bug.
    ``over`` says that a ``made`` run has ended it already.
    """
    plan = request.plan
    until = began + _limit_s(plan)
    numbers = plan.pending(made, lambda: not over and time.monotonic() < until)
    with workers.workers(partial(judged, plan), request.jobs, request.spark_master) as pool:
        yield from pool.runs(
            numbers, lambda record: bool(record.bug) or (record.valid is False and not plan.keep_going)
        )


def _limit_s(plan: SearchPlan) -> float:
    return math.inf if plan.time_limit_s is None else plan.time_limit_s


def _over(plan: SearchPlan, tally: SearchTally) -> bool:
    return bool(tally.ended["invalid"]) and not plan.keep_going


def _stopped(plan: SearchPlan, tally: SearchTally) -> str:
    """Return what ended a search that was not interrupted."""
    if tally.ended["failed"]:
        return "a bug of jepsen-run"
    if _over(plan, tally):
        return "a finding"
    return "all runs" if tally.runs == plan.runs else "the time limit"


def _simulated_again(request: ExploreRequest[SearchPlan], record: ExploredRun) -> Simulated:
    """Simulate the run that was found again, for all that its record does not have."""
    run = simulate(record.spec, record.schedule)
    if run.digest != record.digest and request.store is not None:
        raise UsageError(
            f"run {record.number} gives another history now: the program has changed since "
            f"{request.store} was begun; begin a new search"
        )
    assert run.digest == record.digest, f"run {record.number} gave another history when it was run again"
    return run


def _shrunk(plan: SearchPlan, run: Simulated, talk: Talk, *, left_s: float) -> Simulated:
    """Return the run made smaller, as far as the remaining time of the search allows."""
    if not plan.shrink_limit_s:
        return run
    anomaly = reproduction.ordered(run.grave)[0]
    if left_s < _SHRINK_LEAST_S:
        talk(
            f"{anomaly} is kept as it was found, because the time limit is reached: jepsen-run shrink makes "
            "it smaller"
        )
        return run
    talk(f"shrinking: {anomaly} with {describe(ShrinkCase(run.spec, run.schedule))}")
    limit_s = min(plan.shrink_limit_s, left_s)
    with talk.metered() as meter:
        result = shrinking.shrink(
            run,
            anomaly,
            budget=Budget(seconds=limit_s),
            tell=talk.indented,
            tried=lambda budget: meter.update(
                f"shrinking: {counted(budget.spent, 'run')} tried", time.monotonic() - budget.began, limit_s
            ),
        )
    why = "nothing more can be taken away" if result.complete else "the limit of runs or time was reached"
    talk(f"  {counted(result.runs, 'run')} in {result.seconds:.0f} s: {why}")
    return result.evidence


def _opening(request: ExploreRequest[SearchPlan], store: Path, made: int) -> Iterator[str]:
    plan = request.plan
    swarm, base = plan.swarm(), plan.base
    limits = [
        *([] if plan.runs is None else [counted(plan.runs, "run")]),
        *([] if plan.time_limit_s is None else [f"{plan.time_limit_s:g} s"]),
    ]
    yield (
        f"search: policy {base.policy}, {size(swarm.nodes)}, workload {base.workload}, "
        f"{base.time_limit_s:g} s of load a run, seed {plan.seed}; at most "
        f"{' or '.join(limits) or 'for ever'}, {request.spark_master or counted(request.jobs, 'process')}"
    )
    yield f"faults drawn from: {', '.join(plan.kinds)}"
    if plan.bounded and not base.nemeses:
        for name, kind in KINDS.items():
            why = kind.unpromised or kind.wants_quorum
            if why and name not in plan.kinds:
                yield f"  not {name}: {why}"
    yield plan.place(store, made)
