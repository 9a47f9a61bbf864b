"""``jepsen-run sweep``.

Many simulated runs as tasks of Spark, one data set, one judging, and a table of what broke by what.

Why beside the search: a search stops at the first run that breaks a promise; a sweep asks how often
each nemesis breaks each policy, and how sure that is. Its runs are simulated wherever Spark has a
core. Their histories stay, so that they can be judged again, and a sweep that was cut off goes on
with the runs that are missing. What it found worst is simulated once more and kept as a
reproduction.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import msgspec

from checkers.cause import in_a_line
from harness.explore import sweep_runs, sweep_table
from harness.explore.sweep_runs import HISTORIES, PLAN, Plan, Record
from harness.explore.sweep_table import Row, Run
from harness.history import judge as judging
from harness.history import plain_judge
from harness.history import store as stores
from harness.interface import InfrastructureError, Schedule, UsageError
from harness.run import reproduction
from harness.run.simulate import simulate

if TYPE_CHECKING:
    from checkers.runs import Judged

Result = TypeVar("Result")

TABLE: Final = "table.json"
WORST: Final = 10
"""Runs that are kept as reproductions, at the most."""
UNKNOWN_TOLD: Final = 20
TOLD_EVERY_S: Final = 10.0
RUNS_A_TASK: Final = 8
"""At the most: few, so that the cores end together.

Several, because a task costs a little itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What ``jepsen-run sweep`` was asked for.

    ``store`` is that of a sweep to go on with; None begins one below ``root``.
    """

    plan: Plan
    store: Path | None = None
    root: Path = stores.DEFAULT
    spark_master: str | None = None
    as_json: bool = False


class Kept(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A run that is worth looking at: where it was kept, and the line that runs it again.

    Both empty if it did not come again.
    """

    number: int
    policy: str
    nemesis: str
    findings: tuple[str, ...]
    faults: int
    reproduction: str
    again: str


class Sweep(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a sweep found: ``table.json``. ``ended`` counts runs by how they ended."""

    exit_status: int
    store: str
    plan: Plan
    ended: dict[str, int]
    table: tuple[Row, ...]
    worst: tuple[Kept, ...]
    runs: tuple[Run, ...]


def resumed(store: Path, runs: int | None = None) -> Plan:
    """The plan of the sweep in ``store``, to go on with; ``runs`` may ask for more of them.

    Raises UsageError if there is none, or if this version would not give the same runs.
    """
    plan = sweep_runs.load_plan(store)
    own = reproduction.versions()
    if plan.versions != own:
        raise UsageError(
            f"{store} was begun with {_words(plan.versions)}, and this is {_words(own)}: its runs "
            "cannot be mixed; begin a new sweep"
        )
    if runs is None:
        return plan
    if runs < plan.runs:
        raise UsageError(f"--runs is {runs}, but {store} was begun with {plan.runs}: give as many or more")
    return msgspec.structs.replace(plan, runs=runs)


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def run(request: Request) -> int:
    """Simulate what is missing, judge all of it, tell and keep.

    The exit status: 1 if something was found, 255 for a bug of ours, 2 if nothing could be decided.
    """
    talk = sys.stderr if request.as_json else sys.stdout
    plan = request.plan
    found = _found(request.store, plan) if request.store is not None else {}
    store = request.store or stores.create(request.root, f"sweep-{plan.base.name}")
    try:
        (store / HISTORIES).mkdir(exist_ok=True)
        stores.save(store, PLAN, plan)
    except OSError as error:
        raise InfrastructureError(f"cannot write into {store}: {error}") from error
    resume = f"jepsen-run sweep --resume {shlex.quote(str(store))}"
    try:
        _simulate(request, store, found, talk)
        sweep, runs = _judge(request, store, talk)
    except KeyboardInterrupt:
        kept = sum(1 for _ in (store / HISTORIES).glob("run-*.parquet"))
        _tell(talk, f"interrupted: {kept} of {plan.runs} runs are kept; go on with: {resume}")
        with contextlib.suppress(Exception):
            _stop_spark()
        return judging.INTERRUPTED
    except InfrastructureError as error:
        raise InfrastructureError(f"{error}; go on with: {resume}") from error
    _tell(talk, "\n".join(_closing(sweep, runs)))
    if request.as_json:
        print(msgspec.json.format(msgspec.json.encode(sweep), indent=1).decode())
    return sweep.exit_status


def _found(store: Path, plan: Plan) -> dict[int, Record]:
    """What is there of a sweep and need not be run.

    A run that crashed is tried again, as its bug may be mended.
    """
    sweep_runs.clear(store / HISTORIES)
    return {
        record.number: record
        for _, record in sweep_runs.read(store / HISTORIES)
        if not record.bug and record.number < plan.runs
    }


def _simulate(request: Request, store: Path, found: Mapping[int, Record], talk: TextIO) -> None:
    plan = request.plan
    missing = [number for number in range(plan.runs) if number not in found]
    _tell(talk, "\n".join(_opening(plan, store, len(found))))
    if not missing:
        return

    def work() -> None:
        spark = _spark(request.spark_master)
        cores = spark.sparkContext.defaultParallelism
        slices = max(4 * cores, -(-len(missing) // RUNS_A_TASK))
        with clusters_fault():
            sweep_runs.simulate_all(spark, plan, missing, store / HISTORIES, slices)

    with _progress(talk, store / HISTORIES, plan.runs):
        _beside(work)


def _beside(work: Callable[[], Result]) -> Result:
    """Do what waits for Spark in a thread.

    Its client takes an interrupt for a broken connection and writes pages about it.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - of the work, raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, name="sweep-spark", daemon=True).start()
    return future.result()


@contextlib.contextmanager
def _progress(talk: TextIO, histories: Path, runs: int) -> Iterator[None]:
    """Tell now and then how many runs are there."""
    over = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        while not over.wait(TOLD_EVERY_S):
            count = sum(1 for _ in histories.glob("run-*.parquet"))
            _tell(talk, f"  {count} of {runs} runs in {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=watch, name="sweep-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def clusters_fault() -> Iterator[None]:
    """A job that ended because a process or a machine went away is trouble.

    An error within a task is a bug of ours and passes.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's, which the command line does without
    from pyspark.errors import PySparkException, PythonException  # noqa: PLC0415 - as above

    try:
        yield
    except PythonException:
        raise
    except (Py4JError, PySparkException, ConnectionError) as error:
        raise InfrastructureError(f"Spark could not end its job: {in_a_line(error)}") from error


def _spark(master: str | None) -> Any:
    from checkers import api  # noqa: PLC0415 - as above
    from checkers.java import GatewayError, NoJavaError  # noqa: PLC0415 - as above

    try:
        return api.start(master)
    except (NoJavaError, GatewayError) as error:
        raise InfrastructureError(str(error)) from error


def _stop_spark() -> None:
    from checkers import api  # noqa: PLC0415 - as above

    api.stop(at_once=True)


def _judge(request: Request, store: Path, talk: TextIO) -> tuple[Sweep, list[Run]]:
    """All runs at once."""
    from checkers.runs import RunsSource, judge_runs  # noqa: PLC0415 - as above

    plan = request.plan
    there = [
        (path, record) for path, record in sweep_runs.read(store / HISTORIES) if record.number < plan.runs
    ]
    files = sweep_runs.files(there)
    judged: dict[int, Judged] = {}
    damaged: dict[int, str] = {}
    if files:
        _tell(talk, f"judging {len(files)} histories, {sum(file.rows for file in files)} rows")
        options = plain_judge.options_of(plan.base, Schedule())
        expecting = {record.number for _, record in there if record.schedule.faults}

        def work() -> tuple[dict[int, Judged], dict[int, str]]:
            with clusters_fault():
                source = RunsSource(_spark(request.spark_master), files)
                return judge_runs(source, options, expecting), source.damaged

        judged, damaged = _beside(work)
    records = {record.number: record for _, record in there}
    runs = [
        sweep_table.run_of(plan, record, judged.get(number), damaged.get(number))
        for number, record in sorted(records.items())
    ]
    worst = tuple(
        _keep(store, plan, one, records[one.number], talk) for one in sweep_table.worst(runs, WORST)
    )
    ended = {
        word: sum(one.ended == word for one in runs) for word in ("valid", "invalid", "unknown", "crashed")
    }
    sweep = Sweep(
        exit_status=status(ended, broken=len(damaged)),
        store=str(store),
        plan=plan,
        ended=ended,
        table=sweep_table.rows(runs, plan.cells),
        worst=worst,
        runs=tuple(runs),
    )
    try:
        stores.save(store, TABLE, sweep)
    except OSError as error:
        raise InfrastructureError(f"cannot write {store / TABLE}: {error}") from error
    return sweep, runs


def status(ended: Mapping[str, int], broken: int = 0) -> int:
    """The gravest exit status, from how many runs ended how and of how many the file is no history.

    A finding, a bug of ours, a broken history, nothing decided.
    """
    if ended["invalid"]:
        return judging.INVALID
    if ended["crashed"]:
        return judging.INTERNAL
    if broken:
        return judging.USAGE
    return judging.VALID if ended["valid"] else judging.UNKNOWN


def _keep(store: Path, plan: Plan, one: Run, record: Record, talk: TextIO) -> Kept:
    """Simulate a run again, here, and keep it as if it had been run for itself."""
    kept = again = ""
    try:
        run = simulate(record.spec, record.schedule)
        if run.digest == record.digest:
            directory = store / "worst" / sweep_runs.name(one.number).removesuffix(".parquet")
            directory.mkdir(parents=True, exist_ok=True)
            path = reproduction.keep(directory, run, f"sweep {plan.run_seed(one.number)}")
            kept, again = str(path), reproduction.line(path)
        else:
            _tell(
                talk,
                f"run {one.number} gave another history when it was run again: a bug of jepsen-run; "
                "please report it",
            )
    except Exception:  # noqa: BLE001 - what was found stands, kept or not
        _tell(talk, f"run {one.number} could not be kept:\n{traceback.format_exc().rstrip()}")
    return Kept(
        number=one.number,
        policy=one.cell.policy,
        nemesis=one.cell.nemesis,
        findings=one.grave,
        faults=one.faults,
        reproduction=kept,
        again=again,
    )


def _opening(plan: Plan, store: Path, found: int) -> Iterator[str]:
    base = plan.base
    policies = list(dict.fromkeys(cell.policy for cell in plan.cells))
    nemeses = list(dict.fromkeys(cell.nemesis for cell in plan.cells))
    yield (
        f"sweep: {_counted(plan.runs, 'run')} of {_counted(len(plan.cells), 'cell')}, "
        f"{_counted(base.pairs, 'pair')}, "
        f"workload {base.workload}, {base.time_limit_s:g} s of load a run, seed {plan.seed}"
    )
    yield f"policies: {', '.join(policies)}; nemeses: {', '.join(nemeses)}"
    if plan.runs < len(plan.cells):
        yield f"{len(plan.cells) - plan.runs} cells get no run: give --runs {len(plan.cells)} or more"
    yield f"store: {store}" + (f" ({found} of the runs are there already)" if found else "")


def _closing(sweep: Sweep, runs: Sequence[Run]) -> Iterator[str]:
    yield sweep_table.text(sweep.table)
    yield ", ".join(f"{count} {word}" for word, count in sweep.ended.items() if count) or "no run"
    for one in runs:
        if one.ended == "crashed":
            yield (
                f"CRASHED  run {one.number} (a bug of jepsen-run): "
                f"{(one.trouble or '').strip().splitlines()[-1]}"
            )
    unknown = [one for one in runs if one.ended == "unknown"]
    for one in unknown[:UNKNOWN_TOLD]:
        yield f"Unknown  run {one.number}: {one.trouble}"
    if len(unknown) > UNKNOWN_TOLD:
        yield f"Unknown  {len(unknown) - UNKNOWN_TOLD} more, see {TABLE}"
    for kept in sweep.worst:
        faults = _counted(kept.faults, "fault")
        yield (
            f"Worst    run {kept.number}: {kept.policy}, {kept.nemesis}, {faults}: {', '.join(kept.findings)}"
        )
        if kept.again:
            yield f"         {kept.again}"
    yield f"Kept     {Path(sweep.store) / TABLE}"
    again = f"jepsen-run sweep --resume {shlex.quote(sweep.store)}"
    yield f"More     {again} --runs {2 * sweep.plan.runs}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _tell(talk: TextIO, text: str) -> None:
    print(text, file=talk, flush=True)


__all__ = ["TABLE", "Request", "Sweep", "clusters_fault", "resumed", "run", "status"]
