"""The marks by which everything that a run creates is recognised later, and removed.

A harness may be killed at any moment, so nothing may depend on its memory. Every process carries
the run's id in its environment. Every deployment has a directory under the user's state directory,
which names its parts. Containers carry labels. ``jepsen-run clean`` asks this module what is left,
and removes it.

Processes of strangers are never harmed: a process is ours if its environment says so, or if its
pid, start time and boot are the recorded ones. A deployment whose harness is alive is a running
test, and is left alone unless forced.
"""

from __future__ import annotations

import importlib
import os
import secrets
import socket
import time
from pathlib import Path
from typing import Final, Literal

import msgspec
import psutil

from harness.interface import InfrastructureError

RUN_ID: Final = "JEPSEN_RUN_ID"
"""The environment variable that holds the run's id, in every process that a run starts."""

STATE_DIR: Final = "JEPSEN_RUN_STATE"
"""The environment variable that holds the deployment's state directory, in the same processes.

It tells the runs of two users (or tests) apart.
"""

NOTE: Final = "note: "
"""The beginning of those lines of `find_leftovers` that are notes, not leftovers.

A note says what was not looked at or not touched, and why.
"""

LEFT: Final = "LEFT: "
"""The beginning of those lines of `remove_leftovers` that name what could not be removed."""

_ASKED: Final = {
    "local": "environments.local.clean",
    "docker": "environments.docker.clean",
    "ssh": "environments.ssh.clean",
    "attached": "environments.attached.records",
    "scratch": "environments.scratch",
}
"""The modules with ``leftovers(force=)`` and ``remove(force=)``, by their names in notes."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that cannot be confused with a later one that has the same pid.

    ``started`` counts from the boot in the kernel's own ticks, which no clock adjustment moves.
    ``boot`` and ``namespace`` say where the pid is valid. ``host`` tells a reboot from another
    machine that shares the home directory.
    """

    pid: int
    started: str
    boot: str
    namespace: str
    host: str


def new_run_id() -> str:
    """Return a new name for a deployment.

    Names sort by time, are unique beyond doubt, and are fit for file names, labels and host names.
    """
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(4)


def state_root() -> Path:
    """Return the directory of the records that deployments leave.

    It is ``$XDG_STATE_HOME/jepsen-run``, else ``~/.local/state/jepsen-run``.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "jepsen-run"


def identify(pid: int | None = None) -> Process | None:
    """Return the identity of a running process (this one by default).

    Returns None if there is no such process, or only a zombie.
    """
    pid = os.getpid() if pid is None else pid
    started = _started(pid)
    if started is None:
        return None
    return Process(pid=pid, started=started, boot=_boot(), namespace=_namespace(), host=socket.gethostname())


def judge(process: Process) -> Literal["alive", "dead", "unknown"]:
    """Return whether an identified process still runs.

    The answer is "unknown" if it lived on another machine or in another pid namespace.
    """
    if process.boot != _boot():
        return "dead" if process.host == socket.gethostname() else "unknown"
    if process.namespace != _namespace():
        return "unknown"
    return "alive" if _started(process.pid) == process.started else "dead"


def in_use(what: str, harness: Process | None, *, force: bool) -> str:
    """Return the note that something is left alone because its harness may run; else "".

    With ``force`` nothing is left alone.
    """
    standing = "dead" if harness is None or force else judge(harness)
    if harness is None or standing == "dead":
        return ""
    whose = f"of a running harness, pid {harness.pid}"
    if standing == "unknown":
        whose = f"made on {harness.host} in another pid namespace, where it may still run"
    return f"{NOTE}{what}: left alone, {whose} (--force removes it)"


def find_leftovers(*, force: bool = False) -> list[str]:
    """Return a line for each thing that earlier runs left, and lines that are notes (`NOTE`).

    With ``force``, deployments whose harness still runs count, too.
    """
    return _ask("leftovers", force=force)


def remove_leftovers(*, force: bool = False) -> list[str]:
    """Remove what `find_leftovers` finds, and return a line for each thing removed.

    A second call finds nothing but what the first call reported as `LEFT`.
    """
    return _ask("remove", force=force)


def _ask(question: str, *, force: bool) -> list[str]:
    lines: list[str] = []
    for name, where in _ASKED.items():
        try:
            module = importlib.import_module(where)
        except ImportError as error:
            lines.append(f"{NOTE}{name}: not looked at: {error}")
            continue
        try:
            lines += getattr(module, question)(force=force)
        except (InfrastructureError, OSError) as error:
            lines.append(f"{NOTE}{name}: not looked at: {error}")
    return lines


def _started(pid: int) -> str | None:
    """Return when a process started, in kernel ticks since the boot; None if it does not run.

    A zombie does not run.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):  # noqa: PTH110 - the cheapest form
            return None
    except OSError:
        return None
    else:
        # The command in parentheses may hold anything, so count from the last parenthesis: state,
        # ppid, ... starttime.
        fields = stat[stat.rindex(b")") + 2 :].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
