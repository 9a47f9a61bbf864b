"""The agent of a database's container, which is PID 1 there.

It is the agent of every container, with a PostgreSQL server for its program and a relay in front of
that server.

Why a program of its own: a server is many processes, and one of its faults is about single commits,
which only the relay sees.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from environments.agent.agent import NodeAgent, main
from environments.agent.child import Child, reap
from environments.agent.control import LOGS
from environments.agent.program import Program
from environments.part import Part, PartFault
from environments.postgresql import question, tree
from environments.postgresql.fault import severance_of
from environments.postgresql.relay import Relay

PORT: Final = 5432
"""The port on which brokers reach the relay."""

INSIDE: Final = 5433
"""The port on which the server listens, on the container's loopback address alone."""

LOG: Final = "postgresql.log"

_SERVES_S: Final = 6.0
"""The longest time that a heal waits for the server; a later probe says how the server is."""


class SeveredClients(Part):
    """The relay; "severed" asks for what becomes of commits, by the address of a broker."""

    primitives = ("severed",)

    def __init__(self) -> None:
        self.relay = Relay("127.0.0.1", INSIDE, random.Random())

    def wanted(self, asked: PartFault) -> Any:
        """Return what the harness sent for a fault, as Severances by client. Raises ValueError."""
        return {client: severance_of(how) for client, how in asked.wanted.items()}

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Let exactly these clients lose connections; of two faults on one the later counts."""
        del changed
        self.relay.sever({client: how for fault in in_force for client, how in fault.wanted.items()})


class DatabaseProgram(Program):
    """A program that is of use only once it serves."""

    async def _goes_on(self) -> None:
        await question.serves("127.0.0.1", INSIDE, _SERVES_S)


class ServerChild(Child):
    """A PostgreSQL server as a child: signals go to all of its processes together."""

    def __init__(self, log: Path, on_change: Callable[[], None] = lambda: None) -> None:
        super().__init__(log, on_change)
        self._told: list[int] = []
        self._stopped = False

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to all processes of the server; False if there are none."""
        if self.pid is None:
            return False
        self._stopped = number == signal.SIGSTOP
        self._told = tree.tell(self.pid, number)
        return True

    def state(self) -> str:
        """Return "running", "paused" or "gone"; paused when every process is stopped."""
        if self.pid is None:
            return "gone"
        found = tree.state(self.pid)
        if self._stopped and found == "running":
            self._told = tree.tell(self.pid, signal.SIGSTOP)  # also a process that was just being made
        return found

    def again(self) -> None:
        """Repeat the last start, once no process of the former server holds its memory any more."""
        deadline = time.monotonic() + tree.END_S
        while any(map(tree.lives, self._told)) and time.monotonic() < deadline:
            time.sleep(0.005)
            reap((self,))
        self._stopped = False
        super().again()

    async def pause(self) -> None:
        """Stop all processes; returns when all have stopped, or after a while."""
        if self.pid is not None:
            self._stopped = True
            await tree.pause(self.pid)

    async def kill(self) -> None:
        """Send SIGKILL to all processes and wait for their end. Raises OSError if one stays."""
        if self.pid is not None:
            await tree.kill(self.pid)
        await self.exited.wait()


class DatabaseAgent(NodeAgent):
    """The agent of a database's container; see ``NodeAgent``."""

    def __init__(self, token: str) -> None:
        severed = SeveredClients()
        super().__init__(token, DatabaseProgram(ServerChild(Path(LOGS) / LOG)), severed)
        self._relay = severed.relay

    async def do_relay(self) -> None:
        """Let brokers connect from now on."""
        await self._relay.listen("0.0.0.0", PORT)

    async def do_said(self) -> dict[str, Any]:
        """Return the last lines of the server's log."""
        lines = (Path(LOGS) / LOG).read_text(errors="replace").splitlines()
        return {"lines": [line for line in lines if line.strip()][-5:]}

    async def do_look(self) -> dict[str, Any]:
        """Return how the server answers, whether all of it is stopped, and who loses commits.

        ``severed`` has the clients that lose commits to a fault in force.
        """
        return {
            "answer": await question.ask("127.0.0.1", INSIDE),
            "paused": self._child.state() == "paused",
            "severed": [client for client in self._relay.clients if self._relay.severed(client)],
        }


if __name__ == "__main__":
    main(DatabaseAgent)
