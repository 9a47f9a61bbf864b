"""PID 1 of a database's container.

The agent of every container, with a PostgreSQL server for its program and a relay in front of it.

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
"""Where brokers reach the relay."""

INSIDE: Final = 5433
"""Where the server listens, on the container's loopback address alone."""

LOG: Final = "postgresql.log"

_SERVES_S: Final = 6.0
"""How long a heal waits for the server to have recovered; whoever looks afterwards sees what is."""


class SeveredClients(Part):
    """The relay; "severed" wants, by the address of a broker, what becomes of its commits."""

    primitives = ("severed",)

    def __init__(self) -> None:
        self.relay = Relay("127.0.0.1", INSIDE, random.Random())

    def wanted(self, asked: PartFault) -> Any:
        """As the harness sent it. Raises ValueError for anything else."""
        return {client: severance_of(how) for client, how in asked.wanted.items()}

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """From now on exactly these clients lose connections; of two faults the later counts."""
        del changed
        self.relay.sever({client: how for fault in in_force for client, how in fault.wanted.items()})


class DatabaseProgram(Program):
    """A program that is of use when it serves."""

    async def _goes_on(self) -> None:
        await question.serves("127.0.0.1", INSIDE, _SERVES_S)


class ServerChild(Child):
    """A PostgreSQL server as a child: all of its processes are told together."""

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
        """One of "running", "paused", "gone"; paused when every one is stopped."""
        if self.pid is None:
            return "gone"
        found = tree.state(self.pid)
        if self._stopped and found == "running":
            self._told = tree.tell(self.pid, signal.SIGSTOP)  # one that was just being made
        return found

    def again(self) -> None:
        """As any child's, once no process of the former server holds its memory any more."""
        deadline = time.monotonic() + tree.END_S
        while any(map(tree.lives, self._told)) and time.monotonic() < deadline:
            time.sleep(0.005)
            reap((self,))
        self._stopped = False
        super().again()

    async def pause(self) -> None:
        """Stop all; returns when all have stopped, or after a while."""
        if self.pid is not None:
            self._stopped = True
            await tree.pause(self.pid)

    async def kill(self) -> None:
        """SIGKILL to all; returns when none is left. Raises OSError naming one that stays."""
        if self.pid is not None:
            await tree.kill(self.pid)
        await self.exited.wait()


class DatabaseAgent(NodeAgent):
    """See ``NodeAgent``."""

    def __init__(self, token: str) -> None:
        severed = SeveredClients()
        super().__init__(token, DatabaseProgram(ServerChild(Path(LOGS) / LOG)), severed)
        self._relay = severed.relay

    async def do_relay(self) -> None:
        """Take in brokers from now on."""
        await self._relay.listen("0.0.0.0", PORT)

    async def do_said(self) -> dict[str, Any]:
        """The last lines of the server's log."""
        lines = (Path(LOGS) / LOG).read_text(errors="replace").splitlines()
        return {"lines": [line for line in lines if line.strip()][-5:]}

    async def do_look(self) -> dict[str, Any]:
        """How the server answers, and what is wrong with it.

        Whether all of it is stopped, and who loses commits to a fault in force.
        """
        return {
            "answer": await question.ask("127.0.0.1", INSIDE),
            "paused": self._child.state() == "paused",
            "severed": [client for client in self._relay.clients if self._relay.severed(client)],
        }


if __name__ == "__main__":
    main(DatabaseAgent)
