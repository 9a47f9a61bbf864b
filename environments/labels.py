"""How everything that a run creates is recognised later, and removed.

A harness may be killed at any moment, so nothing may depend on its memory: every process carries
the run's id in its environment, every deployment has a directory under the user's state directory
that names its parts, and containers carry labels. ``jepsen-run clean`` asks here what is left and
removes it.

A stranger is never harmed: a process is ours if its environment says so, or if its pid, start time
and boot are the recorded ones. A deployment whose harness lives is somebody's running test and is
left alone unless forced.
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
"""Environment variable of every process that a run starts: its run's id."""

STATE_DIR: Final = "JEPSEN_RUN_STATE"
"""Environment variable beside it.

The deployment's state directory, so that two users' (or tests') runs are told apart.
"""

NOTE: Final = "note: "
"""Lines of `find_leftovers` that begin so are not leftovers, but say what was not looked at or
not touched, and why.
"""

LEFT: Final = "LEFT: "
"""Lines of `remove_leftovers` that begin so name what could not be removed."""

_ASKED: Final = {
    "local": "environments.local.clean",
    "docker": "environments.docker.clean",
    "ssh": "environments.ssh.clean",
    "attached": "environments.attached.records",
    "scratch": "environments.scratch",
}
"""Modules with ``leftovers(force=)`` and ``remove(force=)``, by the name that a note gives them."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that cannot be confused with a later one of the same pid.

    ``started`` counts from the boot in the kernel's own ticks, which no clock adjustment moves.
    ``boot`` and ``namespace`` say where the pid means something; ``host`` tells a reboot from
    another machine that shares the home directory.
    """

    pid: int
    started: str
    boot: str
    namespace: str
    host: str


def new_run_id() -> str:
    """A name for a deployment.

    Sorts by time, unique beyond doubt, fit for file names, labels and host names.
    """
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(4)


def state_root() -> Path:
    """Where deployments leave their traces.

    ``$XDG_STATE_HOME/jepsen-run``, else ``~/.local/state/jepsen-run``.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "jepsen-run"


def identify(pid: int | None = None) -> Process | None:
    """The identity of a running process (this one by default).

    None if there is none, or only a zombie.
    """
    pid = os.getpid() if pid is None else pid
    started = _started(pid)
    if started is None:
        return None
    return Process(pid=pid, started=started, boot=_boot(), namespace=_namespace(), host=socket.gethostname())


def judge(process: Process) -> Literal["alive", "dead", "unknown"]:
    """Whether an identified process still runs.

    "unknown" if it lived on another machine or in another pid namespace.
    """
    if process.boot != _boot():
        return "dead" if process.host == socket.gethostname() else "unknown"
    if process.namespace != _namespace():
        return "unknown"
    return "alive" if _started(process.pid) == process.started else "dead"


def in_use(what: str, harness: Process | None, *, force: bool) -> str:
    """The note that something is left alone because its harness may still run; "" if it does not.

    ``force`` leaves nothing alone.
    """
    standing = "dead" if harness is None or force else judge(harness)
    if harness is None or standing == "dead":
        return ""
    whose = f"of a running harness, pid {harness.pid}"
    if standing == "unknown":
        whose = f"made on {harness.host} in another pid namespace, where it may still run"
    return f"{NOTE}{what}: left alone, {whose} (--force removes it)"


def find_leftovers(*, force: bool = False) -> list[str]:
    """What earlier runs left behind, one line each; lines that begin with `NOTE` are no leftovers.

    ``force`` counts deployments whose harness still runs, too.
    """
    return _ask("leftovers", force=force)


def remove_leftovers(*, force: bool = False) -> list[str]:
    """Remove what `find_leftovers` finds; one line for each thing removed.

    A second call finds nothing but what the first said to be `LEFT`.
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
    """When a process started, in kernel ticks since the boot; None if it does not run.

    A zombie does not.
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
