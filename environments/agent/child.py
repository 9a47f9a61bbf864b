"""Processes of a container, as children of its PID 1.

The container's own program (a broker, or a server that brokers need), and others beside it.

Why not ``asyncio.subprocess``: PID 1 inherits every orphan in the container and must reap them all
with ``waitpid(-1)``, which would take the exit status away from anybody else who waits. So there is
one place that waits, and it is here.

Only the standard library is imported here: this module runs inside the container.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from environments.thread_group import threads_left


class Child:
    """One program, at most once at a time.

    ``exited`` is set while it does not run; ``began_s`` is the wall clock at its last start.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._last: tuple[list[str], dict[str, str]] | None = None
        self.began_s = 0.0
        self.exited = asyncio.Event()
        self.exited.set()

    @property
    def pid(self) -> int | None:
        """The process while it lives."""
        return None if self._process is None or self.exited.is_set() else self._process.pid

    @property
    def status(self) -> int | None:
        """Of the last one that ended.

        Its exit status, minus the signal's number if one ended it.
        """
        return self._process.returncode if self._process is not None and self.exited.is_set() else None

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start it in a process group of its own and return its pid.

        What it prints goes to the log.

        Raises RuntimeError if one runs already, OSError if the program cannot be started.
        """
        if not self.exited.is_set():
            raise RuntimeError(f"{self._log.stem} runs already, as pid {self.pid}")
        self._last = (list(command), dict(environment))
        argv = [sys.executable if i == 0 and word == "python" else word for i, word in enumerate(command)]
        with self._log.open("ab", buffering=0) as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.began_s = time.time()
        self.exited.clear()
        return self._process.pid

    def again(self) -> None:
        """Start it as it was last started; nothing to do if it never was, or runs."""
        if self._last is not None and self.exited.is_set():
            self.start(*self._last)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to its process group; False if there is none."""
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
        if code == b"Z" and threads_left(self.pid):
            return "running"
        return {b"T": "paused", b"t": "paused", b"Z": "gone", b"X": "gone"}.get(code, "running")

    def reap(self) -> None:
        """Collect every process that has ended, this one or inherited.

        For SIGCHLD, where there is one child.
        """
        reap((self,))

    def ended(self, pid: int, status: int) -> bool:
        """Take note that a process has ended, if it is this one."""
        if self._process is None or pid != self._process.pid:
            return False
        # Popen must know too, or it would wait by itself when it is forgotten.
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.exited.set()
        return True


def reap(children: Iterable[Child]) -> None:
    """Collect every process that has ended, these or inherited. For SIGCHLD."""
    known = tuple(children)
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        any(child.ended(pid, status) for child in known)
