"""The conversation between the harness and its local agent: JSON lines over a unix socket.

A request is ``{"id": n, "do": name, "with": {...}}``, its answer ``{"id": n, "ok": value}`` or
``{"id": n, "error": [kind, text]}``. Answers come in any order, because waiting for a broker's exit
takes as long as the broker lives. The error's kind keeps apart whose fault it is: the machine's
("infrastructure"), the caller's ("usage"), or our own ("internal").
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from environments.board import FaultBoard
from environments.lease import LeaseExpiredError
from harness.interface import InfrastructureError, Link, UsageError

LINE_BYTES_MAX: Final = 16 << 20

_ADDRESS_BYTES_MAX: Final = 100
"""A unix socket's path holds 107 bytes on Linux.

Directories of tests and stores are easily longer.
"""

Handler = Callable[..., Awaitable[Any]]


class _Request(msgspec.Struct):
    id: int
    do: str
    arguments: dict[str, Any] = msgspec.field(name="with", default_factory=dict)


class _Answer(msgspec.Struct, omit_defaults=True):
    id: int
    ok: Any = None
    error: tuple[str, str] | None = None


def fault_handlers(board: FaultBoard) -> dict[str, Handler]:
    """The requests about faults."""

    async def inject(
        primitive: str, links: Sequence[Any], nodes: Sequence[str], options: Mapping[str, Any], lease_s: float
    ) -> str:
        return await board.inject(primitive, msgspec.convert(links, list[Link]), nodes, options, lease_s)

    return {"inject": inject, "renew": board.renew, "heal": board.heal, "heal-all": board.heal_all}


@contextlib.contextmanager
def short_path(path: Path) -> Any:
    """A name for ``path`` that fits into a unix socket's address, valid within the context."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class ControlServer:
    """The agent's side.

    ``connected`` is how many harnesses are there; ``on_change`` is called when it changes.
    """

    def __init__(self, handlers: Mapping[str, Handler], on_change: Callable[[], None]) -> None:
        self.connected = 0
        self._handlers = handlers
        self._on_change = on_change
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        """Accepts requests on a unix socket that only its owner may use.

        Its directory is private.
        """
        with short_path(path) as address:
            self._server = await asyncio.start_unix_server(self.serve, address, limit=LINE_BYTES_MAX)

    def close(self) -> None:
        """Accept no more; what is being answered is answered."""
        if self._server is not None:
            self._server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one harness until it goes away.

        For `listen`, or for a connection that was made in another way.
        """
        self.connected += 1
        self._on_change()
        tasks: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                request = msgspec.json.decode(line, type=_Request)
                task = asyncio.create_task(self._answer(request, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (ConnectionError, ValueError, msgspec.DecodeError):
            pass  # the harness was killed within a line, or it is no harness
        finally:
            for task in tasks:
                task.cancel()
            writer.close()
            self.connected -= 1
            self._on_change()

    async def _answer(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        try:
            handler = self._handlers[request.do]
            answer = _Answer(request.id, ok=await handler(**request.arguments))
        except InfrastructureError as error:
            answer = _Answer(request.id, error=("infrastructure", str(error)))
        except LeaseExpiredError as error:
            late = "healed before its time; was the harness held up (overloaded machine, suspend)?"
            answer = _Answer(request.id, error=("infrastructure", f"{error}: the fault was {late}"))
        except (UsageError, ValueError) as error:
            answer = _Answer(request.id, error=("usage", str(error)))
        except Exception as error:  # noqa: BLE001 - the harness must learn of it; the agent must live on to heal
            answer = _Answer(request.id, error=("internal", f"{type(error).__name__}: {error}"))
        if writer.is_closing():  # nobody waits for it; uvloop's transports then refuse to be written to
            return
        with contextlib.suppress(ConnectionError):
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()


class ControlClient:
    """The harness' side: one connection, any number of requests at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._lost = ""
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def connect(cls, path: Path) -> ControlClient:
        """Connect to an agent. Raises OSError when there is none."""
        with short_path(path) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=LINE_BYTES_MAX)
        return cls(reader, writer)

    async def call(self, do: str, *, timeout_s: float | None = 30.0, **arguments: Any) -> Any:
        """Ask the agent for something.

        Raises InfrastructureError, also when the agent is gone, or UsageError.
        """
        if self._lost:
            raise InfrastructureError(self._lost)
        number = self._next
        self._next += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        if (
            not self._writer.is_closing()
        ):  # else uvloop's transport refuses to be written to, and `_read` is about to tell
            self._writer.write(msgspec.json.encode(_Request(number, do, arguments)) + b"\n")
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise InfrastructureError(
                f"the local agent did not answer {do!r} within {timeout_s:.0f} s"
            ) from None
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the conversation; whoever still waits gets InfrastructureError."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                answer = msgspec.json.decode(line, type=_Answer)
                waiting = self._waiting.get(answer.id)
                if waiting is None or waiting.done():
                    continue
                if answer.error is None:
                    waiting.set_result(answer.ok)
                else:
                    waiting.set_exception(_error(*answer.error))
        except ConnectionError:
            pass
        finally:
            self._lost = (
                "the local agent is gone (was it killed?); `jepsen-run clean` ends what it had started"
            )
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(InfrastructureError(self._lost))


def _error(kind: str, text: str) -> Exception:
    if kind == "infrastructure":
        return InfrastructureError(text)
    if kind == "usage":
        return UsageError(text)
    return RuntimeError(f"the local agent failed: {text}; this is a bug of jepsen-run, please report it")
