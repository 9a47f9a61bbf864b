"""Removes what killed runs left on machines over ssh.

A record in its user's state directory says where each run is; the keys must be those of the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from environments.labels import LEFT, Process, identify, in_use, state_root
from environments.machines.remote import RemoteMachine
from environments.ssh.host import SshHost
from environments.ssh.hosts import HostConfig
from harness.interface import InfrastructureError


class HostsInUse(msgspec.Struct, frozen=True):
    """Whose run it is, and where: one node on each host, in the same order."""

    run: str
    harness: Process
    known_hosts: str
    hosts: list[HostConfig]
    nodes: list[str]

    @property
    def places(self) -> str:
        """Each node, and where it is."""
        return ", ".join(f"{node} on {host.name}" for node, host in zip(self.nodes, self.hosts, strict=True))


def record(run: str, known_hosts: Path, hosts: Sequence[HostConfig], nodes: Sequence[str]) -> None:
    """Write down where a run will be, before anything of it is there."""
    harness = identify()
    assert harness is not None, "this process runs"
    found = HostsInUse(run, harness, str(known_hosts.resolve()), list(hosts), list(nodes))
    try:
        _path(run).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _path(run).write_bytes(msgspec.json.encode(found))
    except OSError as error:
        raise InfrastructureError(f"cannot write {error.filename}: {error.strerror}") from error


def leftovers(*, force: bool = False) -> list[str]:
    """One line for each recorded run that nobody uses any more, notes for those in use."""
    return [note or f"ssh run {found.run}: nodes {found.places}" for found, note in _runs(force=force)]


def remove(*, force: bool = False) -> list[str]:
    """Remove what `leftovers` lists.

    A run of which a machine cannot be reached stays recorded; each such machine has a line.
    """
    lines = []
    for found, note in _runs(force=force):
        done, problems = ([], []) if note else end_run(found.run, program=True)
        removed = f"ssh run {found.run}: removed {', '.join(done)}" if done else ""
        lines += [note, removed, *(f"{LEFT}ssh run {found.run}: {problem}" for problem in problems)]
    return list(filter(None, lines))


def end_run(run: str, *, program: bool = False) -> tuple[list[str], list[str]]:
    """Remove everything of a run from its machines, then its record.

    What was removed, and what stayed, with what to do about it: one machine does not keep the
    rest. With ``program`` our program too, where no other run uses it; else the next run finds it.
    """
    found = next((found for found, _ in _runs(force=True) if found.run == run), None)
    if found is None:
        return [], []
    done, problems = list[str](), list[str]()

    def end(config: HostConfig, node: str) -> None:
        with contextlib.closing(SshHost(config, Path(found.known_hosts))) as host:
            try:
                said = RemoteMachine(host, config.python, run, node).remove(program=program)
            except InfrastructureError as error:
                problems.append(str(error))
            else:
                done.append(f"{node} from {host.name} ({'; '.join(said) or 'nothing was there'})")

    with ThreadPoolExecutor() as threads:
        list(threads.map(end, found.hosts, found.nodes))
    if problems:
        problems.append(f"`jepsen-run clean` tries again, until {_path(run)} is removed")
    else:
        _path(run).unlink(missing_ok=True)
    return done, problems


def _runs(*, force: bool) -> Iterator[tuple[HostsInUse, str]]:
    """The recorded runs, each with the note on it if it is left alone."""
    for path in sorted(_path("").parent.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found = msgspec.json.decode(path.read_bytes(), type=HostsInUse)
            yield found, in_use(f"ssh run {found.run}", found.harness, force=force)


def _path(run: str) -> Path:
    return state_root() / "ssh" / f"{run}.json"
