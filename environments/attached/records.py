"""Records of what is in force on attached clusters, for `jepsen-run clean`.

If all processes of a run were killed, ``clean`` undoes what its record names. There is one file for
each run, ``<state root>/attached/<run>.json``, written by its harness and its agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.attached.hooks import run
from environments.labels import LEFT, Process, identify, in_use, state_root

PATIENCE_S: Final = 60.0


class Record(msgspec.Struct, kw_only=True):
    """The process that is responsible, the cluster, and the lines that undo what is in force."""

    process: Process
    cluster: dict[str, Any]
    undo: list[str] = []


def create(name: str, cluster: Mapping[str, Any]) -> Path:
    """Make the record of a run that begins, and return its path."""
    path = _root() / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    me = identify()
    assert me is not None, "this process runs"
    _save(path, Record(process=me, cluster=dict(cluster)))
    return path


def cluster_of(path: Path) -> Mapping[str, Any] | None:
    """Return the cluster of a record; None if the record cannot be read."""
    record = _load(path)
    return None if record is None else record.cluster


def write(path: Path, lines: Sequence[str]) -> None:
    """Record the lines that undo all that is in force now, and this process as responsible."""
    record, me = _load(path), identify()
    if record is not None and me is not None:
        record.process, record.undo = me, list(lines)
        _save(path, record)


def remove_if_empty(path: Path) -> None:
    """Remove the record of a run that left nothing in force."""
    record = _load(path)
    if record is None or not record.undo:
        path.unlink(missing_ok=True)


def leftovers(*, force: bool = False) -> list[str]:
    """Return a line for each undo that no process is responsible for, and notes on the others."""
    return [
        note or f"attached run {path.stem}: {line}"
        for path, record, note in _records(force=force)
        for line in ([note] if note else record.undo)
    ]


def remove(*, force: bool = False) -> list[str]:
    """Run what ``leftovers`` lists. An undo that fails stays, with a line to type."""
    said = []
    for path, record, note in _records(force=force):
        if note:
            said.append(note)
            continue
        failed = []
        for line in record.undo:
            status, words = asyncio.run(run(line, PATIENCE_S))
            if status == 0:
                said.append(f"attached run {path.stem}: ran {line}")
            else:
                failed.append(line)
                said.append(f"{LEFT}attached run {path.stem}: NOT UNDONE, type: {line} ({status}: {words})")
        record.undo = failed
        _save(path, record)
        remove_if_empty(path)
    return said


def _records(*, force: bool) -> Iterator[tuple[Path, Record, str]]:
    for path in sorted(_root().glob("*.json")):
        record = _load(path)
        if record is not None:
            yield path, record, in_use(f"attached run {path.stem}", record.process, force=force)


def _root() -> Path:
    return state_root() / "attached"


def _load(path: Path) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def _save(path: Path, record: Record) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.replace(path)
