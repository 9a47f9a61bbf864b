"""The PostgreSQL server of one local deployment.

It is a process of the agent's, so that it outlives the harness and heals by itself.

Why a relay with a listener for each node: on one machine all brokers have one address, and a fault
must be able to hit one of them. The server's files lie in a scratch directory, because PostgreSQL's
own account must be able to reach them, whoever runs the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from environments import log_file, scratch
from environments.agent.database_agent import ServerChild
from environments.link_proxy import reserve_port
from environments.part import PartFault
from environments.postgresql import program, question
from environments.postgresql.fault import DatabasePart, ServerFault, phrase
from environments.postgresql.relay import Relay
from harness.interface import Address, InfrastructureError, NodePlan, UsageError

NODE: Final = "database"
HOST: Final = "127.0.0.1"
START_S: Final = 60.0


def missing() -> str:
    """Return what this machine lacks for a server of PostgreSQL; "" if nothing."""
    lack = program.missing()
    return f"{lack}; or use --environment docker or simulation" if lack else ""


class LocalDatabase(DatabasePart):
    """The server of a deployment; there is none before `make`, and none if no node needs it.

    ``variables`` are what the environment of its clients must have. ``on_change`` is called when
    its process starts or ends.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.variables: dict[str, str] = {}
        self._on_change = on_change
        self._log = Path()
        self._server = ServerChild(self._log, on_change)
        self._kept = contextlib.ExitStack()
        self._directory = Path()
        self._port = 0
        self._relay: Relay | None = None
        self._turn = asyncio.Lock()

    @property
    def directory(self) -> Path | None:
        """The scratch directory, or None if there is no server."""
        return None if self._relay is None else self._directory

    @property
    def pid(self) -> int | None:
        """The postmaster's pid, or None while it does not run."""
        return self._server.pid

    async def make(self, nodes: Iterable[NodePlan], place: Path) -> dict[str, Address]:
        """Make and start the server if the test has one; its log lies below ``place``.

        Returns how each node reaches it. Raises InfrastructureError.
        """
        wanting = [
            node.name for node in nodes if node.database is not None and node.database.type == "postgresql"
        ]
        if not wanting:
            return {}
        if lack := missing():
            raise InfrastructureError(lack)
        self._log = place / NODE / "logs" / "postgresql.log"
        self._log.parent.mkdir(parents=True)
        self._server = ServerChild(self._log, self._on_change)
        self._directory = self._kept.enter_context(scratch.directory(NODE))
        self._directory.chmod(0o711)
        password = program.new_password()
        try:
            await asyncio.to_thread(program.make, self._directory / "server", password)
        except program.ProgramError as error:
            raise InfrastructureError(str(error)) from error
        self._port = self._reserve()
        self._relay = relay = Relay(HOST, self._port, random.Random())
        routes = {}
        for node in wanting:
            port = self._reserve()
            await relay.listen(HOST, port, node)
            routes[node] = Address(HOST, port)
        await self._bring(ServerFault())
        self.variables = {"PGUSER": program.USER, "PGPASSWORD": password}
        return routes

    def wanted(self, asked: PartFault) -> Any:
        """Return the ServerFault that a fault asks for. Raises UsageError if there is no server."""
        if self._relay is None:
            raise UsageError(
                f"{asked.primitive}: no broker of this test keeps its messages in a server's database"
            )
        return super().wanted(asked)

    async def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Stop, end or start the server, and lose connections; returns when that is done."""
        del changed
        await self._bring(ServerFault.together(fault.wanted for fault in in_force))

    async def look(self, node: str) -> str:
        """Return the state of the database as a probe finds it.

        It is "serving", "stalled", "down", or "severed" for a node that loses connections to the
        fault in force. It is "absent" if there is no server.
        """
        if self._relay is None:
            return "absent"
        answer = await question.ask(HOST, self._port)
        paused = self._server.state() == "paused"
        return phrase(answer, paused=paused, severed=self._relay.severed(node))

    async def close(self) -> None:
        """End the server, and remove its files."""
        if self._relay is not None:
            await self._relay.close()
        with contextlib.suppress(OSError):  # a process stays: `clean` names it
            await self._server.kill()
        await asyncio.to_thread(self._kept.close)

    async def _bring(self, wanted: ServerFault) -> None:
        assert self._relay is not None, "it has begun"
        async with self._turn:
            self._relay.sever(wanted.severed)
            if wanted.down:
                await self._server.kill()
                return
            if self._server.pid is None:
                await self._start()
            if wanted.stall:
                await self._server.pause()
            else:
                self._server.signal(signal.SIGCONT)

    def _reserve(self) -> int:
        holder = reserve_port()
        self._kept.callback(holder.close)
        port: int = holder.getsockname()[1]
        return port

    async def _start(self) -> None:
        command = program.command(self._directory / "server", self._port)
        self._server.start(command, {}, Path("/"))
        if not await question.serves(HOST, self._port, START_S):
            words = log_file.last_line(self._log, "it wrote no log")
            raise InfrastructureError(f"PostgreSQL does not serve after {START_S:.0f} s: {words}")
