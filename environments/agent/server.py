"""The base of every agent: a board of faults, and a server that takes the harness' requests."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Final

from environments.agent.control import ENDED, LINE_BYTES_MAX, REFUSED
from environments.board import FaultBoard
from environments.lease import LeaseExpiredError, UnknownLeaseError

_REQUEST_TIMEOUT_S: Final = 10.0
_TOKEN_BYTES_MAX: Final = 4096
_CHUNK_BYTES: Final = 64 * 1024
_STRANGERS_MAX: Final = 64
"""The most connections that have not shown the token yet."""
_REFUSED: Final = {"error": "wrong token: this machine belongs to another deployment"}
_NONSENSE: Final = (
    OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, KeyError, TypeError, ValueError,
    RecursionError,
)  # fmt: skip


class Agent:
    """The server of an agent; each ``do_<operation>`` is one request (``agent.control``).

    ``ended`` is set when the agent is to end.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = (RuntimeError,)
    """The errors which say that the caller is at fault, not the machine."""

    def __init__(self, token: str, board: FaultBoard) -> None:
        self.board = board
        self.ended = asyncio.Event()
        self.do_renew, self.do_heal, self.do_heal_all = board.renew, board.heal, board.heal_all
        self._token = token.encode()
        self._strangers: dict[asyncio.StreamWriter, None] = {}

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Take requests; port 0 means any free port. Raises OSError."""
        return await asyncio.start_server(self._answer, host, port, limit=_TOKEN_BYTES_MAX)

    def encode(self, answer: dict[str, Any]) -> bytes:
        """Return an answer as JSON."""
        return json.dumps(answer).encode()

    def heard(self) -> None:
        """Take note of a request whose sender has the token."""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                has_token = await self._knows_the_token(reader, writer)
                request = json.loads(await _line(reader)) if has_token else None
            answer = await self._while_wanted(reader, self._execute(request)) if has_token else _REFUSED
            if answer is None or writer.is_closing():  # uvloop's transports then refuse to be written to
                return
            writer.write(self.encode(answer) + b"\n")
            await writer.drain()
        except _NONSENSE:
            pass  # the caller has gone, or never was one of ours
        finally:
            writer.close()

    async def _knows_the_token(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return whether the first line of a connection is the token.

        The agent keeps only that line of a stranger. If there are too many strangers, it drops the
        one that has waited longest. So no other program on the machine can fill the agent's memory,
        take its last descriptor, or keep out the harness, which shows its token at once.
        """
        self._strangers[writer] = None
        if len(self._strangers) > _STRANGERS_MAX:
            next(iter(self._strangers)).transport.abort()
        try:
            token = await reader.readuntil()
        finally:
            del self._strangers[writer]
        return hmac.compare_digest(token[:-1], self._token)

    async def _while_wanted(
        self, reader: asyncio.StreamReader, execution: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Return the answer, or None if the caller hangs up before there is one.

        A caller hangs up when it gives up waiting for a broker's exit.
        """
        executing = asyncio.ensure_future(execution)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((executing, gone), return_when=asyncio.FIRST_COMPLETED)
            return await executing if executing.done() else None
        finally:
            executing.cancel()
            gone.cancel()

    async def _execute(self, request: Any) -> dict[str, Any]:
        self.heard()
        name = str(request["operation"])
        operation: Callable[..., Awaitable[Any]] | None = getattr(self, f"do_{name}", None)
        if operation is None:
            return {"error": f"no operation {name!r}"}
        try:
            return {"result": await operation(**request["arguments"])}
        except self.refusals as error:
            return {"error": str(error), "kind": REFUSED}
        except (LeaseExpiredError, UnknownLeaseError) as error:
            return {"error": str(error), "kind": ENDED}
        except Exception as error:  # noqa: BLE001 - the harness must learn of it; the agent must live on to heal
            self.board.say(f"{name} failed: {error!r}")
            number = error.errno if isinstance(error, OSError) else None
            return {"error": str(error), "kind": type(error).__name__, "errno": number}


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Read the last line of a request. Raises ConnectionError if it is cut or too long."""
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = await reader.read(min(_CHUNK_BYTES, LINE_BYTES_MAX - len(line)))
        if not chunk:
            raise ConnectionError(f"a request is no line of at most {LINE_BYTES_MAX} bytes")
        line += chunk
    return bytes(line)
