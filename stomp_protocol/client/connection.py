"""A client's connection to a broker, which knows the outcome of each operation exactly.

Why exact outcomes: a program that repeats what was done makes a duplicate, and one that gives up
what was not done loses it. ``ok`` is a RECEIPT. ``fail`` is said only of what certainly did not
happen. Either no byte of its frame was handed to the network, or the broker said that it had
refused the frame before processing, as far as the settings show. Everything else is ``info``: a
time-out, a connection lost after the first byte, an ERROR of unknown kind, any exception.

Why the client closes early: when a broker hears nothing from a client, it gives the client's
messages to others. The client must have closed by then, or two clients would believe to hold one
message. So a connection on which the broker has been silent for 2.5 heart-beats closes itself.
Bytes that arrive later are not read, not even those that waited in the socket while this process
was stopped.

Why operations are objects with ``complete``: there are tens of thousands a second, and a future and
a task for each would cost more than the work. All frames of one turn of the loop leave in one
write.
"""

# ruff: noqa: D102 - asyncio.Protocol says what its methods mean
from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from stomp_protocol.client.settings import Settings
from stomp_protocol.codec import Parser, encode
from stomp_protocol.errors import RemoteProtocolError
from stomp_protocol.frames import Frame
from stomp_protocol.limits import Limits

FAREWELL_S: Final = 1.0
_TICK_S: Final = 0.1
_RESET: Final = struct.pack("ii", 1, 0)
_LIMITS: Final = Limits(max_body_bytes=64 * 1024 * 1024)


class ReceiptWaiter(Protocol):
    """An operation that waits for a receipt."""

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - the name that histories have for it
        """Take the outcome, "ok", "fail" or "info"; ``error`` says why it is not "ok".

        It is called exactly once.
        """
        ...


class ConnectError(Exception):
    """A failed attempt to connect, in which the broker was asked for nothing but a login.

    The text says why in a few words. ``redirect`` is the address that the broker named instead, ""
    where it named none.
    """

    def __init__(self, reason: str, redirect: str = "") -> None:
        super().__init__(reason)
        self.redirect = redirect


class Connection(asyncio.Protocol):
    """A connection, from ``connect`` to its end, which comes once.

    ``ended`` then has the reason, or the exception of a bug in the code that uses the connection.

    ``node`` is the name by which the client knows the broker, ``broker`` the broker's name for
    itself in CONNECTED, else ``node``. ``clean`` says whether the broker has confirmed the end.
    ``on_message`` gets MESSAGE frames; ``on_end`` is called after every open operation is
    completed.
    """

    __slots__ = (
        "_beat_s", "_farewell", "_flushing", "_fresh", "_heard", "_loop", "_out", "_parser", "_pending",
        "_receipt", "_redirect", "_said", "_settings", "_silence_s", "_tick", "_transport", "_welcome",
        "broker", "clean", "closed", "ended", "feeds", "node", "number", "on_end", "on_message", "refused",
        "store_session",
    )  # fmt: skip

    def __init__(self, node: str, settings: Settings) -> None:
        self._loop = asyncio.get_running_loop()
        self.node = node
        self.broker = node
        self.number: int | None = None
        """The number that its user gives it, if any, once the broker has accepted it."""
        self.store_session: str | None = None
        """The name of the store in which the broker keeps what is sent on this connection.

        Brokers may take over stores from each other: a client that repeats the name at its next
        connection is led to the broker that owns the store then."""
        self.feeds: Sequence[str] = ()
        """The destinations of the feeds that the broker says it has."""
        self._redirect = ""
        self.closed = False
        self.clean = False
        self.refused = False
        """True if the broker has ended the connection with an ERROR."""
        self.on_message: Callable[[Frame], None] = ignore
        self.on_end: Callable[[str], None] = ignore
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self._welcome: asyncio.Future[None] = self._loop.create_future()
        self._farewell: asyncio.Future[str] | None = None
        self._settings = settings
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
        """Send a frame and ask for a receipt.

        ``head`` is the command and header lines, each with its line end.

        The operation is completed later, never before this returns; the connection must not be
        closed.
        """
        assert not self.closed, "a request on a closed connection"
        self._receipt += 1
        receipt = str(self._receipt)
        self._pending[receipt] = (operation, self._loop.time() + self._settings.operation_timeout_s)
        self._fresh.append(receipt)
        if body:
            self._write(b"%breceipt:%d\ncontent-length:%d\n\n%b\0" % (head, self._receipt, len(body), body))
        else:
            self._write(b"%breceipt:%d\n\n\0" % (head, self._receipt))

    def when_answered(self, done: Callable[[], None]) -> None:
        """Call ``done`` once the broker has confirmed every operation that is open now.

        It is not called if one of them ends otherwise.
        """
        if not self._pending:
            done()
            return
        batch = _Batch(len(self._pending), done)
        for receipt, (operation, deadline) in self._pending.items():
            self._pending[receipt] = (_Counted(operation, batch), deadline)

    async def finish(self) -> None:
        """Send DISCONNECT, wait a moment for the answer, and close.

        Operations that are still open then end as ``info``. A caller that was cancelled while it
        waited may call again: DISCONNECT is sent once.
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
        """True if DISCONNECT was sent: no frame may follow it."""
        return self._farewell is not None

    def close(self, reason: str) -> None:
        """End the connection now.

        Frames that were not sent yet are dropped, and nothing that arrives later is read.
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
            # Bytes that the kernel has not delivered when we close must not arrive later, behind
            # the frames of newer connections.
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
        settings = self._settings
        self.broker = headers.get(settings.name_header or "", self.node)
        self.store_session = headers.get(settings.store_header or "")
        self.feeds = headers.get("feeds", "").split(",")
        sends, _, wants = headers.get("heart-beat", "0,0").partition(",")
        sends_ms, wants_ms = _milliseconds(sends), _milliseconds(wants)
        # A side that said 0 neither sends nor wants heart-beats, whatever the other side could do.
        if sends_ms and settings.heart_beat_s:
            self._silence_s = settings.silent_beats * max(settings.heart_beat_s, sends_ms / 1000)
        if wants_ms and settings.heart_beat_s:
            self._beat_s = max(settings.heart_beat_s, wants_ms / 1000)
        self._welcome.set_result(None)
        self._tick = self._loop.call_later(_TICK_S, self._look)

    def _refused(self, frame: Frame) -> None:
        """Close the connection because of an ERROR, or of a frame that makes no sense here.

        A broker closes after an ERROR (STOMP 1.2, "ERROR"). An operation whose receipt the ERROR
        names is completed.
        """
        if frame.command != "ERROR":
            self.close(f"unexpected {frame.command}")
            return
        self.refused = True
        text = frame.headers.get("message", "no message")[:120]
        self._redirect = frame.headers.get(self._settings.redirect_header or "", "")
        found = self._pending.pop(frame.headers.get("receipt-id", ""), None)
        if found is not None:
            certain = self._settings.refused(frame.headers)
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
        # From here on any of these frames may have taken effect, even if write raises.
        self._fresh.clear()
        out, self._out = self._out, []
        self._said = self._loop.time()
        transport.write(b"".join(out))

    def _look(self) -> None:
        """Close a silent connection, end overdue operations, send a heart-beat that is due.

        It runs again when the first of these can be necessary.
        """
        if self.closed:
            return
        now = self._loop.time()
        if self._silence_s and now - self._heard > self._silence_s:
            # After a pause of this process, bytes may wait that came in time; data_received refuses
            # them, too.
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
        """Return the loop time at which ``_look`` may have something to do.

        No operation that begins later can be overdue before the latest of these moments.
        """
        moments = [self._loop.time() + self._settings.operation_timeout_s]
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
            return  # the task that waited was cancelled
        if bug is not None:
            self.ended.set_exception(bug)
        else:
            self.ended.set_result(reason)

    async def log_in(self, store_session: str | None, headers: Mapping[str, str]) -> None:
        """Send CONNECT and wait for CONNECTED. Raises ConnectError."""
        settings = self._settings
        login = {
            "accept-version": "1.2",
            "host": self.node if settings.virtual_host is None else settings.virtual_host,
            "login": settings.login,
            "passcode": settings.passcode,
        }
        if store_session is not None and settings.store_header is not None:
            login[settings.store_header] = store_session
        beat_ms = round(settings.heart_beat_s * 1000)
        self._write(encode("CONNECT", {**login, **headers, "heart-beat": f"{beat_ms},{beat_ms}"}))
        await self._welcome


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation that passes its outcome to ``answer``, and nothing else."""

    answer: Callable[[str], None]

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002, ARG002 - ReceiptWaiter's
        """See ``ReceiptWaiter``."""
        self.answer(type)


@dataclass(slots=True)
class _Batch:
    """The number of operations of a batch that are not confirmed yet."""

    open: int
    done: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Counted:
    """An operation of a batch."""

    operation: ReceiptWaiter
    batch: _Batch

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """See ``ReceiptWaiter``."""
        self.operation.complete(type, error)
        if type == "ok":
            self.batch.open -= 1
            if not self.batch.open:
                self.batch.done()


async def connect(
    host: str,
    port: int,
    settings: Settings,
    *,
    node: str = "",
    store_session: str | None = None,
    headers: Mapping[str, str] | None = None,
    on_transport: Callable[[], None] = lambda: None,
) -> Connection:
    """Connect to a broker and log in. Raises ConnectError, with the reason, within ``connect_s``.

    Nothing stays open then. If the operating system refuses the connection, its error is the cause.

    ``node`` is the client's name for the broker, ``store_session`` that of the connection before,
    if the broker gave it one; ``headers`` are further ones of CONNECT, such as client-id.
    ``on_transport`` is called between the two steps, when the broker can be reached.
    """
    connection = Connection(node or host, settings)
    tls: dict[str, Any] = {} if settings.tls is None else {"ssl": settings.tls}
    try:
        async with asyncio.timeout(settings.connect_s):
            try:
                await asyncio.get_running_loop().create_connection(lambda: connection, host, port, **tls)
            except (ValueError, OverflowError) as error:  # no host or port: a broker told the address
                raise ConnectError("no address of a broker") from error
            on_transport()
            await connection.log_in(store_session, headers or {})
    except BaseException as error:
        connection.close("not connected")
        if isinstance(error, TimeoutError):
            raise ConnectError("no answer in time") from None
        if isinstance(error, OSError):
            raise ConnectError(_words(error)) from error
        raise
    return connection


def _milliseconds(text: str) -> int:
    """Return a number of a heart-beat header; 0, no heart-beats, for what is none or absurd."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _words(error: Exception) -> str:
    """Return a few words for an error, the same on every loop: they become a dictionary column."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return type(error).__name__


def ignore(_: object) -> None:
    """Do nothing: the default of callbacks."""
