"""Broker processes as an agent's children: started, watched, stopped and ended as process groups.

Why groups: a broker may be a shell script with a Java below it, and a fault must hit all of it. Why
children: a child's pid stays its own until its parent has reaped it, so no signal can ever hit a
stranger that got the pid meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from environments.labels import Process, identify
from environments.part import Fault, Part
from environments.thread_group import threads_left
from harness.interface import InfrastructureError, UsageError

END_PATIENCE_S: Final = 10.0
SETTLE_PATIENCE_S: Final = 2.0
PORT_PATIENCE_S: Final = 2.0
"""A killed broker's port is free when the kernel has closed its sockets, at most moments after
its end.
"""


class _Broker:
    """One run of one node's broker process."""

    __slots__ = ("ended", "identity", "pidfd", "popen")

    def __init__(self, popen: subprocess.Popen[bytes], ended: asyncio.Future[int]) -> None:
        self.popen = popen
        self.pidfd = os.pidfd_open(popen.pid)
        self.identity: Process | None = identify(popen.pid)
        self.ended = ended


class Brokers(Part):
    """The broker processes of one deployment, at most one for each node.

    ``on_change`` is called when one starts or ends.
    """

    primitives = ("pause",)

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._running: dict[str, _Broker] = {}
        self._statuses: dict[str, int] = {}

    async def start(
        self,
        node: str,
        argv: Sequence[str],
        *,
        cwd: Path,
        log: Path,
        variables: Mapping[str, str],
        ports: Iterable[int],
    ) -> int:
        """Start a node's broker and return its pid; its output is appended to ``log``.

        Raises InfrastructureError where it cannot be started, or one of its ports is in use (by
        whom, if that can be seen).
        """
        if node in self._running:
            raise UsageError(
                f"{node} runs already, pid {self._running[node].popen.pid}: kill or stop it first"
            )
        for port in ports:
            await _await_free(node, port)
        try:
            with log.open("ab") as output:
                popen = subprocess.Popen(  # noqa: ASYNC220 - a fork, not a wait
                    list(argv),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(variables),
                    start_new_session=True,
                )
        except OSError as error:
            raise InfrastructureError(
                f"cannot start {node}: {error.strerror}: {error.filename or argv[0]}"
            ) from error
        broker = _Broker(popen, self._loop.create_future())
        self._running[node] = broker
        self._loop.add_reader(broker.pidfd, self._ended, node, broker)
        self._on_change()
        return popen.pid

    async def wait(self, node: str) -> int | None:
        """The broker's exit status (negative: the signal that ended it) once it has ended.

        None if it never ran.
        """
        broker = self._running.get(node)
        if broker is None:
            return self._statuses.get(node)
        return await asyncio.shield(broker.ended)

    def state(self, node: str) -> str:
        """The node's process as the kernel sees it: "running", "paused" or "gone"."""
        broker = self._running.get(node)
        if broker is None:
            return "gone"
        try:
            status = psutil.Process(broker.popen.pid).status()
        except psutil.NoSuchProcess:
            return "gone"
        if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return "running" if threads_left(broker.popen.pid) else "gone"
        return "paused" if status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "running"

    def signal(self, node: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a node, if it runs."""
        broker = self._running.get(node)
        if broker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(broker.popen.pid, number)

    def apply(self, in_force: Sequence[Fault], changed: Fault) -> Awaitable[None]:
        """Stop who runs, or let go on whom no other fault stops.

        The kernel does it when it next schedules them; that is what is awaited.
        """
        begins = changed in in_force
        still = {node for fault in in_force for node in fault.nodes if not begins}
        nodes = [node for node in changed.nodes if node not in still]
        for node in nodes:
            self.signal(node, signal.SIGSTOP if begins else signal.SIGCONT)
        return self._settle(nodes, "paused" if begins else "running")

    async def look(self, node: str) -> str:
        """As `state`."""
        return self.state(node)

    async def kill(self, node: str) -> None:
        """SIGKILL, and wait until the broker is gone. Nothing to do if it does not run."""
        broker = self._running.get(node)
        if broker is None:
            return
        self.signal(node, signal.SIGKILL)
        try:
            await asyncio.wait_for(asyncio.shield(broker.ended), END_PATIENCE_S)
        except TimeoutError:
            raise InfrastructureError(
                f"{node} (pid {broker.popen.pid}) did not end within {END_PATIENCE_S:.0f} s of SIGKILL: "
                "it waits within the kernel"
            ) from None

    async def kill_all(self) -> None:
        """`kill` every node at once."""
        await asyncio.gather(*(self.kill(node) for node in tuple(self._running)))

    def identities(self) -> dict[str, Process]:
        """Node -> its running process."""
        return {
            node: broker.identity for node, broker in self._running.items() if broker.identity is not None
        }

    async def _settle(self, nodes: Iterable[str], state: str) -> None:
        """Give up silently after a while: it is for a probe to say what is.

        A process within a dead mount does not stop.
        """
        deadline = self._loop.time() + SETTLE_PATIENCE_S
        for node in nodes:
            while self.state(node) not in (state, "gone") and self._loop.time() < deadline:  # noqa: ASYNC110 - the kernel sets no event
                await asyncio.sleep(0.005)

    def _ended(self, node: str, broker: _Broker) -> None:
        self._loop.remove_reader(broker.pidfd)
        os.close(broker.pidfd)
        # Before it is reaped, while the group's number cannot belong to anybody else: what a dead
        # broker leaves would keep its port.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(broker.popen.pid, signal.SIGKILL)
        status = broker.popen.wait()
        self._statuses[node] = status
        del self._running[node]
        broker.ended.set_result(status)
        self._on_change()


async def _await_free(node: str, port: int) -> None:
    """Wait until nobody listens on a port that was reserved for a node."""
    deadline = asyncio.get_running_loop().time() + PORT_PATIENCE_S
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
            # With this option bind fails only if somebody listens there: our own reservation and
            # old connections do not count.
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise InfrastructureError(
                        f"cannot start {node}: port {port} is in use by {_holder(port)}; end that and "
                        "try again"
                    ) from error
            else:
                return
        await asyncio.sleep(0.05)


def _holder(port: int) -> str:
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                return f"process {process.pid} ({' '.join(process.cmdline()[:4])})"
    return "a process that cannot be seen from here"
