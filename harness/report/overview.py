"""The page of all runs of a store, ``index.html``, and the same for programs, ``index.json``.

Why every run writes both: a nightly job keeps its store, and a reader of the page in the morning
wants to see what is new without opening each report. Both are made only from what the runs have
stored, so ``jepsen-run check`` makes them again.

Why ``index.json`` is read before it is written: a run whose verdict has not changed since is taken
from it. So a store of a thousand runs costs a new one less than a second. A file that is damaged,
or of another version, is made anew.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import markupsafe
import msgspec

from harness.history import judge as judging
from harness.history import known
from harness.history import store as stores
from harness.interface import UsageError, program
from harness.report.templating import TEMPLATES

INDEX: Final = "index.json"
VERSION: Final = 1
NEWEST: Final = 1000
"""The maximum number of runs on the page, those that began last; older ones stay in the store."""
TREND: Final = 40
"""The number of runs of each test that the trend shows."""


DAMAGED: Final = "damaged"
"""The word for a run whose spec or record cannot be read."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A run of a store.

    ``directory`` is relative to the store. ``verdict`` is "valid", "invalid", "unknown" or, without
    a verdict, "running", "killed", "interrupted", "not judged" or "damaged". ``known`` says that
    all grave findings are accepted. ``findings`` and ``warnings`` are counts by kind. ``judged_ns``
    is when the verdict was written, 0 for none.
    """

    directory: str
    test: str
    started: str
    again: str
    system: str
    policy: str
    workload: str
    environment: str
    seed: int
    verdict: str
    known: bool = False
    duration_s: float = 0.0
    rows: int = 0
    findings: dict[str, int] = msgspec.field(default_factory=dict)
    warnings: dict[str, int] = msgspec.field(default_factory=dict)
    judged_ns: int = 0

    @property
    def decided(self) -> bool:
        """True if the verdict says that findings exist, or that none does."""
        return self.verdict in ("valid", "invalid")


class SweepSummary(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A sweep of a store, as its table says; ``directory`` is relative to the store."""

    ended: dict[str, int]
    directory: str = ""

    @property
    def name(self) -> str:
        """The name of the sweep's test."""
        return self.directory.partition("/")[0]

    @property
    def began(self) -> str:
        """The moment in which the sweep began, as the name of its directory says."""
        return _began(self.directory)


def _began(directory: str) -> str:
    """Return the moment in which a run or sweep began, as the name of its directory says."""
    name = directory.rpartition("/")[2]
    with contextlib.suppress(ValueError):
        moment = datetime.strptime(name[:15], "%Y%m%dT%H%M%S")  # noqa: DTZ007 - local, as it was written
        return moment.isoformat(timespec="seconds")
    return ""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a store, the newest first: ``index.json``."""

    version: int
    runs: tuple[RunSummary, ...] = ()


class _Finding(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    severity: str
    count: int


class _Statistics(msgspec.Struct, frozen=True, kw_only=True):
    rows: int = 0
    duration_s: float = 0.0


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The part of ``findings.json`` that the page shows; witnesses are skipped, not decoded."""

    valid: bool | None
    findings: tuple[_Finding, ...] = ()
    statistics: _Statistics = _Statistics()


@dataclass(frozen=True, slots=True)
class Trend:
    """A kind of finding in the runs of a test.

    ``counts`` has the oldest run first; None for a run that was not decided. ``standing`` is "new"
    if the newest decided run has the finding and the one before has not. It is "again" if both have
    it, "gone" if only an earlier one has it.
    """

    kind: str
    standing: str
    counts: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class TestHistory:
    """The runs of one test, the newest first, and the trend of each kind of finding."""

    name: str
    runs: tuple[RunSummary, ...]
    trends: tuple[Trend, ...]

    @property
    def newest(self) -> RunSummary:
        """The run that began last."""
        return self.runs[0]


def write(root: Path) -> Path:
    """Write the pages of a store, and return the path of ``index.html``. Raises OSError."""
    runs = read(root)
    _replace(
        root / INDEX, msgspec.json.format(msgspec.json.encode(Index(version=VERSION, runs=runs)), indent=1)
    )
    _replace(root / stores.OVERVIEW, render(runs, root, sweeps(root)).encode())
    return root / stores.OVERVIEW


def read(root: Path) -> tuple[RunSummary, ...]:
    """Return the newest runs of a store, the newest first."""
    earlier = {run.directory: run for run in _earlier(root)}
    newest_runs = sorted(_directories(root), key=lambda run: (run.name, str(run)), reverse=True)[:NEWEST]
    return tuple(_summary(root, run, earlier.get(str(run.relative_to(root)))) for run in newest_runs)


def sweeps(root: Path) -> list[SweepSummary]:
    """Return the sweeps of a store that have a page, the newest first."""
    summaries = []
    for directory in (run for test in _below(root) for run in _below(test)):
        if (directory / stores.SWEEP_PAGE).is_file():
            with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                table = msgspec.json.decode((directory / stores.SWEEP_TABLE).read_bytes(), type=SweepSummary)
                relative = str(directory.relative_to(root))
                summaries.append(msgspec.structs.replace(table, directory=relative))
    return sorted(summaries, key=lambda sweep: (sweep.began, sweep.directory), reverse=True)


def render(runs: Sequence[RunSummary], root: Path, sweeps: Sequence[SweepSummary] = ()) -> str:
    """Return the page that shows these runs and sweeps, the newest first."""
    test_histories = histories(runs)
    return TEMPLATES.get_template("overview.html.j2").render(
        runs=runs,
        tests=test_histories,
        sweeps=sweeps,
        damaged=DAMAGED,
        sweep_page=stores.SWEEP_PAGE,
        news=dict(zip((run.directory for run in runs), news(runs), strict=True)),
        check=program.command("check", str(root)),
        report=stores.REPORT,
        trend=TREND,
        runs_json=markupsafe.Markup(_in_script(msgspec.json.encode(runs))),  # noqa: S704 - no tag is left in it
    )


def _in_script(json: bytes) -> str:
    """Return JSON for a script element: no text in it ends that element."""
    return json.decode().replace("<", "\\u003c")


def histories(runs: Sequence[RunSummary]) -> list[TestHistory]:
    """Return the history of each test, the one that ran last first."""
    by_test: dict[str, list[RunSummary]] = defaultdict(list)
    for run in runs:
        by_test[run.test].append(run)
    return [
        TestHistory(name, tuple(runs_of_test), _trends(runs_of_test))
        for name, runs_of_test in by_test.items()
    ]


def news(runs: Sequence[RunSummary]) -> Iterator[Mapping[str, str]]:
    """Yield for each run, newest first, whether each of its findings is "new", "again" or "gone".

    It is compared with the previous decided run of the same test. The first decided run has no
    previous one: its findings are "new".
    """
    for number, run in enumerate(runs):
        before = next(
            (older for older in runs[number + 1 :] if older.test == run.test and older.decided), None
        )
        had = {} if before is None else before.findings
        if run.decided:
            yield {
                kind: _standing(kind in run.findings, kind in had) for kind in sorted({*run.findings, *had})
            }
        else:
            yield {}


def _standing(has: bool, had: bool) -> str:
    return ("again" if had else "new") if has else "gone"


def _trends(runs: Sequence[RunSummary]) -> tuple[Trend, ...]:
    recent = runs[:TREND]
    decided = [run for run in recent if run.decided]
    kinds = sorted({kind for run in recent for kind in run.findings})
    trends = []
    for kind in kinds:
        has, had = (kind in run.findings for run in [*decided, *decided[-1:]][:2])
        counts = tuple(run.findings.get(kind, 0) if run.decided else None for run in reversed(recent))
        trends.append(Trend(kind, _standing(has, had and len(decided) > 1), counts))
    return tuple(
        sorted(trends, key=lambda trend: (["new", "again", "gone"].index(trend.standing), trend.kind))
    )


def _directories(root: Path) -> Iterator[Path]:
    """Find the runs below a store; links to them are left out."""
    for test in _below(root):
        for run in _below(test):
            if stores.is_store(run):
                yield run


def _below(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # it was removed just now
        return []


def _earlier(root: Path) -> tuple[RunSummary, ...]:
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        index = msgspec.json.decode((root / INDEX).read_bytes(), type=Index)
        if index.version == VERSION:
            return index.runs
    return ()


def _summary(root: Path, directory: Path, earlier: RunSummary | None) -> RunSummary:
    judged_ns = 0
    with contextlib.suppress(OSError):
        judged_ns = (directory / stores.FINDINGS).stat().st_mtime_ns
    if earlier is not None and judged_ns and earlier.judged_ns == judged_ns:
        return earlier
    relative = str(directory.relative_to(root))
    try:
        spec, record = stores.load_spec(directory), stores.load_run(directory)
    except UsageError:
        return RunSummary(
            directory=relative, test=directory.parent.name, started=_began(relative), again="", system="",
            policy="", workload="", environment="", seed=0, verdict=DAMAGED,
        )  # fmt: skip
    verdict = _verdict(directory) if judged_ns else None
    reviewed = None
    with contextlib.suppress(msgspec.MsgspecError, OSError):
        reviewed = known.stored_review(directory)
    return RunSummary(
        directory=relative,
        test=spec.name,
        started=record.started,
        again=record.again,
        system=spec.system,
        policy=spec.policy,
        workload=spec.workload,
        environment=record.environment or spec.environment,
        seed=spec.seed,
        verdict=_state(record) if verdict is None else judging.verdict_word(verdict.valid),
        known=reviewed is not None and reviewed.known,
        duration_s=verdict.statistics.duration_s if verdict is not None else 0.0,
        rows=verdict.statistics.rows if verdict is not None else 0,
        findings=_counts(verdict, grave=True),
        warnings=_counts(verdict, grave=False),
        judged_ns=judged_ns,
    )


def _verdict(directory: Path) -> _Verdict | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode((directory / stores.FINDINGS).read_bytes(), type=_Verdict)
    return None


def _counts(verdict: _Verdict | None, *, grave: bool) -> dict[str, int]:
    findings = () if verdict is None else verdict.findings
    return {finding.name: finding.count for finding in findings if (finding.severity == "grave") == grave}


def _state(record: stores.RunRecord) -> str:
    """Return what became of a run that has no verdict."""
    if record.state == "running":
        return "running" if record.alive() else "killed"
    return "interrupted" if record.state == "interrupted" else "not judged"


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; several runs may write it at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
