"""Removes what killed runs left on machines over ssh.

Each run has a record in the state directory of the user who started it: which machines, and which
nodes there. With it ``jepsen-run clean`` finds them again; it needs the same keys as the run did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from environments.labels import NOTE, Process, identify, in_use, state_root
from environments.machines.remote import RemoteMachine
from environments.ssh.host import SshHost
from environments.ssh.hosts import HostConfig
from harness.interface import InfrastructureError

_AT_ONCE: Final = 8


class HostsInUse(msgspec.Struct, frozen=True, kw_only=True):
    """Whose run it is, and where: one node on each host, in the same order."""

    run: str
    harness: Process
    known_hosts: str
    hosts: list[HostConfig]
    nodes: list[str]


def record(run: str, known_hosts: Path, hosts: Sequence[HostConfig], nodes: Sequence[str]) -> None:
    """Write down where a run will be, before anything of it is there."""
    harness = identify()
    assert harness is not None, "this process runs"
    known = str(known_hosts.resolve())
    found = HostsInUse(run=run, harness=harness, known_hosts=known, hosts=list(hosts), nodes=list(nodes))
    try:
        _path(run).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _path(run).write_bytes(msgspec.json.encode(found))
    except OSError as error:
        raise InfrastructureError(f"cannot write {error.filename}: {error.strerror}") from error


def leftovers(*, force: bool = False) -> list[str]:
    """One line for each recorded run that nobody uses any more, notes for those in use."""
    lines = []
    for found, note in _survey(force=force):
        places = [f"{node} on {host.name}" for node, host in zip(found.nodes, found.hosts, strict=True)]
        lines.append(note or f"ssh run {found.run}: nodes {', '.join(places)}")
    return lines


def remove(*, force: bool = False) -> list[str]:
    """Remove what `leftovers` lists.

    A run of which a machine cannot be reached stays recorded; each such machine has a note.
    """
    lines = []
    for found, note in _survey(force=force):
        what = f"ssh run {found.run}"
        done, problems = ([], []) if note else end_run(found.run, program=True)
        lines += [note] if note else [f"{what}: removed {', '.join(done)}"] if done else []
        lines += [f"{NOTE}{what}: {problem}" for problem in problems]
        if problems:
            lines.append(f"{NOTE}{what}: {again(found.run)}")
    return lines


def again(run: str) -> str:
    """What to do about a run that could not be removed."""
    return f"`jepsen-run clean` tries again, until {_path(run)} is removed"


def end_run(run: str, *, program: bool = False) -> tuple[list[str], list[str]]:
    """Remove everything of a run from its machines, then its record.

    What was removed, and why something stayed: one machine does not keep the rest. With
    ``program`` our program too, where no other run uses it; else the next run finds it.
    """
    found = _read(_path(run))
    if found is None:
        return [], []
    done: list[str] = []
    problems: list[str] = []

    def end(config: HostConfig, node: str) -> None:
        host = SshHost(config, Path(found.known_hosts))
        try:
            said = RemoteMachine(host, config.python, run, node).remove(program=program)
            done.append(f"{node} from {host.name} ({'; '.join(said) or 'nothing was there'})")
        except InfrastructureError as error:
            problems.append(str(error))
        finally:
            host.close()

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        list(threads.map(end, found.hosts, found.nodes))
    if not problems:
        _path(run).unlink(missing_ok=True)
    return done, problems


def _survey(*, force: bool) -> Iterator[tuple[HostsInUse, str]]:
    """The recorded runs, each with a note if it is left alone."""
    for path in sorted(_path("").parent.glob("*.json")):
        if found := _read(path):
            yield found, in_use(f"ssh run {found.run}", found.harness, force=force)


def _path(run: str) -> Path:
    return state_root() / "ssh" / f"{run}.json"


def _read(path: Path) -> HostsInUse | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=HostsInUse)
    except (OSError, msgspec.DecodeError):
        return None
