"""One client connection to a broker.

Frames out, receipts back, and the exact knowledge of what happened to each.

Why our own client: a history is worth what its outcomes are worth. ``ok`` is a RECEIPT. ``fail`` is
said only of what certainly did not happen: no byte of its frame was handed to the network, or the
broker said that it had refused it before processing (as far as the dialect can tell). Everything
else is ``info``: a time-out, a connection lost after the first byte, an ERROR of unknown kind, any
exception.

Why it lets go early: when a broker hears nothing from a client it gives the client's messages to
others. The client must have closed by then, or two would believe to hold one message. So a
connection on which the broker has been silent for 2.5 heart-beats closes itself, and what arrives
later is not read: not even bytes that waited in the socket while this process was stopped.

Why operations are objects with ``complete``: tens of thousands a second; a future and a task for
each would cost more than the work. All frames of one turn of the loop leave in one write.
"""

# ruff: noqa: D102 - asyncio.Protocol says what its methods mean
from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from harness.interface import Address, Dialect, InfrastructureError
from harness.interface.errors import exhausted
from stomp_protocol.codec import Parser, encode
from stomp_protocol.errors import RemoteProtocolError
from stomp_protocol.frames import Frame
from stomp_protocol.limits import Limits

FAREWELL_S: Final = 1.0
_TICK_S: Final = 0.1
_RESET: Final = struct.pack("ii", 1, 0)
_LIMITS: Final = Limits(max_body_bytes=64 * 1024 * 1024)


class ReceiptWaiter(Protocol):
    """What waits for a receipt."""

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - the history's own name for it
        """Called exactly once: "ok", "fail" or "info"; ``error`` says why it is not ok."""
        ...


class ConnectError(Exception):
    """No connection came about, and nothing was asked of the broker but to log in.

    Says why in a few words.

    ``redirect`` is the address that the broker named instead, "" where it named none.
    """

    def __init__(self, reason: str, redirect: str = "") -> None:
        super().__init__(reason)
        self.redirect = redirect


class Connection(asyncio.Protocol):
    """From ``connect`` to its end, which comes once.

    ``ended`` then has the reason, or the exception of a bug in who uses it.

    ``broker`` is what the broker calls itself in CONNECTED, else the node's name. ``clean`` tells
    whether the broker has confirmed the end. ``on_message`` gets MESSAGE frames; ``on_end`` is
    called after every open operation is completed.
    """

    __slots__ = (
        "_beat_s", "_dialect", "_farewell", "_flushing", "_fresh", "_heard", "_loop", "_out", "_parser",
        "_pending", "_receipt", "_redirect", "_said", "_silence_s", "_tick", "_timeout_s", "_transport",
        "_welcome", "broker", "clean", "closed", "ended", "node", "number", "on_end", "on_message",
        "refused", "store_session",
    )  # fmt: skip

    def __init__(self, node: str, dialect: Dialect, operation_timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.node = node
        self.broker = node
        self.number: int | None = None
        """Its number in the history, once it has come about."""
        self.store_session: str | None = None
        """Names the store in which the broker keeps what comes here.

        Brokers may take over stores from each other: said again at the next connection, it leads to
        whoever owns that store then."""
        self._redirect = ""
        self.closed = False
        self.clean = False
        self.refused = False
        """Whether the broker ends it with an ERROR."""
        self.on_message: Callable[[Frame], None] = ignore
        self.on_end: Callable[[str], None] = ignore
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self._welcome: asyncio.Future[None] = self._loop.create_future()
        self._farewell: asyncio.Future[str] | None = None
        self._dialect = dialect
        self._timeout_s = operation_timeout_s
        self._parser = Parser(_LIMITS)
        self._transport: asyncio.Transport | None = None
        self._pending: dict[str, tuple[ReceiptWaiter, float]] = {}  # in order of their deadlines
        self._fresh: list[str] = []  # receipts of frames of which no byte has left
        self._receipt = 0
        self._out: list[bytes] = []
        self._flushing = False
        self._heard = self._said = self._loop.time()
        self._beat_s = 0.0
        self._silence_s = 0.0
        self._tick: asyncio.TimerHandle | None = None

    # --------------------------------------------------------------------------------- for its user

    def request(self, head: bytes, operation: ReceiptWaiter, body: bytes = b"") -> None:
        """Send a frame with a receipt.

        ``head`` is the command and header lines, each with its line end.

        The operation is completed later, never before this returns; the connection must not be
        closed.
        """
        assert not self.closed, "a request on a closed connection"
        self._receipt += 1
        receipt = str(self._receipt)
        self._pending[receipt] = (operation, self._loop.time() + self._timeout_s)
        self._fresh.append(receipt)
        if body:
            self._write(b"%breceipt:%d\ncontent-length:%d\n\n%b\0" % (head, self._receipt, len(body), body))
        else:
            self._write(b"%breceipt:%d\n\n\0" % (head, self._receipt))

    async def finish(self) -> None:
        """Say DISCONNECT, wait a moment for the answer, close.

        Operations still open then end as ``info``. Who was cancelled while it waited may ask again:
        it is said once.
        """
        if not self.closed:
            if self._farewell is None:
                self._farewell = self._loop.create_future()
                self.request(b"DISCONNECT\n", Asked(self._farewell.set_result))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    self.clean = await asyncio.shield(self._farewell) == "ok"
            self.close("disconnected")

    @property
    def leaving(self) -> bool:
        """Whether DISCONNECT was said: no frame may follow it."""
        return self._farewell is not None

    def close(self, reason: str) -> None:
        """End the connection now.

        Nothing that was not yet sent will be, nothing that arrives later is read.
        """
        self._end(reason, None)

    # -------------------------------------------------------------------------------- from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            # What the kernel has not yet delivered when we let go must not arrive later, behind
            # newer connections' frames.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        now = self._loop.time()
        if self._silence_s and now - self._heard > self._silence_s:
            self.close("broker silent")
            return
        self._heard = now
        damage = None
        try:
            frames = self._parser.feed(data)
        except RemoteProtocolError as error:
            frames, damage = error.frames, str(error)
        try:
            self._take(frames)
        except Exception as bug:  # noqa: BLE001 - a bug of ours ends the run, but every operation is completed first
            self._end("internal error", bug)
        if damage is not None:
            self.close(f"not STOMP: {damage}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(_words(exc) if exc is not None else "connection closed by the broker")

    # --------------------------------------------------------------------------------------- inside

    def _take(self, frames: list[Frame]) -> None:
        pending = self._pending
        for frame in frames:
            command = frame.command
            if command == "MESSAGE":
                self.on_message(frame)
            elif command == "RECEIPT":
                found = pending.pop(frame.headers.get("receipt-id", ""), None)
                if found is not None:
                    found[0].complete("ok", None)
            elif command == "CONNECTED" and not self._welcome.done():
                self._welcomed(frame.headers)
            else:
                self._refused(frame)
            if self.closed:
                return

    def _welcomed(self, headers: dict[str, str]) -> None:
        dialect = self._dialect
        self.broker = headers.get(dialect.name_header or "", self.node)
        self.store_session = headers.get(dialect.store_header or "")
        sends, _, wants = headers.get("heart-beat", "0,0").partition(",")
        sends_ms = int(sends) if sends.isdigit() else 0
        wants_ms = int(wants) if wants.isdigit() else 0
        # A side that said 0 takes part in none, whatever the other one could do.
        if sends_ms and dialect.heart_beat_s:
            self._silence_s = dialect.silent_beats * max(dialect.heart_beat_s, sends_ms / 1000)
        if wants_ms and dialect.heart_beat_s:
            self._beat_s = max(dialect.heart_beat_s, wants_ms / 1000)
        self._welcome.set_result(None)
        self._tick = self._loop.call_later(_TICK_S, self._look)

    def _refused(self, frame: Frame) -> None:
        """Takes in an ERROR, or a frame that makes no sense here.

        A broker closes after an ERROR (STOMP 1.2, "ERROR").
        """
        if frame.command != "ERROR":
            self.close(f"unexpected {frame.command}")
            return
        self.refused = True
        text = frame.headers.get("message", "no message")[:120]
        self._redirect = frame.headers.get(self._dialect.redirect_header or "", "")
        found = self._pending.pop(frame.headers.get("receipt-id", ""), None)
        if found is not None:
            certain = self._dialect.refused(frame.headers)
            found[0].complete("fail" if certain else "info", f"refused: {text}")
        self.close(f"broker said: {text}")

    def _write(self, data: bytes) -> None:
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        if self.closed or transport is None or transport.is_closing():
            return
        # From here on nothing of these is certain not to have happened, even if write raises.
        self._fresh.clear()
        out, self._out = self._out, []
        self._said = self._loop.time()
        transport.write(b"".join(out))

    def _look(self) -> None:
        """Has the broker fallen silent, is an operation overdue, is a heart-beat due?

        Asked again when the first of these can be.
        """
        if self.closed:
            return
        now = self._loop.time()
        if self._silence_s and now - self._heard > self._silence_s:
            # After a pause of this process bytes may wait that were in time; data_received refuses
            # them all the same.
            self.close("broker silent")
            return
        try:
            self._expire(now)
        except Exception as bug:  # noqa: BLE001 - as in data_received
            self._end("internal error", bug)
            return
        if self._beat_s and now - self._said >= self._beat_s - _TICK_S:
            self._write(b"\n")
            self._said = now
        self._tick = self._loop.call_later(max(_TICK_S, self._next_look() - now), self._look)

    def _next_look(self) -> float:
        """When something may have to be done.

        No operation that begins later can be overdue sooner than the last of these.
        """
        moments = [self._loop.time() + self._timeout_s]
        if self._silence_s:
            moments.append(self._heard + self._silence_s)
        if self._beat_s:
            moments.append(self._said + self._beat_s - _TICK_S)
        if self._pending:
            moments.append(next(iter(self._pending.values()))[1])
        return min(moments)

    def _expire(self, now: float) -> None:
        pending = self._pending
        while pending and not self.closed:
            receipt, (operation, deadline) = next(iter(pending.items()))
            if deadline > now:
                return
            del pending[receipt]
            operation.complete("info", "time-out")

    def _end(self, reason: str, bug: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        if self._tick is not None:
            self._tick.cancel()
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()
        fresh = set(self._fresh)
        pending, self._pending = self._pending, {}
        for receipt, (operation, _) in pending.items():
            try:
                if receipt in fresh:
                    operation.complete("fail", f"not sent: {reason}")
                else:
                    operation.complete("info", reason)
            except Exception as error:  # noqa: BLE001 - the others must be completed too
                bug = bug or error
        try:
            self.on_end(reason)
        except Exception as error:  # noqa: BLE001 - as above
            bug = bug or error
        if not self._welcome.done():
            self._welcome.set_exception(ConnectError(reason, self._redirect))
            self._welcome.exception()
        if self.ended.done():
            return  # whoever waited was cancelled
        if bug is not None:
            self.ended.set_exception(bug)
        else:
            self.ended.set_result(reason)

    async def log_in(self, store_session: str | None = None, client_id: str | None = None) -> None:
        """CONNECT and wait for CONNECTED. Raises ConnectError."""
        dialect = self._dialect
        headers = {
            "accept-version": "1.2",
            "host": self.node if dialect.virtual_host is None else dialect.virtual_host,
            "login": dialect.login,
            "passcode": dialect.passcode,
        }
        if store_session is not None and dialect.store_header is not None:
            headers[dialect.store_header] = store_session
        if client_id is not None and dialect.topics is not None:
            headers[dialect.topics.client] = client_id
        beat_ms = round(dialect.heart_beat_s * 1000)
        self._write(encode("CONNECT", {**headers, "heart-beat": f"{beat_ms},{beat_ms}"}))
        await self._welcome


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation of which only the outcome is wanted, by ``answer``."""

    answer: Callable[[str], None]

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002, ARG002 - ReceiptWaiter's
        """See ``ReceiptWaiter``."""
        self.answer(type)


async def connect(
    address: Address,
    node: str,
    dialect: Dialect,
    *,
    operation_timeout_s: float,
    store_session: str | None = None,
    client_id: str | None = None,
) -> Connection:
    """A logged-in connection.

    Raises ConnectError within the dialect's time, saying why; InfrastructureError if this machine
    has nothing to connect with. Nothing stays open then.

    ``store_session`` is that of the connection before, if the broker gave it one; ``client_id`` is
    what the client calls itself.
    """
    loop = asyncio.get_running_loop()
    connection = Connection(node, dialect, operation_timeout_s)
    try:
        async with asyncio.timeout(dialect.connect_s):
            await loop.create_connection(lambda: connection, address.host, address.port)
            await connection.log_in(store_session, client_id)
    except BaseException as error:
        connection.close("not connected")
        if isinstance(error, TimeoutError):
            raise ConnectError("no answer in time") from None
        spent = exhausted(error)
        if spent is not None:  # says nothing about the broker
            raise InfrastructureError(f"a client could not connect: {spent}") from error
        if isinstance(error, OSError):
            raise ConnectError(_words(error)) from None
        raise
    return connection


def _words(error: Exception) -> str:
    """A few words, the same for the same cause on every loop: they become a dictionary column."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return type(error).__name__


def ignore(_: object) -> None:
    """For who needs not be told."""
