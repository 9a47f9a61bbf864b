"""The command ``jepsen-run shrink``: it makes a finding smaller.

The finding is made smaller where it was found, or in the simulation.

Why apart from shrinking itself: on real processes a run takes a minute and the same faults give the
finding only sometimes. So only the most useful steps are tried there: fewer faults, then shorter
ones, then less load. A smaller schedule counts if the same findings came in k of at most n runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from checkers.anomaly import ANOMALIES
from harness.explore import replay
from harness.explore.shrink import delta, halves, shrink
from harness.explore.shrink.case import RUNS, Attempts, Budget, ShrinkCase, T, describe
from harness.explore.shrink.repeats import Limits, RepeatedRun, Repeats, ShrinkPlan, deployed, digest_of
from harness.explore.talk import Talk, counted
from harness.history import judge as judging
from harness.history import store as stores
from harness.interface import Fault, InfrastructureError, UsageError
from harness.interface.errors import choose
from harness.run import reproduction
from harness.run.compose import compose
from harness.run.reproduction import Reproduction
from harness.run.simulate import simulate

RUNS_REAL: Final = 60
SECONDS: Final = 3600.0
NEED: Final = 1
TIMES: Final = 3
_TALK: Final = Talk()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkRequest:
    """The request of ``jepsen-run shrink``; None is "not given".

    All of ``findings`` must come again. On real processes ``need`` of at most ``times`` runs must
    give them.
    """

    path: Path
    findings: tuple[str, ...] = ()
    environment: str | None = None
    need: int | None = None
    times: int | None = None
    runs: int | None = None
    time_limit_s: float | None = None
    root: Path = stores.DEFAULT


def run(request: ShrinkRequest) -> int:
    """Make a finding smaller and store the result; return the exit status.

    1 if a case was stored; 0 if the findings did not come at all, so that there was nothing to
    shrink; 2 if that could not be decided.
    """
    recorded = reproduction.load(request.path)
    findings = _findings_to_keep(request, recorded)
    environment = request.environment or recorded.environment
    spec = msgspec.structs.replace(recorded.spec, environment=environment)
    start = ShrinkCase(spec, recorded.schedule)
    need, times = request.need or NEED, request.times or TIMES
    if need > times:
        raise UsageError(f"--need {need} is more than --times {times}")
    if environment == replay.SIMULATED:
        if len(request.findings) > 1:
            raise UsageError("--finding: the simulation makes one finding smaller at a time; give one name")
        return _simulated(request, start, findings[0])
    compose(start.spec, start.schedule)  # raises UsageError before anything is written
    plan = ShrinkPlan(
        seed=spec.seed,
        base=spec,
        path=str(request.path),
        schedule=recorded.schedule,
        findings=findings,
        need=need,
        times=times,
        runs=request.runs or RUNS_REAL,
        time_limit_s=request.time_limit_s or SECONDS,
    )
    return _real(plan, plan.begin(request.root, spec.name, None))


def resume(store: Path, *, runs: int | None = None, time_limit_s: float | None = None) -> int:
    """Continue a shrinking on real processes that was cut off or reached its limit."""
    plan = ShrinkPlan.load(store, runs=runs, time_limit_s=time_limit_s)
    return _real(plan, plan.begin(store, "", store))


def _findings_to_keep(request: ShrinkRequest, recorded: Reproduction) -> tuple[str, ...]:
    """Return the findings that must come. Raises UsageError."""
    for name in request.findings:
        choose("finding", name, [anomaly.name for anomaly in ANOMALIES])
        if recorded.findings and name not in recorded.findings:
            raise UsageError(f"--finding {name}: {request.path} has only {', '.join(recorded.findings)}")
    names = request.findings or recorded.findings
    if not names:
        raise UsageError(
            f"{request.path} has no finding to make smaller; give --finding with one that its faults may "
            f"cause"
        )
    return reproduction.ordered(names)


def _simulated(request: ShrinkRequest, start: ShrinkCase, anomaly: str) -> int:
    _TALK(f"shrink: {anomaly} with {describe(start)}, environment {replay.SIMULATED}")
    first = simulate(start.spec, start.schedule)
    if anomaly not in first.grave:
        return _not_reproduced(anomaly)
    budget = Budget(runs=request.runs or RUNS, seconds=request.time_limit_s or SECONDS)
    with _TALK.metered() as meter:
        result = shrink.shrink(
            first,
            anomaly,
            budget=budget,
            tell=_TALK.indented,
            tried=lambda spent: meter.update(
                f"shrinking: run {spent.spent} of at most {budget.runs}", spent.spent, budget.runs
            ),
        )
    store = stores.create(request.root, f"{start.spec.name}-shrunk")
    path = reproduction.keep(store, result.evidence, f"shrink of {request.path}")
    why = "nothing more can be taken away" if result.complete else "the limit of runs or time was reached"
    return _report(start, result.case, path, why, report=store)


def _real(plan: ShrinkPlan, store: Path) -> int:
    """Shrink on real processes.

    Each run has a directory of its own in ``store``, and is made only if it is missing there.
    """
    from checkers import api  # noqa: PLC0415 - imports Spark, which the simulation does without

    _TALK(
        f"shrink: {', '.join(plan.findings)} with {describe(plan.start)}, environment {plan.base.environment}"
    )
    _TALK(
        f"a schedule must reproduce the findings in {plan.need} of {counted(plan.times, 'run')}; at most "
        f"{counted(plan.runs, 'run')} and {plan.time_limit_s / 60:.0f} minutes in total"
    )
    _TALK(plan.place(store, 0))
    with plan.resumable(store):
        (store / "runs").mkdir(exist_ok=True)
        spark = api.start_in_background(wanted=True)
        with _TALK.metered() as meter:

            def make(case: ShrinkCase, place: Path) -> replay.Attempt:
                meter.update(
                    f"shrinking: run {repeats.used + 1} of at most {plan.runs}", repeats.used, plan.runs
                )
                return deployed(case, place, spark=spark)

            repeats = Repeats(plan, store, make, _TALK.indented)
            return _reduced(plan, store, repeats)


def _reduced(plan: ShrinkPlan, store: Path, repeats: Repeats) -> int:
    best = plan.start
    try:
        _TALK.indented("the schedule as it was found")
        evidence = repeats.find(plan.start)
        if evidence is None:
            return _not_seen(plan, store, repeats)
        path = _keep(plan, store, plan.start, evidence)

        def find(case: ShrinkCase) -> RepeatedRun | None:
            nonlocal best
            most_left_s = repeats.left_s(_untried(plan, attempts, repeats))
            _TALK.indented(
                f"{step(case, attempts.best)} (at most {max(1, round(most_left_s / 60))} min left if "
                "no smaller schedule is found)"
            )
            run = repeats.find(case)
            if run is not None:
                best = case
                _keep(plan, store, case, run)
                _TALK.indented(f"  smaller: {describe(case)}")
            return run

        attempts = Attempts(plan.start, evidence, find, seeds=1, budget=Limits(repeats))
        _reduce(attempts, plan.start)
    except KeyboardInterrupt:
        _TALK.always(
            f"interrupted after {counted(repeats.used, 'run')}; so far: {describe(best)}; continue with: "
            f"{plan.resume_line(store)}"
        )
        return judging.INTERRUPTED
    result = attempts.ended()
    why = "nothing more can be taken away"
    if repeats.cut or not result.complete:
        why = (
            "the limit of runs or time was reached; continue with: "
            f"{plan.resume_line(store)} --runs {2 * plan.runs}"
        )
    elif repeats.undecided:
        why += f", but {counted(repeats.undecided, 'schedule')} could not be decided"
    return _report(plan.start, result.case, path, why, report=store / result.evidence.store)


def _reduce(attempts: Attempts[T], start: ShrinkCase) -> None:
    delta.fewer_faults(attempts)
    halves.shorter(attempts, start)


def _untried(plan: ShrinkPlan, attempts: Attempts[RepeatedRun], repeats: Repeats) -> int:
    """Return how many cases are still to be tried if none of them fails."""
    cases: set[str] = set()

    def find(case: ShrinkCase) -> None:
        cases.add(digest_of(case))

    _reduce(Attempts(attempts.best, attempts.evidence, find, seeds=1), plan.start)
    return len(cases - repeats.answers.keys())


def step(case: ShrinkCase, best: ShrinkCase) -> str:
    """Return in words how a case differs from the best one so far."""
    old, new = best.schedule.faults, case.schedule.faults
    if not new and old:
        return "without any fault"
    if len(new) < len(old):
        return f"without {', '.join(_named(fault) for fault in _without(old, new))}"
    for before, after in zip(old, new, strict=True):
        if before != after:
            return f"{_named(after)} shortened from {before.duration_s:g} s to {after.duration_s:g} s"
    return f"load shortened from {best.spec.time_limit_s:g} s to {case.spec.time_limit_s:g} s"


def _without(old: Sequence[Fault], new: Sequence[Fault]) -> list[Fault]:
    remaining = list(new)
    removed = []
    for fault in old:
        if remaining and remaining[0] == fault:
            remaining.pop(0)
        else:
            removed.append(fault)
    return removed


def _named(fault: Fault) -> str:
    noun = " ".join(filter(None, (fault.shape or fault.target, fault.kind)))
    return f"{noun} at {fault.start_s:g} s{f' after {fault.after}' if fault.after else ''}"


def _not_seen(plan: ShrinkPlan, store: Path, repeats: Repeats) -> int:
    """Report that the findings did not come as they were found, or that this is not known."""
    if repeats.cut or repeats.undecided:
        why = "the limit of runs or time was reached" if repeats.cut else "too many runs were unknown"
        _TALK.result(
            [
                (
                    f"UNKNOWN  whether {', '.join(plan.findings)} can be reproduced: {why}; "
                    f"continue with: {plan.resume_line(store)}"
                )
            ]
        )
        return judging.UNKNOWN
    return _not_reproduced(", ".join(plan.findings))


def _keep(plan: ShrinkPlan, store: Path, case: ShrinkCase, evidence: RepeatedRun) -> Path:
    """Store the smallest case so far as a reproduction, with the witness of a run that gave it."""
    recorded = store / evidence.store / reproduction.FILE
    smaller = Reproduction(
        versions=reproduction.versions(),
        environment=case.spec.environment,
        seed=case.spec.seed,
        findings=plan.findings,
        spec=case.spec,
        schedule=case.schedule,
        origin=f"shrink of {plan.path}: {plan.need} of {counted(plan.times, 'run')}",
        witness=reproduction.load(recorded).witness if recorded.is_file() else (),
    )
    try:
        return stores.save(store, reproduction.FILE, smaller)
    except OSError as error:
        raise InfrastructureError(f"cannot write the result into {store}: {error}") from error


def _not_reproduced(findings: str) -> int:
    _TALK.result([f"NOT REPRODUCED  {findings}: there is nothing to make smaller"])
    return judging.VALID


def _report(start: ShrinkCase, case: ShrinkCase, path: Path, why: str, *, report: Path) -> int:
    _TALK.result(
        [
            f"{'NOT SMALLER' if case == start else 'SHRUNK'}  {describe(case)}: {why}",
            *(f"Fault    {msgspec.json.encode(fault).decode()}" for fault in case.schedule.faults),
            f"Report   {report / stores.REPORT}",
            f"Again    {reproduction.line(path)}",
        ]
    )
    return judging.INVALID
