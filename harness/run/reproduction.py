"""The file ``repro.json``: everything that reproduces a finding, in one file that can be mailed.

Why one file: a finding that nobody else can see is an opinion. The spec and the schedule decide a
simulated run byte for byte, so the digest of its history says whether the same thing happened
again. Another version of the program, or real time, gives another history: there the names of the
findings say so. The witness is for the reader who has no time to run anything.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from checkers.anomaly import rank
from harness import __version__
from harness.history import spec as specs
from harness.history import store as stores
from harness.history.rows import MemoryRecorder
from harness.interface import InfrastructureError, Schedule, TestSpec, UsageError, program
from harness.interface.texts import json_value
from harness.report import files
from harness.systems import registry as systems

if TYPE_CHECKING:
    from checkers.instance import Instance
    from checkers.verdict import Finding
    from harness.run.simulate import Simulated

FILE: Final = "repro.json"
FORMAT: Final = 1
WITNESS_ROWS: Final = 8
"""The maximum number of rows of a history that one witness shows."""


class KeptWitness(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """An instance of a finding: what it concerns, and the rows of the history that prove it."""

    name: str
    queue: str | None = None
    group: str | None = None
    message: int | None = None
    key: str | None = None
    sentence: str = ""
    rows: tuple[dict[str, Any], ...] = ()


class Reproduction(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A finding and everything that is needed to see it again.

    ``seed`` is the spec's, repeated where a reader looks for it. ``findings`` are the names of the
    findings that broke the guarantee, the cause first. ``digest`` is the digest of the history if
    time is virtual, else empty. ``origin`` says where the reproduction came from.
    """

    format: int = FORMAT
    versions: dict[str, str]
    environment: str
    seed: int
    findings: tuple[str, ...]
    spec: TestSpec
    schedule: Schedule
    digest: str = ""
    origin: str = ""
    witness: tuple[KeptWitness, ...] = ()

    @property
    def exact(self) -> bool:
        """True if the history can be reproduced byte for byte."""
        return bool(self.digest)


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of findings, causes before their usual consequences.

    For example, two live brokers cause a double delivery, hardly the other way round.
    """
    return tuple(sorted(names, key=rank))


def of_simulated(run: Simulated, origin: str = "") -> Reproduction:
    """Return the reproduction of an invalid run of ``simulate``."""
    return msgspec.structs.replace(
        of_found(run.spec, run.schedule, run.grave, origin),
        digest=run.digest,
        witness=tuple(_witness(name, run.findings, run.rows) for name in ordered(run.grave)),
    )


def of_found(spec: TestSpec, schedule: Schedule, grave: Iterable[str], origin: str = "") -> Reproduction:
    """Return the reproduction of an invalid simulated run that no longer exists.

    Only its spec, schedule and findings are left. It reproduces the finding, but has no digest to
    compare every row with.
    """
    return Reproduction(
        versions=versions(),
        environment="simulation",
        seed=spec.seed,
        findings=ordered(grave),
        spec=spec,
        schedule=schedule,
        origin=origin,
    )


def of_run(
    spec: TestSpec, schedule: Schedule, findings: Sequence[Finding], *, environment: str, digest: str
) -> Reproduction:
    """Return the reproduction of a run that the checkers judged invalid.

    ``environment`` is the one in which the run took place, whatever the spec left open.
    """
    grave = {finding.name: finding for finding in findings if finding.severity == "grave"}
    return Reproduction(
        versions=versions(),
        environment=environment,
        seed=spec.seed,
        findings=ordered(grave),
        spec=msgspec.structs.replace(spec, environment=environment),
        schedule=schedule,
        digest=digest,
        witness=tuple(
            KeptWitness(
                name=name,
                sentence=grave[name].sentence,
                rows=tuple(_short(row) for row in grave[name].witness.rows[:WITNESS_ROWS]),
            )
            for name in ordered(grave)
        ),
    )


def keep(store: Path, run: Simulated, origin: str = "") -> Path:
    """Write a simulated run into ``store`` as if it had been run by itself.

    The directory gets the run's verdict, its reports and its reproduction.

    Raises InfrastructureError if there is no space.
    """
    recorder = MemoryRecorder(lambda: 0)
    recorder.rows.extend(run.recorded)
    record = stores.new_record()
    record.state, record.trouble, record.environment = "ended", run.trouble, "simulation"
    record.versions = versions()
    record.again = line(store / FILE)
    try:
        stores.save(store, stores.SPEC, run.spec)
        stores.save(store, stores.SCHEDULE, run.schedule)
        stores.save(store, stores.RUN, record)
        for node, lines in run.logs.items():
            (store / stores.LOGS / node).mkdir(parents=True, exist_ok=True)
            (store / stores.LOGS / node / "broker.log").write_text("".join(f"{text}\n" for text in lines))
        recorder.store(store)
        path = stores.save(store, FILE, of_simulated(run, origin))
    except OSError as error:
        raise InfrastructureError(f"cannot write the run into {store}: {error}") from error
    files.judge_and_write(store)
    return path


def load(path: Path) -> Reproduction:
    """Read a reproduction from a file, or from the directory of a run.

    In a directory that is its ``repro.json``; if there is none, its spec, schedule and verdict.

    Raises UsageError that names the file, and the place in it, if it is not a reproduction.
    """
    if path.is_dir():
        if (path / FILE).is_file():
            return load(path / FILE)
        return _of_store(path)
    try:
        read = json_value(path.read_bytes(), Reproduction)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is no reproduction: {error}; expected a repro.json or the directory of a run"
        ) from None
    if read.format != FORMAT:
        raise UsageError(f"{path} has format {read.format}: this version reads {FORMAT}")
    try:
        specs.validate(read.spec)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return read


def line(path: Path) -> str:
    """Return the command that runs the reproduction again."""
    return program.command("replay", str(path))


def versions() -> dict[str, str]:
    """Return the versions that decide whether equal seeds give equal histories."""
    return {"jepsen-run": __version__, "python": platform.python_version()}


def _of_store(path: Path) -> Reproduction:
    """Return the reproduction of a stored run that has no ``repro.json``.

    Such a run ended valid, or an earlier version stored it.
    """
    store = stores.find(path)[0] if stores.is_store(path) else path
    spec = stores.load_spec(store)
    record = stores.load_run(store)
    if spec.imported is not None:
        systems.of(spec)  # raises UsageError: an imported run cannot be repeated
    schedule = stores.load_schedule(store)
    if schedule is None:
        raise UsageError(f"{store / stores.SCHEDULE} is missing: there are no faults to repeat")
    environment = record.environment or spec.environment
    return Reproduction(
        versions=dict(record.versions),
        environment=environment,
        seed=spec.seed,
        findings=_grave_findings(store),
        spec=msgspec.structs.replace(spec, environment=environment),
        schedule=schedule,
        origin=str(store),
    )


def _grave_findings(store: Path) -> tuple[str, ...]:
    """Return the names of the grave findings in a stored verdict; none if there is no verdict."""
    try:
        verdict = msgspec.json.decode((store / stores.FINDINGS).read_bytes())
        return ordered(finding["name"] for finding in verdict["findings"] if finding["severity"] == "grave")
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{store / stores.FINDINGS} is no verdict: {error}") from None


def _witness(name: str, findings: Sequence[Instance], rows: Sequence[Mapping[str, Any]]) -> KeptWitness:
    """Return the earliest instance of a finding, with the rows of the message that it concerns.

    If it concerns no message, the witness has only the row that completes the instance.
    """
    earliest = min(
        (instance for instance in findings if instance.name == name), key=lambda instance: instance.index
    )
    about = [earliest.index]
    if earliest.message is not None:
        place = (earliest.queue, earliest.group, earliest.message)
        about += [row["index"] for row in rows if (row["queue"], row["group"], row["message"]) == place]
    indexes = sorted(set(sorted(set(about) - {earliest.index})[: WITNESS_ROWS - 1]) | {earliest.index})
    return KeptWitness(
        name=name,
        queue=earliest.queue,
        group=earliest.group,
        message=earliest.message,
        key=earliest.key,
        rows=tuple(_short(rows[index]) for index in indexes),
    )


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without its empty columns."""
    return {column: value for column, value in row.items() if value is not None}
