"""An agent on this machine, from the point of view of the harness that started it."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.agent.control import ENDED, REFUSED, TOKEN_VARIABLE, AgentError, call
from environments.links_agent import HOST
from environments.log_file import last_line
from harness.interface import InfrastructureError, Link, UsageError
from harness.interface.errors import exhausted

READY_PATIENCE_S: Final = 30.0
CALL_TIMEOUT_S: Final = 30.0
_ROOT: Final = Path(__file__).resolve().parents[1]


class AgentProcess:
    """The process of an agent, and the requests to it.

    Each request raises InfrastructureError, also when the agent is gone, or UsageError.
    """

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], log: Path | None) -> None:
        self._log = log
        self._token = secrets.token_hex(16)
        self._port = 0
        # The agent's own children run in other directories and must find the same packages as this
        # process does.
        search = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with Path(log or os.devnull).open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output if log else None,
                env={
                    **os.environ,
                    **variables,
                    TOKEN_VARIABLE: self._token,
                    "PYTHONPATH": os.pathsep.join(dict.fromkeys(search)),
                },
                start_new_session=True,
            )

    @classmethod
    async def start(
        cls, *words: str, variables: Mapping[str, str] | None = None, log: Path | None = None
    ) -> AgentProcess:
        """Run a module (and its arguments) that is an agent, and wait until it listens.

        The agent runs in a session of its own, so that Ctrl-C and the end of the terminal do not
        reach it: the harness still needs it to drain. ``variables`` are added to its environment;
        ``log`` gets its error output.
        """
        agent = cls(words, variables or {}, log)
        try:
            agent._port = await agent._ready()
        except BaseException:
            agent.process.kill()
            await agent.end()
            raise
        return agent

    async def ask(self, operation: str, *, timeout_s: float | None = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """Send a request, and return its answer."""
        given = msgspec.to_builtins(arguments)
        try:
            return await call(HOST, self._port, self._token, operation, timeout_s=timeout_s, **given)
        except AgentError as error:
            raise _meant(error) from None
        except TimeoutError:
            raise InfrastructureError(
                f"the local agent did not answer {operation!r} within {timeout_s:.0f} s"
            ) from None
        except OSError:
            raise InfrastructureError(
                "the local agent is gone (was it killed?); `jepsen-run clean` ends what it had started"
            ) from None

    async def inject(
        self,
        primitive: str,
        links: Sequence[Link],
        nodes: Sequence[str],
        options: Mapping[str, Any],
        lease_s: float,
    ) -> str:
        """Begin a fault and return the name of its lease."""
        lease: str = await self.ask(
            "inject", primitive=primitive, links=links, nodes=nodes, options=dict(options), lease_s=lease_s
        )
        return lease

    async def renew(self, lease: str) -> None:
        """Let a fault go on; refused if it has ended already."""
        await self.ask("renew", lease=lease)

    async def heal(self, lease: str) -> None:
        """End a fault; does nothing if the fault has ended by itself."""
        await self.ask("heal", lease=lease)

    async def heal_all(self) -> None:
        """End all faults."""
        await self.ask("heal_all")

    async def probe(self, links: Sequence[Link] = (), nodes: Sequence[str] = ()) -> dict[str, str]:
        """Return what links and nodes do now, each by its name."""
        found: dict[str, str] = await self.ask("probe", links=links, nodes=nodes)
        return found

    async def end(self, patience_s: float = 5.0) -> None:
        """Close the agent's pipes, which ends it, and wait for its end; kill it if it stays."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            await asyncio.to_thread(self.process.wait, patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    async def _ready(self) -> int:
        """Return the port on which the agent listens, once it does."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(READY_PATIENCE_S):
                port = await asyncio.to_thread(self.process.stdout.readline)
        except TimeoutError:
            raise InfrastructureError(
                f"the local agent was not ready within {READY_PATIENCE_S:.0f} s"
            ) from None
        if not port:
            words = last_line(self._log or Path(os.devnull), "it said nothing")
            raise InfrastructureError(f"the local agent ended while starting: {words}")
        return int(port)


def _meant(error: AgentError) -> Exception:
    if error.kind == REFUSED:
        return UsageError(str(error))
    if error.kind == ENDED:
        late = "healed before its time; was the harness held up (overloaded machine, suspend)?"
        return InfrastructureError(f"{error}: the fault was {late}")
    if error.kind == InfrastructureError.__name__:
        return InfrastructureError(str(error))
    if error.errno is not None:
        spent = exhausted(OSError(error.errno, str(error)))
        if spent is not None:
            return InfrastructureError(f"the local agent failed: {spent}")
    return RuntimeError(
        f"the local agent failed: {error.kind}: {error}; this is a bug of jepsen-run, please report it"
    )
