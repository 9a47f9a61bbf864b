"""The command ``jepsen-run sweep``: many simulated runs, and a table of which fault broke what.

The runs are tasks of Spark, their histories one data set, which is judged at once.

Why besides the search: a search stops at the first run that breaks a promise; a sweep asks how
often each nemesis breaks each policy, and how sure that is. Its runs are simulated wherever Spark
has a core. Their histories stay, so that they can be judged again, and a sweep that was cut off
continues with the missing runs. The worst runs are simulated once more and stored as reproductions.
Deployed brokers are swept in the same way with fewer runs, each a test of its own (``deployed``).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness.explore import workers
from harness.explore.plans import Cell, ExploreRequest, SweepPlan, run_seed
from harness.explore.runs import ExploredRun, status
from harness.explore.sweep import deployed, histories, page, table
from harness.explore.sweep.table import Row, SweptRun
from harness.explore.talk import Talk, counted
from harness.history import judge as judging
from harness.history import known, plain_judge
from harness.history import store as stores
from harness.interface import Schedule, TestSpec
from harness.report import files
from harness.run import reproduction
from harness.run.simulate import simulate

if TYPE_CHECKING:
    from checkers.runs import RunVerdict

WORST: Final = 10
"""The maximum number of runs that are stored as reproductions."""
UNKNOWN_TOLD: Final = 20


class WorstRun(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A run that is worth looking at: its reproduction, and the line that runs it again.

    Both are empty if the same history did not come again.
    """

    number: int
    cell: Cell
    findings: tuple[str, ...]
    faults: int
    reproduction: str
    again: str


class Sweep(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The result of a sweep: ``table.json``.

    ``ended`` counts runs by how they ended; ``known`` are the invalid runs in which all findings
    are accepted.
    """

    exit_status: int
    store: str
    plan: SweepPlan
    ended: dict[str, int]
    table: tuple[Row, ...]
    worst: tuple[WorstRun, ...]
    runs: tuple[SweptRun, ...]
    known: tuple[int, ...] = ()


def run(request: ExploreRequest[SweepPlan]) -> int:
    """Simulate the missing runs, judge all of them, print and store the result.

    Returns the exit status: 1 if something was found, 255 for a bug of ours, 2 if nothing could be
    decided.
    """
    plan = request.plan
    talk = Talk(request.as_json)
    if plan.base.environment != "simulation":
        return _deployed(request, talk)
    made = _numbers_made(request.store, plan) if request.store is not None else frozenset()
    store = plan.begin(request.root, plan.base.name, request.store)
    directory = store / histories.DIRECTORY
    talk("\n".join(_opening(plan, store, len(made))))
    try:
        with plan.resumable(store):
            directory.mkdir(exist_ok=True)
            _simulate(request, directory, made, talk)
            sweep = _judge(request, store, talk)
    except KeyboardInterrupt:
        stored = sum(1 for _ in directory.glob("run-*.parquet"))
        talk.always(
            f"interrupted: {stored} of {plan.runs} runs are kept; continue with: {plan.resume_line(store)}"
        )
        workers.stop_spark()
        return judging.INTERRUPTED
    talk.always(table.text(sweep.table))
    talk.result(_closing(sweep, request))
    talk.document(sweep)
    return sweep.exit_status


def _deployed(request: ExploreRequest[SweepPlan], talk: Talk) -> int:
    """Sweep with tests of deployed brokers, which are made and judged one after another."""
    from checkers import api  # noqa: PLC0415 - imports Spark

    plan = request.plan
    made = (
        {deployed_run.run.number: deployed_run for deployed_run in deployed.stored_runs(request.store)}
        if request.store
        else {}
    )
    store = plan.begin(request.root, plan.base.name, request.store)
    talk("\n".join(_opening(plan, store, len(made))))
    try:
        with plan.resumable(store, request.homes.values()):
            (store / deployed.DIRECTORY).mkdir(exist_ok=True)
            for warning in deployed.warnings(plan, request.homes):
                talk.always(f"warning: {warning}")
            spark = api.start_in_background(request.spark_master, wanted=True)
            with talk.metered() as meter:
                for number in plan.pending(frozenset(made)):
                    meter.update(f"run {len(made) + 1} of {plan.runs}", len(made), plan.runs)
                    deployed_run = made[number] = deployed.make(plan, number, store, spark, request.homes)
                    outcome = ", ".join(deployed_run.run.grave) or _first_line(deployed_run.run)
                    where = f"  {store / deployed_run.store}" if deployed_run.store else ""
                    cell = str(deployed_run.run.cell)
                    talk.indented(f"run {number}: {cell}: {deployed_run.run.ended} {outcome}{where}")
    except KeyboardInterrupt:
        line = plan.resume_line(store, request.homes.values())
        talk.always(f"interrupted: {len(made)} of {plan.runs} runs are kept; continue with: {line}")
        return judging.INTERRUPTED
    runs = [made[number].run for number in sorted(made)]
    worst = tuple(
        WorstRun(
            number=swept.number,
            cell=swept.cell,
            findings=swept.grave,
            faults=swept.faults,
            reproduction=made[swept.number].store,
            again=stores.load_run(store / made[swept.number].store).again,
        )
        for swept in _worst(request, runs)
    )
    stored_runs = {number: store / run.store for number, run in made.items() if run.store}
    sweep = _result(store, request, runs, worst, stored_runs)
    talk.always(table.text(sweep.table))
    talk.result(_closing(sweep, request))
    talk.document(sweep)
    return sweep.exit_status


def _result(
    store: Path,
    request: ExploreRequest[SweepPlan],
    runs: Sequence[SweptRun],
    worst: tuple[WorstRun, ...],
    stored_runs: Mapping[int, Path],
    broken: int = 0,
) -> Sweep:
    """Return the result of a sweep, and store it; ``stored_runs`` are directories by number."""
    plan = request.plan
    accepted = [
        swept for swept in runs if swept.ended == "invalid" and known.accepted(_reviewed(request, swept))
    ]
    sound = tuple(swept.number for swept in accepted if not swept.doubts)

    def accepted_kinds(cell: Cell) -> list[str]:
        spec = _spec(plan, cell)
        kinds = [entry.kind for entry in request.known or () if entry.covers(spec, cell.release)]
        reviewed = known.reviewed_kinds(kinds, spec, request.known or (), release=cell.release)
        return [finding.kind for finding in reviewed if finding.state == "known"]

    ended = table.ended(runs)
    counted_as = {
        **ended,
        "invalid": ended["invalid"] - len(accepted),
        "valid": ended["valid"] + len(sound),
        "unknown": ended["unknown"] + len(accepted) - len(sound),
    }
    sweep = Sweep(
        exit_status=status(counted_as, broken=broken),
        store=str(store),
        plan=plan,
        ended=ended,
        table=table.rows(runs, plan.cells, accepted_kinds),
        worst=worst,
        runs=tuple(runs),
        known=sound,
    )
    stores.save(store, stores.SWEEP_TABLE, sweep)
    files.attempt("page of the sweep", partial(page.write, store, sweep, stored_runs))
    root = stores.root_of(store)
    if root is not None:
        files.write_overview(root)
    return sweep


def _spec(plan: SweepPlan, cell: Cell) -> TestSpec:
    """Return the spec of a cell: what is known of the cell is known of each of its runs."""
    return plan.swarm(plan.cells.index(cell)).base


def _reviewed(request: ExploreRequest[SweepPlan], swept: SweptRun) -> Sequence[known.Reviewed]:
    """Compare the grave findings of a run with those that are accepted."""
    cell = swept.cell
    return known.reviewed_kinds(
        swept.grave, _spec(request.plan, cell), request.known or (), release=cell.release
    )


def _worst(request: ExploreRequest[SweepPlan], runs: Sequence[SweptRun]) -> list[SweptRun]:
    """Return the worst runs, first those of which some finding is not known."""
    new = [swept for swept in runs if not known.accepted(_reviewed(request, swept))]
    rest = [swept for swept in runs if swept not in new]
    return [*table.worst(new, WORST), *table.worst(rest, WORST)][:WORST]


def _numbers_made(store: Path, plan: SweepPlan) -> frozenset[int]:
    """Return the numbers of the runs of a sweep that need not be made.

    A run that crashed is tried again, as its bug may be fixed.
    """
    directory = store / histories.DIRECTORY
    histories.clear(directory)
    return frozenset(record.number for _, record in histories.read(directory, plan.runs) if not record.bug)


def _simulate(request: ExploreRequest[SweepPlan], directory: Path, made: frozenset[int], talk: Talk) -> None:
    plan = request.plan
    if len(made) == plan.runs:
        return
    ended, began = len(made), time.monotonic()
    work = partial(histories.recorded, plan, directory.resolve())
    with talk.metered() as meter, workers.workers(work, request.jobs, request.spark_master) as pool:
        meter.update(f"simulating: {ended} of {plan.runs} runs", ended, plan.runs)
        for record in pool.runs(plan.pending(made), last=lambda _: False):
            ended += 1
            faults = counted(len(record.schedule.faults), "fault")
            talk.detail(f"run {record.number}: {faults} simulated, to be judged with the others")
            meter.update(f"simulating: {ended} of {plan.runs} runs", ended, plan.runs)
            talk.now_and_then(f"{ended} of {plan.runs} runs in {time.monotonic() - began:.0f} s")


def _judge(request: ExploreRequest[SweepPlan], store: Path, talk: Talk) -> Sweep:
    """Judge all runs at once."""
    from checkers.runs import RunsSource, judge_runs  # noqa: PLC0415 - as above

    plan = request.plan
    recorded = list(histories.read(store / histories.DIRECTORY, plan.runs))
    files = histories.files(recorded)
    judged: dict[int, RunVerdict] = {}
    damaged: dict[int, str] = {}
    if files:
        talk(f"judging {counted(len(files), 'history')}, {sum(file.rows for file in files)} rows")
        options = plain_judge.options_of(plan.base, Schedule())
        expecting = {record.number for _, record in recorded if record.schedule.faults}
        troubles = {record.number: record.trouble for _, record in recorded}

        def work() -> tuple[dict[int, RunVerdict], dict[int, str]]:
            with workers.clusters_fault():
                source = RunsSource(workers.start_spark(request.spark_master), files)
                return judge_runs(source, options, expecting, troubles), source.damaged

        with talk.metered() as meter:
            meter.expect("judging", judging.usual_s(sum(file.rows for file in files), on_spark=True))
            judged, damaged = workers.in_thread(work).result()
    records = {record.number: record for _, record in recorded}
    runs = [
        table.run_of(plan, record, judged.get(number), damaged.get(number))
        for number, record in sorted(records.items())
    ]
    worst = tuple(_keep(store, plan, swept, records[swept.number], talk) for swept in _worst(request, runs))
    stored_runs = {run.number: Path(run.reproduction).parent for run in worst if run.reproduction}
    return _result(store, request, runs, worst, stored_runs, broken=len(damaged))


def _keep(store: Path, plan: SweepPlan, swept: SweptRun, record: ExploredRun, talk: Talk) -> WorstRun:
    """Simulate a run again, here, and store it as if it had been run by itself."""
    reproduction_path = command = ""
    try:
        run = simulate(record.spec, record.schedule)
        if run.digest == record.digest:
            directory = store / "worst" / histories.name(swept.number).removesuffix(".parquet")
            directory.mkdir(parents=True, exist_ok=True)
            path = reproduction.keep(directory, run, f"sweep {run_seed(plan.seed, swept.number)}")
            reproduction_path, command = str(path), reproduction.line(path)
        else:
            talk.always(
                f"run {swept.number} gave another history when it was run again: a bug of jepsen-run; "
                "please report it",
            )
    except Exception:  # noqa: BLE001 - the finding stands, stored or not
        talk.always(f"run {swept.number} could not be kept:\n{traceback.format_exc().rstrip()}")
    return WorstRun(
        number=swept.number,
        cell=swept.cell,
        findings=swept.grave,
        faults=swept.faults,
        reproduction=reproduction_path,
        again=command,
    )


def _opening(plan: SweepPlan, store: Path, made: int) -> Iterator[str]:
    base = plan.base
    policies = list(dict.fromkeys(cell.policy for cell in plan.cells))
    nemeses = list(dict.fromkeys(cell.nemesis for cell in plan.cells))
    yield (
        f"sweep: {counted(plan.runs, 'run')} of {counted(len(plan.cells), 'cell')}, "
        f"{counted(base.pairs, 'pair')}, "
        f"workload {base.workload}, {base.time_limit_s:g} s of load a run, seed {plan.seed}"
    )
    compared = f"; releases of {base.system}: {', '.join(plan.releases)}" if any(plan.releases) else ""
    yield f"policies: {', '.join(policies)}; nemeses: {', '.join(nemeses)}{compared}"
    if plan.runs < len(plan.cells):
        yield f"{len(plan.cells) - plan.runs} cells get no run: give --runs {len(plan.cells)} or more"
    yield plan.place(store, made)


def _closing(sweep: Sweep, request: ExploreRequest[SweepPlan]) -> Iterator[str]:
    ended = ", ".join(f"{count} {word}" for word, count in sweep.ended.items() if count) or "no run"
    yield ended + (f"; of the invalid ones {len(sweep.known)} as known" if request.known is not None else "")
    if request.known:
        accepted_lines = (f"{swept.kind}: {swept}" for run in sweep.runs for swept in _reviewed(request, run))
        yield from (f"  {line}" for line in dict.fromkeys(accepted_lines))
        yield from known.entry_lines(
            request.known,
            [
                known.JudgedRun(_spec(sweep.plan, run.cell), run.findings, run.cell.release)
                for run in sweep.runs
            ],
        )
    for swept in sweep.runs:
        if swept.ended == "crashed":
            yield (
                f"CRASHED  run {swept.number} (a bug of jepsen-run): "
                f"{(swept.trouble or '').strip().splitlines()[-1]}"
            )
    unknown = [swept for swept in sweep.runs if swept.ended == "unknown"]
    for swept in unknown[:UNKNOWN_TOLD]:
        yield f"Unknown  run {swept.number}: {_first_line(swept)}"
    if len(unknown) > UNKNOWN_TOLD:
        yield f"Unknown  {len(unknown) - UNKNOWN_TOLD} more, see {stores.SWEEP_TABLE}"
    for worst_run in sweep.worst:
        faults = counted(worst_run.faults, "fault")
        yield (
            f"Worst    run {worst_run.number}: {worst_run.cell}, {faults}: {', '.join(worst_run.findings)}"
        )
        if worst_run.again:
            yield f"         {worst_run.again}"
    yield f"Table    {Path(sweep.store) / stores.SWEEP_PAGE}"
    yield f"Kept     {Path(sweep.store) / stores.SWEEP_TABLE}"
    more = sweep.plan.resume_line(Path(sweep.store), request.homes.values())
    yield f"More     {more} --runs {2 * sweep.plan.runs}"


def _first_line(run: SweptRun) -> str:
    """Return the first line of what kept a run from a verdict; "" if nothing did.

    The whole text is in the table.
    """
    return (run.trouble or "").partition("\n")[0]
