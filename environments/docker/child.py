"""The broker's process, as a child of the container's PID 1.

Why not ``asyncio.subprocess``: PID 1 inherits every orphan in the container and must reap them all with ``waitpid(-1)``,
which would take the exit status away from anybody else who waits. So there is one place that waits, and it is here.

Only the standard library is imported here: this module runs inside the container.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class Child:
    """At most one broker at a time. ``exited`` is set while none runs."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.exited = asyncio.Event()
        self.exited.set()

    @property
    def pid(self) -> int | None:
        """The process while it lives."""
        return None if self._process is None or self.exited.is_set() else self._process.pid

    @property
    def status(self) -> int | None:
        """Of the last one that ended: its exit status, minus the signal's number if one ended it."""
        return self._process.returncode if self._process is not None and self.exited.is_set() else None

    def start(self, command: Sequence[str], environment: Mapping[str, str], directory: str) -> int:
        """Start the broker in a process group of its own and return its pid; what it prints goes to the log.

        Raises RuntimeError if one runs already, OSError if the program cannot be started.
        """
        if not self.exited.is_set():
            raise RuntimeError(f"the broker runs already, as pid {self.pid}")
        argv = [sys.executable if i == 0 and word == "python" else word for i, word in enumerate(command)]
        with self._log.open("ab", buffering=0) as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.exited.clear()
        return self._process.pid

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the broker's process group; False if there is none."""
        if self.pid is None:
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def state(self) -> str:
        """One of "running", "paused", "gone", as the kernel sees it and not as we asked for it."""
        if self.pid is None:
            return "gone"
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return "gone"
        code = stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3]  # the name before it may contain anything
        return {b"T": "paused", b"t": "paused", b"Z": "gone", b"X": "gone"}.get(code, "running")

    def reap(self) -> None:
        """Collect every process that has ended, ours or inherited. For SIGCHLD."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._process is not None and pid == self._process.pid:
                # Popen must know too, or it would wait by itself when it is forgotten.
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self.exited.set()
