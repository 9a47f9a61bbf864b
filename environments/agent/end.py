"""Removal of what is left of a node: agent, broker, rules, a wrong clock, mounts, files.

``python -m environments.agent.end ROOT``; run by ``jepsen-run clean`` and at the end of each run,
as the user that the agent runs as. A second call finds nothing. It prints a line for each thing
that it did, and ends with status 1 if something stays.

A process belongs to the node if its environment names ROOT; no other process is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from environments.agent.clock import shift
from environments.agent.control import CLOCK, ROOT, ROOT_VARIABLE, RULES
from environments.agent.firewall import TABLE
from filesystems.fuse.device import places

_END_S: Final = 5.0


def processes(root: str) -> list[int]:
    """Return the running processes of the node, without this one."""
    wanted = f"{ROOT_VARIABLE}={root}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # the process has ended, or is another user's
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def end_processes(root: str) -> list[int]:
    """Ask the agent to end, which heals all faults, then kill what is left; return what ran."""
    ran = processes(root)
    with contextlib.suppress(OSError, ValueError):  # there is no agent
        agent = int(Path(root, "agent.pid").read_text())
        if agent in ran:
            os.kill(agent, signal.SIGTERM)
            _await(lambda: agent not in processes(root))
    for pid in processes(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _await(lambda: not processes(root))
    return ran


def _await(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _END_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)


def mounts(root: str) -> list[str]:
    """Return the places below a directory where something is mounted, the innermost first."""
    inside = [place for place, _, _ in places() if place.startswith(f"{root}/")]
    return sorted(inside, reverse=True)


def main() -> None:
    """Remove everything of the node, and print what was done."""
    root = sys.argv[1].rstrip("/")
    if ran := end_processes(root):
        print(f"{len(ran)} processes ended")
    device = Path(f"{root}{RULES.removeprefix(ROOT)}")
    if device.exists():
        # The agent has taken its rules away unless it was killed.
        table = ["nft", "delete", "table", *TABLE.split()]
        if subprocess.run(table, capture_output=True, check=False).returncode == 0:
            print("packet filter rules removed")
        name = device.read_text().strip()
        shown = subprocess.run(
            ["tc", "qdisc", "show", "dev", name], capture_output=True, text=True, check=False
        ).stdout
        if "qdisc prio 1: root" in shown and "qdisc netem 20:" in shown:
            subprocess.run(["tc", "qdisc", "del", "dev", name, "root"], check=False)
            print(f"delays of {name} removed")
    clock = Path(f"{root}{CLOCK.removeprefix(ROOT)}")
    if clock.exists() and (wrong_ms := float(clock.read_text() or 0)):
        shift(-wrong_ms)
        clock.write_text("0.0")
        print(f"clock set right by {-wrong_ms:g} ms")
    for place in mounts(root):
        subprocess.run(["umount", "--lazy", place], check=False)
        print(f"{place} unmounted")
    if Path(root).exists():
        shutil.rmtree(root)
        print(f"{root} removed")
    with contextlib.suppress(OSError):  # other nodes of the run are below it
        Path(root).parent.rmdir()
    if left := processes(root):
        raise SystemExit(f"processes that do not end: {', '.join(map(str, left))}")


if __name__ == "__main__":
    main()
