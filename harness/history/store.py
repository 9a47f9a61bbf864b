"""The store: one directory for each test that ran, ``store/<test>/<time>/``, and its files.

Why directories with fixed names: everything that is needed to judge, repeat or report a test is in
one place. It can be copied, attached to a ticket and given back to ``jepsen-run check``.

    spec.json       the test as it was requested
    schedule.json   the faults as they were planned
    run.json        how far the run got, versions
    history/        what happened (history.arrows while it runs)
    findings.json   the verdict
    logs/           the logs of every broker, and harness.log
    repro.json      everything that reproduces a finding
    report.html, junit.xml
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from environments.labels import Process, identify, judge
from harness.history import spec as specs
from harness.interface import InfrastructureError, Schedule, TestSpec, UsageError
from harness.interface.texts import json_value

SPEC: Final = "spec.json"
SCHEDULE: Final = "schedule.json"
RUN: Final = "run.json"
FINDINGS: Final = "findings.json"
LOGS: Final = "logs"
HISTORY: Final = "history"
STREAM: Final = "history.arrows"
"""The history while its Parquet files are not complete."""
REPORT: Final = "report.html"
OVERVIEW: Final = "index.html"
"""The page of all runs, in the store itself."""
SWEEP_TABLE: Final = "table.json"
SWEEP_PAGE: Final = "table.html"
"""The result of a sweep, in its directory: for programs, and as a page."""
DEFAULT: Final = Path("store")
LATEST: Final = "latest"
"""The link to the run that began last, of a test and of all tests."""

_NAME_BYTES: Final = 200

T = TypeVar("T")


RunState = Literal["running", "ended", "interrupted", "failed"]


class RunRecord(msgspec.Struct, kw_only=True, rename="kebab"):
    """The record of how a run went, apart from its history: ``run.json``.

    It is rewritten as the run goes on. ``state`` is "running" until the run ends by itself: a
    directory that still says so after its process is gone was killed. ``furnishings`` are the
    auxiliary services that brokers were given besides machines and links, and what was really
    deployed. ``warnings`` are the lines that were printed before the test. ``again`` is the line
    that runs it again. ``zero`` is the wall clock at the history's time 0 (ISO 8601), by which log
    lines are placed next to rows. ``trouble`` is why the machine, not the broker, spoiled the run;
    the verdict is then unknown for this reason first.
    """

    schema_version: Literal[1] = 1
    """The version of the JSON schema; it grows if readers of the file must change."""
    state: RunState = "running"
    trouble: str | None = None
    environment: str = ""
    environment_reason: str = ""
    furnishings: dict[str, str] = msgspec.field(default_factory=dict)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    started: str = ""
    again: str = ""
    zero: str = ""
    process: Process | None = None

    def release(self, spec: TestSpec) -> str:
        """Return the release of the brokers; "" if it is not known."""
        return self.versions.get(spec.system, "")

    def alive(self) -> bool:
        """Return whether the process that runs the test exists, or may (on another machine)."""
        return self.process is not None and judge(self.process) != "dead"


def new_record() -> RunRecord:
    """Return the record of a run by this process that begins now."""
    return RunRecord(
        process=identify(), started=datetime.now().astimezone().isoformat(timespec="milliseconds")
    )


def create(root: Path, test: str, now: datetime | None = None) -> Path:
    """Make an empty directory for a run of ``test`` that begins now; point ``latest`` to it."""
    moment = (now or datetime.now().astimezone()).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    parent = root / directory_name(test)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        store = _unused(parent, moment)
        (store / LOGS).mkdir()
    except OSError as error:
        raise InfrastructureError(f"cannot make a directory for the results in {parent}: {error}") from error
    for link, target in ((parent / LATEST, store.name), (root / LATEST, f"{parent.name}/{store.name}")):
        _point(link, target)
    return store


def directory_name(test: str) -> str:
    """Return ``test`` as the name of a directory.

    File systems accept the name, and it is never that of the link ``latest``.
    """
    name = re.sub(r"[^\w.+-]+", "-", test).encode()[:_NAME_BYTES].decode(errors="ignore").strip("-.")
    return f"{name}-test" if name == LATEST else name or "test"


def _unused(parent: Path, moment: str) -> Path:
    for number in range(1000):
        store = parent / (moment if number == 0 else f"{moment}-{number}")
        with contextlib.suppress(FileExistsError):
            store.mkdir()
            return store
    raise FileExistsError(parent / moment)


def _point(link: Path, target: str) -> None:
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(link)
    except OSError:  # a file system without links is no reason to end a test
        temporary.unlink(missing_ok=True)


def is_store(path: Path) -> bool:
    """Return whether ``path`` looks like one run's directory."""
    return (path / STREAM).is_file() or (path / HISTORY).is_dir() or (path / SPEC).is_file()


def has_history(store: Path) -> bool:
    """Return whether there is a history to judge, complete or cut off."""
    return (store / STREAM).is_file() or (store / HISTORY).is_dir()


def root_of(run: Path) -> Path | None:
    """Return the store in which a run's directory lies; None for a directory that was copied."""
    root = run.resolve().parent.parent
    return root if (root / LATEST).is_symlink() else None


def find(path: Path) -> list[Path]:
    """Return the runs that a person means by ``path``.

    That is a run's directory, or a directory of runs at any depth (oldest first).

    Raises UsageError if there is no run.
    """
    try:
        path.stat()  # exists() is false for whatever is wrong, since Python 3.14
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{path} does not exist: give the directory of a run, for example store/latest"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if path.is_file():
        if path.name == STREAM or path.suffix == ".json":
            return find(path.parent)
        raise UsageError(f"{path} is not a history: give the directory of a run, for example store/latest")
    if is_store(path):
        return [path.resolve() if path.is_symlink() else path]  # "latest" may point elsewhere tomorrow
    runs: list[Path] = []
    for directory, names, _ in os.walk(path):  # does not follow links: "latest" is not judged twice
        names.sort()
        if is_store(Path(directory)):
            runs.append(Path(directory))
            names.clear()
    if not runs:
        raise UsageError(
            f"{path} has no history in it: give the directory of a run, for example store/latest"
        )
    return sorted(runs, key=lambda run: (run.name, str(run)))


def is_named(run: Path, path: Path) -> bool:
    """Return whether ``path`` is a run's own directory or a file in it, not one of several runs."""
    named = path.resolve()
    return run.resolve() in (named, named.parent)


def save(store: Path, name: str, value: Any) -> Path:
    """Write ``value`` as indented JSON, whole or not at all."""
    path = store / name
    temporary = store / f".{name}.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2) + b"\n")
    temporary.replace(path)
    return path


def as_json(value: Any) -> str:
    """Return ``value`` as the one JSON document that a command prints for a program."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def load_spec(store: Path) -> TestSpec:
    """Return the spec that a run was made from; raise UsageError if the file cannot be used."""
    spec = _load(store / SPEC, TestSpec)
    try:
        specs.validate(spec)
    except UsageError as error:
        raise UsageError(f"{store / SPEC}: {error}") from None
    return spec


def load_schedule(store: Path) -> Schedule | None:
    """Return the planned faults of a run; None if the run never came to that."""
    return _load(store / SCHEDULE, Schedule) if (store / SCHEDULE).is_file() else None


def load_run(store: Path) -> RunRecord:
    """Return how a run went; a run without the file has no record of trouble."""
    return _load(store / RUN, RunRecord) if (store / RUN).is_file() else RunRecord(state="ended")


def _load(path: Path, type_: type[T]) -> T:
    try:
        return json_value(path.read_bytes(), type_)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing: {path.parent} is not the directory of a run") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
