"""Removes what killed runs left on machines over ssh.

Each run has a record in the state directory of the user who started it: which machines, and which
nodes there. With it ``jepsen-run clean`` finds them again; it needs the same keys as the run did.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from environments.labels import NOTE, Process, identify, judge, state_root
from environments.ssh.host import SshHost
from environments.ssh.hosts import HostConfig
from environments.ssh.machine import SshMachine
from harness.interface import InfrastructureError

_AT_ONCE: Final = 8
_SWEEP: Final = 'cd "$1" 2>/dev/null || exit 0; ls -d jepsen-run-* >/dev/null 2>&1 || rm -rf -- "$1"'
"""Removes our program too, once no run of anybody's is there."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
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
    found = RunRecord(
        run=run, harness=harness, known_hosts=str(known_hosts.resolve()), hosts=list(hosts), nodes=list(nodes)
    )
    try:
        _root().mkdir(parents=True, exist_ok=True, mode=0o700)
        _path(run).write_bytes(msgspec.json.encode(found))
    except OSError as error:
        raise InfrastructureError(f"cannot write {error.filename}: {error.strerror}") from error


def leftovers(*, force: bool = False) -> list[str]:
    """One line for each recorded run that nobody uses any more, notes for those in use."""
    return [
        note or f"ssh run {found.run}: nodes {', '.join(_places(found))}"
        for found, note in _survey(force=force)
    ]


def remove(*, force: bool = False) -> list[str]:
    """Remove what `leftovers` lists.

    A machine that cannot be reached stays recorded, and is named.
    """
    lines = []
    for found, note in _survey(force=force):
        try:
            lines.append(
                note or f"ssh run {found.run}: removed {', '.join(end_run(found.run, program=True))}"
            )
        except InfrastructureError as error:
            lines.append(f"{NOTE}ssh run {found.run}: {error}")
    return lines


def end_run(run: str, *, program: bool = False) -> list[str]:
    """Remove everything of a run from its machines, then its record; what was removed.

    With ``program`` our program too, where no other run uses it; else the next run finds it. Goes
    on after a failure, so that one machine does not keep the rest. Raises InfrastructureError
    naming each that stayed.
    """
    found = _read(_path(run))
    if found is None:
        return []
    done: list[str] = []
    problems: list[str] = []

    def end(config: HostConfig, node: str) -> None:
        host = SshHost(config, Path(found.known_hosts))
        try:
            said = SshMachine(host, run, node, "", 0).remove()
            if program:
                host.run(("sh", "-c", _SWEEP, "sh", config.directory))
            done.append(f"{node} from {host.name} ({'; '.join(said) or 'nothing was there'})")
        except InfrastructureError as error:
            problems.append(str(error))
        finally:
            host.close()

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        list(threads.map(end, found.hosts, found.nodes))
    if problems:
        raise InfrastructureError(
            f"{'; '.join(problems)}; `jepsen-run clean` tries again, until {_path(run)} is removed"
        )
    _path(run).unlink(missing_ok=True)
    return done


def _survey(*, force: bool) -> list[tuple[RunRecord, str]]:
    found = []
    for path in sorted(_root().glob("*.json")):
        one = _read(path)
        if one is None:
            continue
        standing = judge(one.harness)
        note = ""
        if standing != "dead" and not force:
            whose = f"of a running harness, pid {one.harness.pid}" if standing == "alive" else (
                f"made on {one.harness.host} in another pid namespace, where it may still run"
            )  # fmt: skip
            note = f"{NOTE}ssh run {one.run}: left alone, {whose} (--force removes it)"
        found.append((one, note))
    return found


def _places(found: RunRecord) -> list[str]:
    return [f"{node} on {config.name}" for node, config in zip(found.nodes, found.hosts, strict=True)]


def _root() -> Path:
    return state_root() / "ssh"


def _path(run: str) -> Path:
    return _root() / f"{run}.json"


def _read(path: Path) -> RunRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (OSError, msgspec.DecodeError):
        return None
