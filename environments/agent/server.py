"""What every agent is: a board of faults, and a server that the harness asks about them."""

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


class Agent:
    """What the harness can ask; each ``do_<operation>`` is one request (``agent.control``).

    ``ended`` is set when it is to end.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = (RuntimeError,)
    """Errors that say that whoever asked is at fault, not the machine."""

    def __init__(self, token: str, board: FaultBoard) -> None:
        self.board = board
        self.ended = asyncio.Event()
        self.do_renew, self.do_heal, self.do_heal_all = board.renew, board.heal, board.heal_all
        self._token = token

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Take requests; port 0 is any that is free. Raises OSError."""
        return await asyncio.start_server(self._answer, host, port, limit=LINE_BYTES_MAX)

    def encode(self, answer: dict[str, Any]) -> bytes:
        """As JSON."""
        return json.dumps(answer).encode()

    def heard(self) -> None:
        """Somebody is there who has the token."""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                request = json.loads(await reader.readline())
            answer = await self._while_wanted(reader, self._execute(request))
            if answer is None or writer.is_closing():  # uvloop's transports then refuse to be written to
                return
            writer.write(self.encode(answer) + b"\n")
            await writer.drain()
        except (OSError, KeyError, TypeError, ValueError):
            pass  # whoever asked has gone, or never was one of ours
        finally:
            writer.close()

    async def _while_wanted(
        self, reader: asyncio.StreamReader, execution: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any] | None:
        """The answer, or None once nobody waits: who gives up on a broker's exit hangs up."""
        executing = asyncio.ensure_future(execution)
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((executing, gone), return_when=asyncio.FIRST_COMPLETED)
            return await executing if executing.done() else None
        finally:
            executing.cancel()
            gone.cancel()

    async def _execute(self, request: Any) -> dict[str, Any]:
        if not hmac.compare_digest(str(request["token"]), self._token):
            return {"error": "wrong token: this machine belongs to another deployment"}
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
