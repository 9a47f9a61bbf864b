"""A program as an agent's child: started, signalled and ended with all of its process group.

Why groups: a broker may be a shell script with a Java below it, and a fault must hit all of it. Why
children: a child's pid stays its own until its parent has reaped it, so no signal can ever hit a
stranger that got the pid meanwhile. Why not ``asyncio.subprocess``: an agent that is PID 1 of a
container inherits every orphan there, and waiting for those must not take a child's status away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path


class Child:
    """A program that runs at most once at a time. Its output is appended to ``log``.

    ``exited`` is set while the program does not run. ``status`` is the exit status of its last run,
    minus the signal's number if a signal ended it. ``began_s`` is the wall clock at its last start.
    ``on_change`` is called when it starts or ends.
    """

    def __init__(self, log: Path, on_change: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._on_change = on_change
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._last: tuple[list[str], dict[str, str], Path | None] | None = None
        self.status: int | None = None
        self.began_s = 0.0
        self.exited = asyncio.Event()
        self.exited.set()

    @property
    def pid(self) -> int | None:
        """The number of the process, or None if it does not run."""
        return None if self._process is None or self.exited.is_set() else self._process.pid

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path | None = None
    ) -> int:
        """Start the program in a session and a process group of its own, and return its pid.

        Raises RuntimeError if one runs already, OSError if the program cannot be started.
        """
        if not self.exited.is_set():
            raise RuntimeError(f"{self._log.stem} runs already, as pid {self.pid}")
        self._last = (list(command), dict(environment), directory)
        argv = [sys.executable if i == 0 and word == "python" else word for i, word in enumerate(command)]
        with self._log.open("ab", buffering=0) as log:
            self._process = subprocess.Popen(
                argv,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.began_s = time.time()
        self.exited.clear()
        self._pidfd = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self.collect)
        self._on_change()
        return self._process.pid

    def again(self) -> None:
        """Repeat the last start; does nothing if there was none or the program runs."""
        if self._last is not None and self.exited.is_set():
            self.start(*self._last)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the program's process group; False if there is none."""
        if self.pid is None:
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    async def kill(self) -> None:
        """Send SIGKILL, and wait until the program is gone. Does nothing if it does not run."""
        self.signal(signal.SIGKILL)
        await self.exited.wait()

    def state(self) -> str:
        """Return "running", "paused" or "gone", as the kernel sees it and not as we asked it."""
        if self.pid is None:
            return "gone"
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
            code = stat[stat.rindex(b")") + 2 :][:1]  # the name before it may contain anything
            # The kernel calls a process a zombie whose first thread has ended. While another waits
            # within a file system that does not answer, it keeps its files, locks and number.
            if code in b"ZX":
                return "running" if len(list(Path(f"/proc/{self.pid}/task").iterdir())) > 1 else "gone"
        except OSError:
            return "gone"
        return "paused" if code in b"Tt" else "running"

    def collect(self) -> None:
        """Reap the process that has ended; does nothing if that has been done."""
        if self._process is None or self.exited.is_set():
            return
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        # Kill what is left of the group: a process that a dead broker leaves would keep its port.
        # This comes before the reaping, while the group's number cannot belong to another group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.status = self._process.wait()
        self.exited.set()
        self._on_change()


def reap(children: Iterable[Child]) -> None:
    """Collect every process that has ended, of these children or inherited. For SIGCHLD."""
    known = tuple(children)
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        child = next((child for child in known if child.pid == ended.si_pid), None)
        if child is not None:
            child.collect()
        else:
            os.waitpid(ended.si_pid, 0)
