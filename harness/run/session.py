"""What the commands ``test`` and ``check`` do, from their options to the exit status.

Why apart from the command line: everything here can be called by a test, a benchmark or a search
without parsing words. The order is made for the reader: Spark starts while the cluster is deployed,
the verdict is printed as soon as it is known, and the cluster is taken down beside the judging.
Reports come after the verdict and cannot change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import platform
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

import nemesis.schedule
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
    System,
    Telling,
    TestSpec,
    UsageError,
    WithServices,
)
from harness.interface.errors import exhausted
from harness.report import files, summary
from harness.report.progress import Lines, Progress, choose
from harness.run import reproduction
from harness.run.compose import Composition, compose
from harness.run.run import Run, zero_ns

if TYPE_CHECKING:
    from checkers.starting import Starting
    from checkers.verdict import Verdict

_NAMED_MAX: Final = 5
"""Runs of a directory that are named in a line."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a test ended.

    ``verdict`` is None only if it was interrupted or a bug of ours ended it; ``judged_s`` is from
    the last operation to the printed verdict. ``interrupted`` is so, too, where that was asked for
    when the verdict was known: who makes several runs makes no other.
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
    """Run one test and print its verdict; the exit status.

    ``nemeses`` are those that were asked for beside the schedule: it must be of them.
    """
    schedule = file = None
    if schedule_file is not None:
        file = str(schedule_file)
        directory = schedule_file.is_dir()
        schedule = nemesis.schedule.load(schedule_file / stores.SCHEDULE if directory else schedule_file)
        kinds = dict.fromkeys(fault.kind for fault in schedule.faults)
        if nemeses and set(nemeses) != set(kinds):
            raise UsageError(
                f"--nemesis {','.join(nemeses)} is not what --schedule {file} has "
                f"({', '.join(kinds) or 'no fault'}): leave one of them out"
            )
    test = compose(spec, schedule, file)
    talk = sys.stderr if as_json else sys.stdout
    outcome = execute(test, root, talk, spark_master=spark_master, entries=entries)
    if outcome.verdict is not None:
        _tell_known(entries, [(spec, outcome.verdict)], talk)
    if as_json:
        document = _document(spec, outcome.store, outcome.verdict, outcome.status, file, outcome.known)
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
    """Run a composed test to its verdict, telling ``talk``; leaves nothing running but Spark.

    ``spark`` is a session that is started already, for who runs many tests; else one is started at
    ``spark_master`` while the cluster is deployed. ``entries`` are the findings that are accepted.
    """
    from checkers import api  # noqa: PLC0415 - imports Spark

    spec = test.spec
    if isinstance(test.system, Looked):
        reach = partial(test.environment.resolve, "admin", port="stomp")
        for line in asyncio.run(test.system.look_first(spec, reach)):
            print(line, file=talk, flush=True)
    store = stores.create(root, spec.name)
    stores.save(store, stores.SPEC, spec)
    stores.save(store, stores.SCHEDULE, test.schedule)
    if test.given_schedule == "":
        test = replace(test, given_schedule=str(store / stores.SCHEDULE))
    own = spark is None
    spark = spark or api.start_in_background(spark_master, wanted=not test.environment.virtual)
    # A minute of virtual time takes a second: a display could show nothing that its lines do not
    # say better.
    virtual = test.environment.virtual
    progress = Lines(talk) if virtual else choose(talk, f"{spec.name}  seed {spec.seed}")
    progress.note(
        f"{spec.name}: system {spec.system}, policy {spec.policy}, {test.size}, workload {spec.workload}, "
        f"seed {spec.seed}"
    )
    progress.note(test.environment_reason)
    faults = ", ".join(
        f"{fault.kind} at {fault.start_s:.0f} s{f' after {fault.after}' if fault.after else ''}"
        for fault in test.schedule.faults
    )
    progress.note(f"faults, in seconds after the load begins: {faults}" if faults else "faults: none")
    progress.note(f"store: {store}")
    if isinstance(test.environment, Telling):
        test.environment.tell = progress.note
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_Attempt(test, store, spark, progress, talk, entries, owns_spark=own).run())


class _Attempt:
    """One test from signal handlers to summary."""

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
        self.record.environment_reason = test.environment_reason.partition(": ")[2]
        self.record.versions = _versions(test.system)
        self.record.again = summary.again(test.spec, store, test.given_schedule)
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
            for number in heeded:  # closing uvloop's loop leaves them, and Ctrl-C would do nothing
                loop.remove_signal_handler(number)

    async def _attempt(self, task: asyncio.Task[Any]) -> RunOutcome:
        self._save("running")
        recorder = self._recorder()
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

    def _recorder(self) -> HistoryRecorder:
        """Rows go to the disk while a test runs.

        Where time is not the machine's, when it has ended.
        """
        if self.test.environment.virtual:
            return MemoryRecorder(self.test.environment.clock_ns)
        return StreamRecorder(self.store, self.test.environment.clock_ns)

    async def _conduct(self, life: Run) -> None:
        """On the loop that the environment wants; the history is in the store then."""
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
        self._ending = True  # what is left is short; it must be done
        await dismantling
        if self._owns_spark and (self.interrupted or bug is not None):
            await asyncio.to_thread(_stop_spark)
        if bug is not None:
            self._report_bug(bug)
            return RunOutcome(status=judging.INTERNAL, store=self.store)
        if verdict is None:
            print(
                "interrupted; the history is kept, judge it with: jepsen-run check "
                f"{shlex.quote(str(self.store))}",
                file=self.talk,
                flush=True,
            )
            return RunOutcome(status=judging.INTERRUPTED, store=self.store, interrupted=True)
        if self._kept():
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
        """The verdict; without Spark where nothing was ever sent."""
        if not life.loaded:
            return judging.undecided(
                self.store, self.test.spec, self.record.trouble or "nothing was sent", None
            )
        if self.record.trouble is not None and not stores.has_history(self.store):
            return judging.undecided(self.store, self.test.spec, self.record.trouble, None)
        loop = asyncio.get_running_loop()

        def tell(text: str) -> None:
            loop.call_soon_threadsafe(self.progress.note, text)

        return await asyncio.to_thread(
            judging.judge,
            self.store,
            self.spark.result,
            wanted=self.spark.wanted,
            tell=tell,
            record=self.record,
        )

    def _keep_reproduction(self, life: Run, verdict: Verdict) -> None:
        """One file with all that brings a finding back; a full disk has been told already."""
        if verdict.valid is False:
            recorder = life.recorder
            kept = reproduction.of_run(
                self.test.spec,
                self.test.schedule,
                verdict.findings,
                environment=self.test.environment.name,
                digest=recorder.digest() if isinstance(recorder, MemoryRecorder) else "",
            )
            with contextlib.suppress(OSError):
                stores.save(self.store, reproduction.FILE, kept)

    def _tell(self, verdict: Verdict, waited_s: float) -> None:
        text = summary.text(
            self.test.spec,
            self.store,
            verdict,
            schedule_file=self.test.given_schedule,
            judged_s=waited_s,
            story=_story(self.store, verdict),
            known=self._known,
            reported=self._kept(),
        )
        print(text, file=self.talk, flush=True)

    def _kept(self) -> bool:
        """Whether the verdict is in the store: a full disk may have had no room for it."""
        return (self.store / stores.FINDINGS).is_file()

    async def _dismantle(self, life: Run) -> None:
        """Take the cluster down; trouble with that is told and changes no verdict."""
        try:
            await life.dismantle()
        except (OSError, InfrastructureError) as error:
            print(f"the cluster could not be removed ({error}); jepsen-run clean will", file=sys.stderr)

    def _interrupt(self, task: asyncio.Task[Any]) -> None:
        if self.interrupted:
            # Asked twice: faults heal by their leases, and "clean" removes the rest.
            self.progress.note("ended at once: what still runs is removed by: jepsen-run clean")
            os._exit(judging.INTERRUPTED)
        self.interrupted = True
        theirs = self.test.spec.attached is not None
        does = "undoing the hooks, the cluster stays" if theirs else "healing and removing the cluster"
        self.progress.note(f"interrupted: {does} (once more ends at once)")
        if not self._ending:
            task.cancel()

    def _save(self, state: str) -> None:
        self.record.state = state
        if isinstance(self.test.environment, WithServices):
            self.record.furnishings = self.test.environment.describe_services()
        with contextlib.suppress(OSError):  # a full disk has been told already
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
    """Judge stored runs; the gravest exit status of all.

    Verdicts and reports are written for runs that are named; nothing is changed in those that a
    directory of several merely holds.
    """
    held = {path: stores.find(path) for path in paths}
    # "store/*" names the latest run twice, of which one is a link.
    runs = list({store.resolve(): store for some in held.values() for store in some}.values())
    named = {store.resolve() for path, some in held.items() for store in some if stores.is_named(store, path)}
    from checkers import api  # noqa: PLC0415 - imports Arrow
    from harness.history import lean  # noqa: PLC0415 - as above

    lean.without_pandas()

    talk = sys.stderr if as_json else sys.stdout
    judge = partial(
        judging.judge,
        spark=functools.cache(lambda: api.start(spark_master)),  # only where a history needs it, and once
        wanted=spark_master is not None,
        tell=partial(print, file=talk),
    )
    statuses: list[int] = []
    documents: list[msgspec.Raw] = []
    judged: list[tuple[TestSpec, Verdict]] = []
    for path, some in held.items():
        if any(store.resolve() not in named for store in some):
            print(_holding(path, some), file=talk)
    for number, store in enumerate(runs):
        if number:
            print(file=talk)
        keep = store.resolve() in named
        status, document = _check_one(store, judge, changes, talk, entries, judged, keep=keep)
        statuses.append(status)
        documents.append(document)
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


def _holding(path: Path, runs: Sequence[Path]) -> str:
    """That a path names no run, but those below it."""
    names = [shlex.quote(str(store.relative_to(path))) for store in runs[:_NAMED_MAX]]
    more = f" and {len(runs) - len(names)} more" if len(runs) > len(names) else ""
    count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    return (
        f"{path} holds {count} ({', '.join(names)}{more}): judged, and nothing is changed there; name a run "
        "itself to have its verdict and its report written anew"
    )


def _reviewed(
    store: Path, spec: TestSpec, verdict: Verdict, entries: Sequence[known.KnownFinding] | None
) -> known.Review | None:
    """What is known of a run's findings, kept beside its verdict; None where no file was given."""
    reviewed = None if entries is None else known.review(verdict, spec, entries)
    known.keep(store, reviewed)
    return reviewed


def _tell_known(
    entries: Sequence[known.KnownFinding] | None,
    judged: Sequence[tuple[TestSpec, Verdict]],
    talk: TextIO,
) -> None:
    found = [(spec, {finding.name for finding in verdict.findings}) for spec, verdict in judged]
    for line in known.told(entries or (), found):
        print(line, file=talk, flush=True)


def _check_one(
    store: Path,
    judge: Callable[..., Verdict],
    changes: Mapping[str, Any],
    talk: TextIO,
    entries: Sequence[known.KnownFinding] | None,
    judged: list[tuple[TestSpec, Verdict]],
    *,
    keep: bool,
) -> tuple[int, msgspec.Raw]:
    """One run of a batch: its exit status, and what is told of it as JSON; it joins the judged.

    What is wrong with it hides no other. ``keep``: its verdict and reports are written.
    """
    given = {field: value for field, value in changes.items() if value is not None}
    try:
        spec = stores.load_spec(store)
        if given:
            from harness.history.spec import build  # noqa: PLC0415 - only here

            spec = build({**given, "name": spec.name}, spec)
        verdict = judge(store, spec=spec if given else None, keep=keep)
        judged.append((spec, verdict))
        reviewed = None if entries is None else known.review(verdict, spec, entries)
        status = known.exit_status(verdict, reviewed)
        schedule = _given_schedule(store)
        document = _json(_document(spec, store, verdict, status, schedule, reviewed))
    except UsageError as error:
        print(f"jepsen-run: {error}", file=sys.stderr)
        return judging.USAGE, _json({"store": str(store), "error": str(error)})
    except InfrastructureError as error:
        print(f"jepsen-run: unknown: {error}", file=sys.stderr)
        return judging.UNKNOWN, _json({"store": str(store), "error": str(error)})
    except Exception as error:  # noqa: BLE001 - told as a bug of ours, and the others are still judged
        traceback.print_exc()
        print(f"jepsen-run: internal error while judging {store}; please report it", file=sys.stderr)
        return judging.INTERNAL, _json({"store": str(store), "error": f"internal error: {error!r}"})
    if keep and not given:
        known.keep(store, reviewed)
        files.write(store)
    story = _story(store, verdict)
    text = summary.text(
        spec, store, verdict,
        schedule_file=schedule, story=story, known=reviewed, otherwise=_options(given),
        reported=keep,
    )  # fmt: skip
    print(text, file=talk, flush=True)
    return status, document


def _options(given: Mapping[str, Any]) -> str:
    """What was asked for in another way than it is stored, as options of ``check``."""
    words = {"guarantee": f"--guarantee {given.get('guarantee')}"}
    words["ordered"] = "--ordered" if given.get("ordered") else "--unordered"
    return " ".join(words[field] for field in given)


def _given_schedule(store: Path) -> str | None:
    """The stored faults, where the run was told them; None where spec and seed give the same."""
    again = stores.load_run(store).again
    told = " --schedule " in again or again.startswith("jepsen-run replay ")
    return str(store / stores.SCHEDULE) if told else None


def _json(document: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(document))


def _story(store: Path, verdict: Verdict) -> str:
    """The first grave finding in words; like a report it can never change a verdict."""
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
) -> dict[str, Any]:
    return {
        "exit-status": status,
        "store": str(store),
        "spec": spec,
        "verdict": verdict,
        "known": reviewed,
        "again": summary.again(spec, store, schedule),
    }


def _stop_spark() -> None:
    """End Spark in the middle of whatever it does."""
    from checkers import api  # noqa: PLC0415 - as above

    api.stop(at_once=True)


def _machine_trouble(error: Exception) -> str | None:
    """Return what was wrong with the machine, in one line; None where a bug of ours raised this."""
    spent = exhausted(error)
    if not isinstance(error, InfrastructureError) or spent is None or spent in str(error):
        return str(error) if isinstance(error, InfrastructureError) else spent
    return f"{error}; {spent}"


def _nohup(number: signal.Signals) -> bool:
    """Whether who started this wants it to go on without its terminal."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


def _wall_clock(environment: Environment, recorder: HistoryRecorder) -> str:
    """What a broker whose clock is right logs at the history's time zero."""
    moment = datetime.fromtimestamp(zero_ns(environment, recorder) / 1e9, UTC)
    return moment.isoformat(timespec="microseconds")


def _versions(system: System) -> dict[str, str]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("jepsen-run", "pyspark", "pyarrow"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    if isinstance(system, Installed):
        versions[system.name] = system.version()
    return versions


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return uvloop.new_event_loop
