"""Removal of what killed local runs left behind.

These are agents, brokers (stopped ones, too), state and data directories.

It works from the outside only: no agent needs to answer. Processes are found in two ways, by the
identities in the state files and by the label in their environment, because either may be missing
(killed before writing; an overwritten environment).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

from environments import scratch
from environments.labels import LEFT, RUN_ID, STATE_DIR, Process, identify, in_use, judge
from environments.local import state
from filesystems.fuse import device as fuse_device
from harness.interface import InfrastructureError

END_PATIENCE_S: Final = 10.0
"""The patience after SIGKILL.

A process is gone in milliseconds; only a process that is stuck in the kernel takes longer.
"""


def leftovers(*, force: bool = False) -> list[str]:
    """Return a line for each thing that is left of local deployments.

    It has a line for each deployment whose harness is gone, and for each process that lost its
    deployment.
    """
    return _survey(force=force, remove=False)


def remove(*, force: bool = False) -> list[str]:
    """End and remove what `leftovers` lists; a failure is `LEFT`, and does not stop the rest.

    Broker logs stay: they are the evidence of the interrupted run.
    """
    return _survey(force=force, remove=True)


def end_deployment(directory: Path, *, keep_logs: bool) -> list[str]:
    """End all processes of one deployment and remove its directories.

    Returns what was done, in short phrases.

    Raises InfrastructureError, which names a process that SIGKILL does not end.
    """
    agent = state.read(directory, state.AgentState)
    done = _end_processes(_processes_of(directory))
    if agent is not None and agent.scratch and scratch.belongs(Path(agent.scratch)):
        shutil.rmtree(agent.scratch)
        done.append(f"database {agent.scratch}")
    harness = state.read(directory, state.HarnessState)
    if harness is not None:
        done += _remove_nodes(Path(harness.directory) / "nodes", harness.run_id, keep_logs=keep_logs)
    if directory.exists():
        shutil.rmtree(directory)
        done.append(f"state {directory}")
    return done


def _survey(*, force: bool, remove: bool) -> list[str]:
    lines: list[str] = []
    root = state.local_root()
    directories = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    for directory in directories:
        harness = state.read(directory, state.HarnessState)
        whose = None if harness is None else harness.harness
        if note := in_use(f"local run {directory.name}", whose, force=force):
            lines.append(note)
        elif remove:
            try:
                removed = ", ".join(end_deployment(directory, keep_logs=True))
            except (InfrastructureError, OSError) as error:
                lines.append(f"{LEFT}local run {directory.name}, state {directory}: {error}")
            else:
                lines.append(f"local run {directory.name}: removed {removed}")
        else:
            found = [_describe(process) for process in _processes_of(directory)]
            lines.append(f"local run {directory.name}: " + ", ".join([*found, f"state {directory}"]))
    strays = _strays(root)
    if strays and remove:
        try:
            ended = _end_processes(strays)
        except InfrastructureError as error:
            lines.append(f"{LEFT}local: {error}")
        else:
            lines += [f"local: ended {phrase}, whose state directory is gone" for phrase in ended]
    else:
        lines += [f"local: {_describe(process)}, whose state directory is gone" for process in strays]
    return lines


def _others() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Yield the running processes other than this one, each with its environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # gone meanwhile, or another user's
            if process.pid != os.getpid() and identify(process.pid):
                yield process, process.environ()


def _processes_of(directory: Path) -> list[psutil.Process]:
    """Return all processes of one deployment, its agent first.

    The agent comes first, so that it cannot start a broker while others are being ended.
    """
    found = {process.pid: process for process, known in _others() if known.get(STATE_DIR) == str(directory)}
    agent = state.read(directory, state.AgentState)
    recorded: Iterable[Process] = (agent.agent, *agent.brokers.values()) if agent is not None else ()
    for known in recorded:
        if judge(known) == "alive":
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(known.pid)
                # The children of a database server write their titles over their environment, which
                # would tell that they belong to the deployment.
                for one in (process, *process.children(recursive=True)):
                    found.setdefault(one.pid, one)
    first = agent.agent.pid if agent is not None else None
    return sorted(found.values(), key=lambda process: (process.pid != first, process.pid))


def _strays(root: Path) -> list[psutil.Process]:
    """Return the processes that name a state directory of ours which does not exist any more."""
    return [
        process
        for process, variables in _others()
        if RUN_ID in variables
        and (home := Path(variables.get(STATE_DIR, ""))).parent == root
        and not home.exists()
    ]


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        stopped = " (stopped)" if process.status() == psutil.STATUS_STOPPED else ""
        return f"process {process.pid} {' '.join(process.cmdline()[:4])}{stopped}"
    return f"process {process.pid}"


def _end_processes(processes: list[psutil.Process]) -> list[str]:
    """Send SIGKILL, and wait for the end without reaping.

    A child's status belongs to its parent.
    """
    done = []
    waiting: dict[int, psutil.Process] = {}
    poller = select.poll()
    with contextlib.ExitStack() as descriptors:
        for process in processes:
            try:
                pidfd = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue  # ended by itself, or with the process before
            descriptors.callback(os.close, pidfd)
            # A descriptor stays with its process. So one check now (psutil compares start times)
            # proves that it is the right process for good.
            if not process.is_running():
                continue
            done.append(_describe(process))
            waiting[pidfd] = process
            poller.register(pidfd, select.POLLIN)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # ends a stopped process too
        deadline = time.monotonic() + END_PATIENCE_S
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for pidfd, _ in poller.poll(left_s * 1000):
                poller.unregister(pidfd)
                del waiting[pidfd]
    if waiting:
        names = ", ".join(map(_describe, waiting.values()))
        raise InfrastructureError(
            f"not ended by SIGKILL within {END_PATIENCE_S:.0f} s: {names}; "
            "it waits within the kernel (a dead mount?): end what it waits for and run `jepsen-run "
            "clean` again"
        )
    return done


def mounts_below(directory: Path) -> list[Path]:
    """Return the places below a directory where something is mounted, the deepest first.

    A place that has two mounts is there twice. The list is the kernel's: looking into a mount whose
    program was killed gives an error.
    """
    inside = str(directory.resolve()) + "/"
    found = []
    for place, _, _ in fuse_device.places():
        if place.startswith(inside):
            found.append(Path(place))
    return sorted(found, key=lambda place: len(place.parts), reverse=True)


def _remove_nodes(nodes: Path, run_id: str, *, keep_logs: bool) -> list[str]:
    """Remove the nodes' directories if this deployment made them."""
    try:
        if (nodes / state.MARKER_FILE).read_text().strip() != run_id:
            return []
    except OSError:
        return []
    done = []
    for place in mounts_below(
        nodes
    ):  # mounts of killed programs; they are unmounted even if processes use them
        fuse_device.unmount(place)
        done.append(f"mount {place}")
    if not keep_logs:
        shutil.rmtree(nodes)
        return [*done, f"nodes {nodes}"]
    for node in sorted(path for path in nodes.iterdir() if path.is_dir()):
        for part in ("etc", "data", "disk", "store"):
            shutil.rmtree(node / part, ignore_errors=True)
            if (node / part).exists():
                raise InfrastructureError(f"{node / part} cannot be removed")
    (nodes / state.MARKER_FILE).unlink()
    return [*done, f"data of {nodes} (logs stay)"]
