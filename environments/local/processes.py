"""The broker processes of one local deployment, at most one for each node."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

from environments.agent.child import Child
from environments.agent.program import Program
from environments.part import Part, PartFault
from harness.interface import Address, InfrastructureError, UsageError

END_PATIENCE_S: Final = 10.0
PORT_PATIENCE_S: Final = 2.0
"""The patience until a port is free.

A killed broker's port is free when the kernel has closed its sockets, at most moments after its
end.
"""


class Brokers(Part):
    """The brokers by node. ``on_change`` is called when one starts or ends."""

    primitives = ("pause",)

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._programs: dict[str, Program] = {}

    async def start(
        self,
        node: str,
        argv: Sequence[str],
        home: Path,
        variables: Mapping[str, str],
        listen: Iterable[Address],
    ) -> int:
        """Start a node's broker in its directory and return its pid.

        Its output is appended to ``logs/broker.log`` there.

        Raises InfrastructureError if it cannot be started, or if one of its ports is in use (with
        the process that uses it, if that can be seen).
        """
        child = Child(home / "logs" / "broker.log", self._on_change)
        program = self._programs.setdefault(node, Program(child))
        if program.child.pid is not None:
            raise UsageError(f"{node} runs already, pid {program.child.pid}: kill or stop it first")
        for address in listen:
            await _await_free(node, address)
        try:
            return program.child.start(argv, variables, home)
        except OSError as error:
            raise InfrastructureError(
                f"cannot start {node}: {error.strerror}: {error.filename or argv[0]}"
            ) from error

    async def wait(self, node: str) -> int | None:
        """Return a broker's exit status once it has ended (negative: the signal that ended it).

        Returns None if it never ran.
        """
        if node not in self._programs:
            return None
        child = self._programs[node].child
        await child.exited.wait()
        return child.status

    def state(self, node: str) -> str:
        """Return the state of a node's process to the kernel: "running", "paused" or "gone"."""
        return self._programs[node].child.state() if node in self._programs else "gone"

    async def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Stop the brokers that run, or resume those that no other fault stops."""
        hit = [(node, self._programs[node]) for node in changed.nodes if node in self._programs]
        await asyncio.gather(
            *(
                program.apply([fault for fault in in_force if node in fault.nodes], changed)
                for node, program in hit
            )
        )

    async def look(self, node: str) -> str:
        """Return the state of a node's process; see `state`."""
        return self.state(node)

    async def kill(self, node: str) -> None:
        """Send SIGKILL, and wait until the broker is gone. Does nothing if it does not run."""
        if node not in self._programs:
            return
        child = self._programs[node].child
        try:
            async with asyncio.timeout(END_PATIENCE_S):
                await child.kill()
        except TimeoutError:
            raise InfrastructureError(
                f"{node} (pid {child.pid}) did not end within {END_PATIENCE_S:.0f} s of SIGKILL: "
                "it waits within the kernel"
            ) from None

    def terminate(self, node: str) -> None:
        """Send SIGTERM to the broker. Does nothing if it does not run."""
        if node in self._programs:
            self._programs[node].child.signal(signal.SIGTERM)

    def pids(self) -> dict[str, int | None]:
        """Return node -> the pid of its broker, None while the broker does not run."""
        return {node: program.child.pid for node, program in self._programs.items()}


async def _await_free(node: str, address: Address) -> None:
    """Wait until no process listens on the port that was reserved for a node."""
    deadline = asyncio.get_running_loop().time() + PORT_PATIENCE_S
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
            # With this option bind fails only if a process listens there: our own reservation and
            # old connections do not count.
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((address.host, address.port))
            except OSError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise InfrastructureError(
                        f"cannot start {node}: port {address.port} is in use by {_holder(address)}; end that "
                        "and try again"
                    ) from error
            else:
                return
        await asyncio.sleep(0.05)


def _holder(address: Address) -> str:
    anywhere = [(host, address.port) for host in ("0.0.0.0", "::")]
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.pid
            if listens and tuple(connection.laddr) in (msgspec.structs.astuple(address), *anywhere):
                process = psutil.Process(connection.pid)
                return f"process {process.pid} ({' '.join(process.cmdline()[:4])})"
    return "a process that cannot be seen from here"
