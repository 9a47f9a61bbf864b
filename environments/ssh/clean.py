"""Removal of what killed runs left on machines that are reached over ssh.

A record in the state directory of the user who started a run says on which machines it is. A
machine must still show a host key that is in the ``known_hosts`` of that run.
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
    """The hosts of one run, and the harness that uses them; each host has one of ``nodes``."""

    run: str
    harness: Process
    known_hosts: str
    hosts: list[HostConfig]
    nodes: list[str]

    @property
    def places(self) -> str:
        """The nodes, each with the name of its host."""
        return ", ".join(f"{node} on {host.name}" for node, host in zip(self.nodes, self.hosts, strict=True))


def record(run: str, known_hosts: Path, hosts: Sequence[HostConfig], nodes: Sequence[str]) -> None:
    """Write down on which hosts a run will be, before the run puts anything there."""
    harness = identify()
    assert harness is not None, "this process runs"
    found = HostsInUse(run, harness, str(known_hosts.resolve()), list(hosts), list(nodes))
    try:
        _path(run).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _path(run).write_bytes(msgspec.json.encode(found))
    except OSError as error:
        raise InfrastructureError(f"cannot write {error.filename}: {error.strerror}") from error


def leftovers(*, force: bool = False) -> list[str]:
    """Return a line for each recorded run whose harness is gone, and notes on runs in use."""
    return [note or f"ssh run {found.run}: nodes {found.places}" for found, note in _runs(force=force)]


def remove(*, force: bool = False) -> list[str]:
    """Remove what `leftovers` lists, and return a line for each run.

    If a machine of a run cannot be reached, the run stays recorded, and a line names that machine.
    """
    lines = []
    for found, note in _runs(force=force):
        done, problems = ([], []) if note else end_run(found.run, program=True)
        removed = f"ssh run {found.run}: removed {', '.join(done)}" if done else ""
        lines += [note, removed, *(f"{LEFT}ssh run {found.run}: {problem}" for problem in problems)]
    return list(filter(None, lines))


def end_run(run: str, *, program: bool = False) -> tuple[list[str], list[str]]:
    """Remove everything of a run from its machines, then the record of the run.

    Returns what was removed, and what could not be, with what to do about it: a machine that cannot
    be reached does not keep the others from being cleaned. With ``program``, our program is
    removed, too, from machines where no other run uses it. Without, the next run finds it there.
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
    """Yield the recorded runs, each with a note if it is to be left alone, else with ""."""
    for path in sorted(_path("").parent.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found = msgspec.json.decode(path.read_bytes(), type=HostsInUse)
            yield found, in_use(f"ssh run {found.run}", found.harness, force=force)


def _path(run: str) -> Path:
    return state_root() / "ssh" / f"{run}.json"
