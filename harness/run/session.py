"""The commands ``test`` and ``check``, from their options to the exit status.

Why apart from the command line: everything here can be called by a test, a benchmark or a search
without parsing words. The order is made for the reader: Spark starts while the cluster is deployed,
and the verdict is printed as soon as it is known. The cluster is taken down during the judging.
Reports come after the verdict and cannot change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import platform
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

import nemesis.schedule
from checkers.schema import COLUMNS
from harness.history import judge as judging
from harness.history import known
from harness.history import store as stores
from harness.history.recorder import StreamRecorder
from harness.history.rows import HistoryRecorder, MemoryRecorder
from harness.interface import (
    Environment,
    InfrastructureError,
    Installed,
    Looked,
    Telling,
    TestSpec,
    UsageError,
    WithServices,
    program,
)
from harness.interface.errors import exhausted
from harness.interface.recorder import Row
from harness.report import files, summary
from harness.report.progress import Meter, Progress, choose
from harness.report.terminal import is_quiet, is_verbose, show, volume
from harness.run import reproduction
from harness.run.compose import Composition, compose
from harness.run.run import Run, zero_ns

if TYPE_CHECKING:
    from checkers.starting import Starting
    from checkers.verdict import Verdict

_NAMED_MAX: Final = 5
"""The maximum number of a directory's runs that are named in a line."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of a test.

    ``verdict`` is None only if the test was interrupted or a bug of ours ended it. ``judged_s`` is
    the time from the last operation to the printed verdict, in seconds. ``interrupted`` is also
    True if the interruption came after the verdict was known: a caller of several runs then makes
    no other.
    """

    status: int
    store: Path
    verdict: Verdict | None = None
    judged_s: float | None = None
    known: known.Review | None = None
    interrupted: bool = False


def run(
    spec: TestSpec,
    schedule_file: Path | None,
    root: Path,
    *,
    spark_master: str | None,
    as_json: bool,
    entries: Sequence[known.KnownFinding] | None = None,
    nemeses: Sequence[str] = (),
) -> int:
    """Run one test and print its verdict; return the exit status.

    ``nemeses`` are the nemeses that were requested together with a schedule: they must be exactly
    the kinds of its faults.
    """
    schedule = file = None
    if schedule_file is not None:
        file = str(schedule_file)
        directory = schedule_file.is_dir()
        schedule = nemesis.schedule.load(schedule_file / stores.SCHEDULE if directory else schedule_file)
        kinds = dict.fromkeys(fault.kind for fault in schedule.faults)
        if nemeses and set(nemeses) != set(kinds):
            raise UsageError(
                f"--nemesis {','.join(nemeses)} differs from the faults of --schedule {file} "
                f"({', '.join(kinds) or 'no fault'}): omit one of the two"
            )
    test = compose(spec, schedule, file)
    talk = sys.stderr if as_json else sys.stdout
    outcome = execute(test, root, talk, spark_master=spark_master, entries=entries)
    if outcome.verdict is not None:
        _tell_known(entries, [_judged_run(outcome.store, spec, outcome.verdict)], talk)
    if as_json:
        story = "" if outcome.verdict is None else _story(outcome.store, outcome.verdict)
        document = _document(spec, outcome.store, outcome.verdict, outcome.status, file, outcome.known, story)
        print(stores.as_json(document))
    return outcome.status


def execute(
    test: Composition,
    root: Path,
    talk: TextIO,
    *,
    spark_master: str | None = None,
    spark: Starting | None = None,
    entries: Sequence[known.KnownFinding] | None = None,
) -> RunOutcome:
    """Run a composed test to its verdict and print it to ``talk``; leave only Spark running.

    ``spark`` is a session that is already started, for callers that run many tests. Without it one
    is started at ``spark_master`` while the cluster is deployed. ``entries`` are the accepted
    findings.
    """
    from checkers import api  # noqa: PLC0415 - imports Spark

    spec = test.spec
    if isinstance(test.system, Looked):
        reach = partial(test.environment.resolve, "admin", port="stomp")
        for line in asyncio.run(test.system.look_first(spec, reach)):
            if not is_quiet():
                print(line, file=talk, flush=True)
    store = stores.create(root, spec.name)
    stores.save(store, stores.SPEC, spec)
    stores.save(store, stores.SCHEDULE, test.schedule)
    if test.given_schedule == "":
        test = replace(test, given_schedule=str(store / stores.SCHEDULE))
    starts_spark = spark is None
    spark = spark or api.start_in_background(spark_master, wanted=not test.environment.virtual)
    progress = choose(
        talk, f"{spec.name}  seed {spec.seed}", spec.time_limit_s, virtual=test.environment.virtual
    )
    progress.note(
        f"{spec.name}: system {spec.system}, policy {spec.policy}, {test.size}, workload {spec.workload}, "
        f"seed {spec.seed}"
    )
    if clients := summary.placed(spec):
        progress.note(f"clients: {clients}")
    progress.note(test.environment_reason)
    faults = ", ".join(
        f"{fault.kind} at {fault.start_s:.0f} s{f' after {fault.after}' if fault.after else ''}"
        for fault in test.schedule.faults
    )
    progress.note(f"faults, in seconds after the load begins: {faults}" if faults else "faults: none")
    progress.note(f"store: {store}")
    for line in test.warnings:
        progress.warn(line)
    if isinstance(test.environment, Telling):
        test.environment.tell = progress.note
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, _logged(progress):
        return runner.run(
            _Attempt(test, store, spark, progress, talk, entries, owns_spark=starts_spark).run()
        )


class _ShownLog(logging.Handler):
    """A handler that prints what the harness logs; brokers' logs are in the store."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress
        self.addFilter(lambda record: not record.name.startswith("broker"))

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        self._progress.note(f"{'':11}log    {record.levelname} {record.name}: {record.getMessage()}")


@contextlib.contextmanager
def _logged(progress: Progress) -> Iterator[None]:
    """Show the log of the harness during the run, with ``--verbose``."""
    if not is_verbose():
        yield
        return
    root = logging.getLogger()
    level, handler = root.level, _ShownLog(progress)
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO))
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class _Attempt:
    """The execution of one test, from signal handlers to summary."""

    def __init__(
        self,
        test: Composition,
        store: Path,
        spark: Starting,
        progress: Progress,
        talk: TextIO,
        entries: Sequence[known.KnownFinding] | None = None,
        *,
        owns_spark: bool = True,
    ) -> None:
        self._owns_spark = owns_spark
        self._entries = entries
        self._known: known.Review | None = None
        self.test = test
        self.store = store
        self.spark = spark
        self.progress = progress
        self.talk = talk
        self.record = stores.new_record()
        self.record.environment = test.environment.name
        self.record.warnings = list(test.warnings)
        self.record.environment_reason = test.environment_reason.partition(": ")[2]
        self.record.versions = _versions(test)
        self.record.again = summary.repeat_command(test.spec, store, test.given_schedule)
        self.interrupted = False
        self._ending = False

    async def run(self) -> RunOutcome:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        heeded = [number for number in _SIGNALS if not _nohup(number)]
        for number in heeded:
            loop.add_signal_handler(number, self._interrupt, task)
        try:
            return await self._attempt(task)
        finally:
            for number in heeded:  # uvloop leaves them when it closes, and Ctrl-C would do nothing
                loop.remove_signal_handler(number)

    async def _attempt(self, task: asyncio.Task[Any]) -> RunOutcome:
        self._save("running")
        recorder = self._recorder()
        if is_verbose():
            recorder.on_control = self._tell_row
        life = Run(self.test, self.store, self.progress, recorder)
        self.record.zero = _wall_clock(self.test.environment, recorder)
        bug: BaseException | None = None
        try:
            with self.progress:
                await self._conduct(life)
            self.record.trouble = life.trouble
            self._save("ended")
        except asyncio.CancelledError:
            task.uncancel()
            self._save("interrupted")
        except Exception as error:  # noqa: BLE001 - a bug of ours: the history is kept, the cluster still taken down
            self.record.trouble = _machine_trouble(error)
            if self.record.trouble is None:
                bug = error
                self.record.trouble = f"internal error: {type(error).__name__}: {error}"
            self._save("ended" if bug is None else "failed")
        return await self._conclude(life, bug)

    def _tell_row(self, row: Row) -> None:
        """Print what the monitor, the nemesis or the harness recorded, with all its details."""
        columns = dict(zip(COLUMNS, row, strict=True))
        self.progress.note(f"{columns['time'] / 1e9:7.1f} s    {summary.row_text(columns)}")

    def _recorder(self) -> HistoryRecorder:
        """Return the recorder: rows go to the disk while a test runs.

        With virtual time the rows stay in memory until the test has ended.
        """
        if self.test.environment.virtual:
            return MemoryRecorder(self.test.environment.clock_ns)
        return StreamRecorder(self.store, self.test.environment.clock_ns)

    async def _conduct(self, life: Run) -> None:
        """Conduct the test on the loop of its environment; then the history is in the store."""
        try:
            await self.test.environment.execute(life.conduct, seed=self.test.spec.seed)
        finally:
            if isinstance(life.recorder, MemoryRecorder):
                life.recorder.store(self.store)

    async def _conclude(self, life: Run, bug: BaseException | None) -> RunOutcome:
        dismantling = asyncio.create_task(self._dismantle(life))
        verdict: Verdict | None = None
        judged_s: float | None = None
        now_s = asyncio.get_running_loop().time()
        began_s = now_s if self.test.environment.virtual else life.ended_s or now_s
        try:
            if not self.interrupted and bug is None:
                verdict = await self._judge(life)
                self._known = _reviewed(self.store, self.test.spec, verdict, self._entries)
                self._keep_reproduction(life, verdict)
                judged_s = asyncio.get_running_loop().time() - began_s
                self._tell(verdict, judged_s)
        except asyncio.CancelledError:
            self.interrupted = True
        except Exception as error:  # noqa: BLE001 - as above
            reason = _machine_trouble(error)
            if reason is None:
                bug = error
            else:
                verdict = judging.undecided(
                    self.store, self.test.spec, reason, judging.trouble_of(self.record)
                )
                self._tell(verdict, asyncio.get_running_loop().time() - began_s)
        self._ending = True  # the rest is short and must be done
        await dismantling
        if self._owns_spark and (self.interrupted or bug is not None):
            await asyncio.to_thread(_stop_spark)
        if bug is not None:
            self._report_bug(bug)
            return RunOutcome(status=judging.INTERNAL, store=self.store)
        if verdict is None:
            print(
                f"interrupted; the history is kept, judge it with: "
                f"{program.command('check', str(self.store))}",
                file=self.talk,
                flush=True,
            )
            return RunOutcome(status=judging.INTERRUPTED, store=self.store, interrupted=True)
        if self._is_stored():
            await asyncio.to_thread(files.write, self.store)
        return RunOutcome(
            status=known.exit_status(verdict, self._known),
            store=self.store,
            verdict=verdict,
            judged_s=judged_s,
            known=self._known,
            interrupted=self.interrupted,
        )

    async def _judge(self, life: Run) -> Verdict:
        """Return the verdict; without Spark if nothing was ever sent."""
        if not life.loaded:
            return judging.undecided(
                self.store, self.test.spec, self.record.trouble or "nothing was sent", None
            )
        if self.record.trouble is not None and not stores.has_history(self.store):
            return judging.undecided(self.store, self.test.spec, self.record.trouble, None)
        loop = asyncio.get_running_loop()
        with Meter(self.talk) as meter:

            def tell(text: str, seconds: float) -> None:
                loop.call_soon_threadsafe(_tell_judging, meter, text, seconds)

            return await asyncio.to_thread(
                judging.judge,
                self.store,
                self.spark.result,
                wanted=self.spark.wanted,
                tell=tell,
                record=self.record,
            )

    def _keep_reproduction(self, life: Run, verdict: Verdict) -> None:
        """Save the file with everything that reproduces a finding, if the verdict is invalid.

        A full disk is ignored here: it has been reported already.
        """
        if verdict.valid is False:
            recorder = life.recorder
            stored_finding = reproduction.of_run(
                self.test.spec,
                self.test.schedule,
                verdict.findings,
                environment=self.test.environment.name,
                digest=recorder.digest() if isinstance(recorder, MemoryRecorder) else "",
            )
            with contextlib.suppress(OSError):
                stores.save(self.store, reproduction.FILE, stored_finding)

    def _tell(self, verdict: Verdict, waited_s: float) -> None:
        text = summary.text(
            self.test.spec,
            self.store,
            verdict,
            schedule_file=self.test.given_schedule,
            judged_s=waited_s,
            story=_story(self.store, verdict),
            known=self._known,
            reported=self._is_stored(),
            volume=volume(),
        )
        show(self.talk, text)

    def _is_stored(self) -> bool:
        """Return whether the verdict is in the store: a full disk may have had no room for it."""
        return (self.store / stores.FINDINGS).is_file()

    async def _dismantle(self, life: Run) -> None:
        """Take the cluster down; print trouble with that, which changes no verdict."""
        try:
            await life.dismantle()
        except (OSError, InfrastructureError) as error:
            print(
                f"the cluster could not be removed ({error}); {program.command('clean')} will",
                file=sys.stderr,
            )

    def _interrupt(self, task: asyncio.Task[Any]) -> None:
        if self.interrupted:
            # The second interrupt: faults heal by their leases, and "clean" removes the rest.
            self.progress.warn(f"ended at once: what still runs is removed by: {program.command('clean')}")
            os._exit(judging.INTERRUPTED)
        self.interrupted = True
        theirs = self.test.spec.attached is not None
        does = "undoing the hooks, the cluster stays" if theirs else "healing and removing the cluster"
        self.progress.warn(f"interrupted: {does} (interrupt again to end at once)")
        if not self._ending:
            task.cancel()

    def _save(self, state: stores.RunState) -> None:
        self.record.state = state
        if isinstance(self.test.environment, WithServices):
            self.record.furnishings = self.test.environment.describe_services()
        with contextlib.suppress(OSError):  # a full disk has been reported already
            stores.save(self.store, stores.RUN, self.record)

    def _report_bug(self, bug: BaseException) -> None:
        lines = "".join(traceback.format_exception(bug))
        with contextlib.suppress(OSError):
            (self.store / stores.LOGS / "harness.log").write_text(lines)
        print(lines, file=sys.stderr)
        print(
            "jepsen-run: internal error: this is a bug of jepsen-run and says nothing about the "
            "brokers; please report it with the "
            f"lines above. The history is kept in {self.store}",
            file=sys.stderr,
            flush=True,
        )


def check(
    paths: Sequence[Path],
    *,
    changes: Mapping[str, Any],
    spark_master: str | None = None,
    as_json: bool = False,
    entries: Sequence[known.KnownFinding] | None = None,
) -> int:
    """Judge stored runs; return the gravest exit status of all.

    Verdicts and reports are written for runs that are named. Runs that are only found below a named
    directory are judged without any change to them. The page of all runs of a store is written
    anew.
    """
    stores_by_path = {path: stores.find(path) for path in paths}
    # "store/*" names the latest run twice, once by a link.
    runs = list(
        {
            store.resolve(): store for stores_below in stores_by_path.values() for store in stores_below
        }.values()
    )
    named = {
        store.resolve()
        for path, stores_below in stores_by_path.items()
        for store in stores_below
        if stores.is_named(store, path)
    }
    from checkers import api  # noqa: PLC0415 - imports Arrow
    from harness.history import lean  # noqa: PLC0415 - as above

    lean.without_pandas()

    talk = sys.stderr if as_json else sys.stdout
    start = functools.cache(lambda: api.start(spark_master))  # once, when the first history needs it

    def judge(store: Path, *, spec: TestSpec | None, keep: bool) -> Verdict:
        with Meter(talk) as meter:
            return judging.judge(
                store,
                start,
                spec,
                keep=keep,
                wanted=spark_master is not None,
                tell=partial(_tell_judging, meter),
            )

    statuses: list[int] = []
    documents: list[msgspec.Raw] = []
    judged: list[known.JudgedRun] = []
    for path, stores_below in stores_by_path.items():
        if any(store.resolve() not in named for store in stores_below) and not is_quiet():
            show(talk, _holding(path, stores_below))
    for number, store in enumerate(runs):
        if number:
            print(file=talk)
        keep = store.resolve() in named
        status, document = _check_one(store, judge, changes, talk, entries, judged, keep=keep)
        statuses.append(status)
        documents.append(document)
    for root in dict.fromkeys(filter(None, map(stores.root_of, runs))):
        files.write_overview(root)
    status = judging.gravest_status(statuses)
    _tell_known(entries, judged, talk)
    if as_json:
        print(stores.as_json({"exit-status": status, "runs": documents}))
    elif len(runs) > 1:
        print(
            f"\n{len(runs)} runs: "
            + ", ".join(f"{statuses.count(s)} {w}" for s, w in judging.WORDS.items() if s in statuses)
        )
    return status


def _tell_judging(meter: Meter, text: str, seconds: float) -> None:
    if not is_quiet():
        meter.note(text)
    meter.expect("judging", seconds)


def _holding(path: Path, runs: Sequence[Path]) -> str:
    """Return the line that says that a path is not itself a run, and which runs are below it."""
    names = [shlex.quote(str(store.relative_to(path))) for store in runs[:_NAMED_MAX]]
    more = f" and {len(runs) - len(names)} more" if len(runs) > len(names) else ""
    count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    return (
        f"{path} contains {count} ({', '.join(names)}{more}). They are judged, and their files are not "
        "changed. To write a new verdict and report, name the directory of one run."
    )


def _reviewed(
    store: Path, spec: TestSpec, verdict: Verdict, entries: Sequence[known.KnownFinding] | None
) -> known.Review | None:
    """Compare a run's findings with the known ones, and store the result with its verdict.

    Returns None if no file of known findings was given.
    """
    reviewed = (
        None
        if entries is None
        else known.review(verdict, spec, entries, release=stores.load_run(store).release(spec))
    )
    known.keep(store, reviewed)
    return reviewed


def _judged_run(store: Path, spec: TestSpec, verdict: Verdict) -> known.JudgedRun:
    kinds = {finding.name for finding in verdict.findings}
    return known.JudgedRun(spec, kinds, stores.load_run(store).release(spec))


def _tell_known(
    entries: Sequence[known.KnownFinding] | None,
    judged: Sequence[known.JudgedRun],
    talk: TextIO,
) -> None:
    for line in known.entry_lines(entries or (), judged):
        show(talk, line)


def _check_one(
    store: Path,
    judge: Callable[..., Verdict],
    changes: Mapping[str, Any],
    talk: TextIO,
    entries: Sequence[known.KnownFinding] | None,
    judged: list[known.JudgedRun],
    *,
    keep: bool,
) -> tuple[int, msgspec.Raw]:
    """Judge one run of a batch; return its exit status and its result as JSON.

    The run and its verdict are added to ``judged``. An error in this run does not keep the others
    from being judged. If ``keep`` is true, its verdict and reports are written.
    """
    changed = {field: value for field, value in changes.items() if value is not None}
    try:
        spec = stores.load_spec(store)
        if changed:
            from harness.history.spec import build  # noqa: PLC0415 - only here

            spec = build({**changed, "name": spec.name}, spec)
        verdict = judge(store, spec=spec if changed else None, keep=keep)
        run = _judged_run(store, spec, verdict)
        judged.append(run)
        reviewed = None if entries is None else known.review(verdict, spec, entries, release=run.release)
        status = known.exit_status(verdict, reviewed)
        schedule, story = summary.given_schedule(store), _story(store, verdict)
        document = _json(_document(spec, store, verdict, status, schedule, reviewed, story))
    except UsageError as error:
        print(f"jepsen-run: {error}", file=sys.stderr)
        return judging.USAGE, _json({"store": str(store), "error": str(error)})
    except InfrastructureError as error:
        print(f"jepsen-run: unknown: {error}", file=sys.stderr)
        return judging.UNKNOWN, _json({"store": str(store), "error": str(error)})
    except Exception as error:  # noqa: BLE001 - reported as a bug; the others are judged
        traceback.print_exc()
        print(f"jepsen-run: internal error while judging {store}; please report it", file=sys.stderr)
        return judging.INTERNAL, _json({"store": str(store), "error": f"internal error: {error!r}"})
    if keep and not changed:
        known.keep(store, reviewed)
        files.write(store)
    text = summary.text(
        spec, store, verdict,
        schedule_file=schedule, story=story, known=reviewed, otherwise=_options(changed),
        reported=keep, volume=volume(),
    )  # fmt: skip
    show(talk, text)
    return status, document


def _options(changed: Mapping[str, Any]) -> str:
    """Return the guarantee that replaces the stored one, as options of ``check``."""
    words = {"guarantee": f"--guarantee {changed.get('guarantee')}"}
    words["ordered"] = "--ordered" if changed.get("ordered") else "--unordered"
    return " ".join(words[field] for field in changed)


def _json(document: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(document))


def _story(store: Path, verdict: Verdict) -> str:
    """Return the first grave finding in words; an error in it can never change a verdict."""
    try:
        from harness.report.narrative import paragraphs  # noqa: PLC0415 - only where something was found

        return paragraphs.of_gravest(store, verdict, summary.STORY_CHARACTERS)
    except Exception as error:  # noqa: BLE001 - as a report
        print(f"the story could not be told: {type(error).__name__}: {error}", file=sys.stderr)
        return ""


def _document(
    spec: TestSpec,
    store: Path,
    verdict: Verdict | None,
    status: int,
    schedule: str | None,
    reviewed: known.Review | None,
    story: str,
) -> dict[str, Any]:
    return {
        "exit-status": status,
        "store": str(store),
        "spec": spec,
        "verdict": verdict,
        "known": reviewed,
        "story": story,
        "again": summary.repeat_command(spec, store, schedule),
        "judge": program.command("check", str(store)),
    }


def _stop_spark() -> None:
    """Stop Spark at once, whatever it is doing."""
    from checkers import api  # noqa: PLC0415 - as above

    api.stop(at_once=True)


def _machine_trouble(error: Exception) -> str | None:
    """Return what was wrong with the machine, in one line; None if the error is a bug of ours."""
    spent = exhausted(error)
    if not isinstance(error, InfrastructureError) or spent is None or spent in str(error):
        return str(error) if isinstance(error, InfrastructureError) else spent
    return f"{error}; {spent}"


def _nohup(number: signal.Signals) -> bool:
    """Return whether the program was started to go on without its terminal (``nohup``)."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


def _wall_clock(environment: Environment, recorder: HistoryRecorder) -> str:
    """Return the time that a broker with a correct clock logs at the history's time zero."""
    moment = datetime.fromtimestamp(zero_ns(environment, recorder) / 1e9, UTC)
    return moment.isoformat(timespec="microseconds")


def _versions(test: Composition) -> dict[str, str]:
    """Return the versions of this program, its libraries, the brokers and the Docker engine."""
    system = test.system
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("jepsen-run", "pyspark", "pyarrow"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    if isinstance(system, Installed):
        versions[system.name] = system.version()
    if test.environment.name == "docker":
        from environments.docker.engine import engine_answers  # noqa: PLC0415 - needed for containers only

        answers, engine = engine_answers()
        if answers:
            versions["engine"] = engine
    return versions


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return uvloop.new_event_loop
