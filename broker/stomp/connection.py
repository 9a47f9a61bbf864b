"""One client's connection: bytes, heart-beats, and the end of it.

What the frames mean is ``session``'s.

Why a protocol and not streams: at tens of thousands of frames a second a task per connection and a
future per read cost more than the work. Everything written within one turn of the loop leaves in
one write.

Slow readers: above HIGH_WATER bytes not yet taken by the network, or gathered in one turn, the
session is told to dispatch nothing; it may go on when the network has caught up. Who asks for
receipts and reads none is read no more himself when UNREAD_MAX bytes wait for him.

Turns: what a client sent is parsed and handled as far as the budget of the turn goes
(``turn_budget``). The rest waits in order, as bytes: frames take ten times the memory, and when
many clients wait, frames that were parsed long ago have left the processor's cache. A client of
whom more comes meanwhile is not read. A frame whose work is long is done in slices, and those
behind it wait for its end. The end of the stream waits behind all of them, too.

Life signs: a connection from which nothing has come for its time to live is closed
(``connection-ttl``, or what was agreed as heart-beats; without either the system's keepalive finds
out who is gone). After a pause of this very process the timer may run before the bytes that wait in
the socket are read, so it gives them one more turn (openmq 69: load hides heart-beats).
"""

# ruff: noqa: D102 - asyncio.Protocol says what its methods mean
from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

from broker.core.engine import DemotedError, Engine
from broker.sections import AcceptorSection
from broker.stomp import websocket
from broker.stomp.headers import FrameRefusedError
from broker.stomp.keepalive import keep_alive
from broker.stomp.large import Streamed, Uploads
from broker.stomp.login import Admission
from broker.stomp.rights import Rights
from broker.storage.blobs import Blob
from broker.storage.errors import JournalError
from broker.strangers import StrangerLog, address_of
from broker.turn_budget import ESCAPE, FRAME, FRAME_LINES, FURTHER_LINE, PART
from stomp_protocol.codec import Parser
from stomp_protocol.errors import RemoteProtocolError
from stomp_protocol.frames import Frame
from stomp_protocol.limits import Limits
from stomp_protocol.versions import Version

HIGH_WATER: Final = 256 * 1024
UNREAD_MAX: Final = 4 * 1024 * 1024
GRACE_S: Final = 0.05
TICK_S: Final = 0.001
"""The shortest wait for a life sign.

What rounding leaves of a time to live may be too small for any clock to pass.
"""
PIECE_BYTES: Final = 8 * 1024
"""How many bytes are parsed at once, without interruption: hundreds of the shortest frames."""
LINGER_S: Final = 5.0
"""How long a closed connection may take to hand over its last bytes."""
STRANGER_LIMITS: Final = Limits(
    max_headers=32, max_header_line_bytes=8 * 1024, max_header_bytes=16 * 1024, max_body_bytes=1024
)
"""Before CONNECTED: who has not logged in needs no more than a CONNECT, and may make us remember
no more.
"""

_log = logging.getLogger(__name__)


class ConnectionServer(Protocol):
    """What serves all connections, as one of them sees it: see ``server``."""

    name: str
    acceptor: AcceptorSection
    engine: Engine
    limits: Limits
    rights: Rights
    admission: Admission | None
    warnings: StrangerLog
    strangers: dict[StompConnection, None]

    def met(self, connection: StompConnection) -> None:
        """A client has connected."""
        ...

    def objection(self, headers: Mapping[str, str]) -> str:
        """Why no client with this CONNECT may log in, "" if one may."""
        ...

    def recognise(self, connection: StompConnection, login: str, client_id: str) -> None:
        """A client that names itself has logged in."""
        ...

    def lost(self, connection: StompConnection) -> None:
        """A connection is no more."""
        ...


Work: TypeAlias = Generator[None]
"""A frame's work: each step is a slice, after which others may have their turn."""


class FrameHandler(Protocol):
    """What the frames of a connection mean, as the connection sees it: see ``session``."""

    name: str
    version: Version

    @property
    def logged_in(self) -> bool:
        """Has its CONNECT been accepted?"""
        ...

    def handle(self, frame: Frame) -> Work | None:
        """Do what a frame says, or return how to do it in slices. Raises RefusedError, as these."""
        ...

    def pause(self) -> None:
        """The connection takes no more for now: dispatch nothing."""
        ...

    def resume(self) -> None:
        """It does again."""
        ...

    def quiesce(self) -> None:
        """The broker is stopping cleanly: take no more frames, give back what is held."""
        ...

    def end(self) -> None:
        """The connection is gone."""
        ...


class StompConnection(asyncio.Protocol):
    """From accept to loss. ``number`` is unique within the engine's incarnation."""

    __slots__ = (
        "_beat_s", "_beat_timer", "_behind", "_blocked", "_budget", "_crowded", "_flushing", "_frames",
        "_front", "_heard", "_held", "_last_word", "_linger", "_loop", "_out", "_out_bytes", "_parser",
        "_reading", "_said", "_server", "_stranger", "_streaming", "_streams", "_transport", "_ttl_s",
        "_ttl_timer", "_unparsed", "_waits", "_wanted", "_work", "_writable", "_write_paused", "address",
        "client", "closing", "host", "number", "session", "uploads",
    )  # fmt: skip

    def __init__(
        self, server: ConnectionServer, number: int, session: Callable[[StompConnection], FrameHandler]
    ) -> None:
        self._server = server
        self.number = number
        self.host = self.address = "?"
        """Where the client is, for the log: without its port, and with it."""
        self.client: tuple[str, str] | None = None
        """Login and ``client-id`` of a client that named itself."""
        self._loop = asyncio.get_running_loop()
        self._front: Callable[[bytes], bytes] | None = self._greet
        """What has to be done to bytes that arrive before they are STOMP."""
        self._parser = Parser(STRANGER_LIMITS)
        self._stranger = True
        self._transport: asyncio.Transport
        self._out: list[bytes | Streamed] = []
        self._out_bytes = 0
        self._flushing = False
        self._write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._streams = 0  # in _out
        self._streaming: asyncio.Task[None] | None = None
        self._reading = self._wanted = True
        self._budget = server.engine.budget
        self._frames: deque[Frame] = deque()
        """Those that were not handled yet."""
        self._unparsed: deque[bytes | memoryview] = deque()
        """The bytes behind them. Between turns there are bytes or frames only while ``_waits``."""
        self._work: tuple[Frame, Work] | None = None
        """The rest of the work of the frame before them."""
        self._waits = False
        """For another turn."""
        self._held = False
        """Until ``release``."""
        self._crowded = False
        """More has come meanwhile; then the client is not read."""
        self._last_word: Callable[[], None] | None = None
        """What ends the connection once they are handled."""
        self._blocked = False
        self._behind = False
        self.closing = False
        self._heard = self._said = self._loop.time()
        self._ttl_s = server.acceptor.connect_timeout / 1000
        self._ttl_timer: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._beat_s = 0.0
        self._beat_timer: asyncio.TimerHandle | None = None
        self.uploads = Uploads(
            server.engine.large.store,
            server.engine.memory,
            go_on=self.go_on,
            refuse=self.error,
            block_reading=self.block_reading,
        )
        self.session = session(self)

    # -------------------------------------------------------------------------------- from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self.host = address_of(peer)
        self.address = f"{self.host}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else self.host
        raw = transport.get_extra_info("socket")
        if raw is not None:
            keep_alive(raw, self._server.acceptor.keep_alive)
        self._ttl_timer = self._loop.call_later(self._ttl_s, self._check_login)
        self._server.met(self)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self.closing or self._last_word is not None:
            return
        if self._front is not None:
            data = self._front(data)
        while self._stranger and data and not self.closing:
            data = self._meet(data)
        if data and not self.closing:
            self._take(data)

    def eof_received(self) -> bool:
        """Stay open while something waits: many clients send DISCONNECT, and close at once."""
        if not self._has_waiting_input:
            return False
        self._end_with(self.close)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self.closing = True
        self._server.lost(self)
        for timer in (self._ttl_timer, self._beat_timer, self._linger):
            if timer is not None:
                timer.cancel()
        self._out.clear()
        self._end()
        # Each of these points back to the connection. In a cycle, the connection would stay in
        # memory, with all that its client has sent, until a rare collection of old garbage.
        del self.session, self.uploads, self._transport, self._front

    def pause_writing(self) -> None:
        self._write_paused = True
        self.session.pause()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._balance_unread()
        self._may_deliver()

    # ------------------------------------------------------------------------------ for the session

    def write(self, *parts: bytes) -> None:
        """Send, at the end of this turn of the loop, together with all else."""
        if self.closing:
            return
        self._out += parts
        for part in parts:
            self._out_bytes += len(part)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        if self._write_paused or self._out_bytes > HIGH_WATER:
            if not self._write_paused:
                self.session.pause()
            self._balance_unread()

    def stream(self, head: bytes, body: Blob) -> None:
        """Send a frame whose body is in a file, in its turn.

        Nothing is dispatched until it is out.
        """
        store = self._server.engine.large.store
        assert store is not None, "a large body where none can be kept"
        if not self.closing:
            store.hold(body)
            self._out.append(Streamed(head, body))
            self._streams += 1
            self.session.pause()
            if not self._flushing:
                self._flushing = True
                self._loop.call_soon(self._flush)

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back after this turn of the loop, if the connection still is there."""
        self._loop.call_soon(lambda: None if self.closing else callback())

    def error(
        self, message: str, receipt: str | None = None, *headers: tuple[str, str], logged: str = ""
    ) -> None:
        """Say what is wrong, and close: nothing comes after an ERROR frame (STOMP 1.2, "ERROR").

        The broker's log has the text ``logged``, or the same where that is "".
        """
        if self.closing:
            return
        self._server.warnings.tell(self.host, f"{self.session}: {logged or message}")
        body = message.encode()
        lines = [
            ("message", message[:200]),
            *headers,
            ("content-type", "text/plain"),
            ("content-length", str(len(body))),
        ]
        if receipt is not None:
            lines.insert(1, ("receipt-id", receipt))
        if self._streaming is not None:
            self.abort()  # within the body of another frame nothing can be said
            return
        line = self.session.version.header_line
        self.write(b"ERROR\n", *(line(name, value) for name, value in lines), b"\n", body, b"\0")
        self.close()

    def close(self) -> None:
        """Hand over what is written, then close.

        The session ends now: its messages go to others.
        """
        if self.closing:
            return
        self._flush()
        if self._streaming is not None:
            self.abort()
            return
        self.closing = True
        self._transport.close()
        self._linger = self._loop.call_later(LINGER_S, self._transport.abort)
        self._end()

    def abort(self) -> None:
        """Cut the connection: what was not handed to the network is never sent."""
        self.closing = True
        self._transport.abort()
        self._end()
        self._out.clear()

    def go_on(self, frames: list[Frame]) -> None:
        """Handle frames that waited for a body, before those behind them."""
        if not self.closing:
            self._frames.extendleft(reversed(frames))
            if not self._waits:
                self._go_through()

    def hold(self) -> None:
        """Handle no more frames until ``release``: the broker needs an answer from another one."""
        self._held = True

    def release(self, frame: Frame, work: Work) -> None:
        """Do the rest of the work of the frame that needed the answer, and go on behind it."""
        self._held = False
        if not self.closing:
            self._work = frame, work
            self._next_turn()

    def set_reading(self, reading: bool) -> None:
        """Stop or go on reading: how a producer is made to wait."""
        self._wanted = reading
        self._balance_reading()

    def block_reading(self, blocked: bool) -> None:
        """The same for a large body that waits for the disk, whatever else holds."""
        self._blocked = blocked
        self._balance_reading()

    def _balance_reading(self) -> None:
        reading = self._wanted and not (self._blocked or self._behind or self._crowded)
        if reading is not self._reading and not self.closing:
            self._reading = reading
            if reading:
                if self.was_reset():
                    return
                self._heard = self._loop.time()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _balance_unread(self) -> None:
        """Stop reading a client that leaves too much unread, until the network has caught up."""
        behind = self._out_bytes + self._transport.get_write_buffer_size() > UNREAD_MAX
        if behind is not self._behind and (behind or not self._write_paused):
            self._behind = behind
            self._balance_reading()

    def was_reset(self) -> bool:
        """Has the peer cut the connection while it was not read?

        Then it is over, and what had come on it is not taken.

        Without this the reset would be seen only behind all that waits in the socket, when the
        client has long connected again. The simulated network has no sockets to ask; there, as
        after a mere end of the stream, only ``client-id`` tells that the client is another's.
        """
        raw = self._transport.get_extra_info("socket")
        if raw is None or not raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        self.abort()
        return True

    def begin_heart_beats(self, beat_ms: int, ttl_ms: int) -> None:
        """From now on send something every ``beat_ms``, and expect something within ``ttl_ms``.

        0: not at all.
        """
        if self._ttl_timer is not None:
            self._ttl_timer.cancel()
        self._ttl_timer = None
        self._ttl_s = ttl_ms / 1000
        if ttl_ms:
            self._ttl_timer = self._loop.call_later(self._ttl_s, self._check_life)
        if beat_ms:
            self._beat_s = beat_ms / 2000  # half of it: then no gap is longer than the whole
            self._beat_timer = self._loop.call_later(self._beat_s, self._beat)

    # --------------------------------------------------------------------------------------- inside

    def _greet(self, data: bytes) -> bytes:
        """The first bytes tell whether the client speaks plain STOMP or comes by WebSocket."""
        if not data.startswith(websocket.FIRST_BYTE):
            self._front = None
            return data
        self._transport = web = websocket.WebSocket(
            self._transport,
            self._server.acceptor.origins,
            more=partial(self.data_received, b""),
            ended=self._web_ended,
        )
        self._front = web.receive
        return web.receive(data)

    def _web_ended(self, reason: str) -> None:
        """After what came before the end has been handled."""
        last_word = partial(self.error, reason) if reason else self.close
        self.soon(partial(self._end_with, last_word))

    def _end(self) -> None:
        if self._streaming is not None:
            self._streaming.cancel()
        for streamed in self._out:
            if isinstance(streamed, Streamed):
                self._let_go(streamed.body)
        self._streams = 0
        self._out = []
        self._drop_frames()
        self.session.end()
        self.uploads.end()

    def _meet(self, data: bytes) -> bytes:
        """Take one frame of a client that has not logged in.

        What of ``data`` is behind it is another's if it has logged in now.

        No such frame has a body, so its NUL ends it.
        """
        end = data.find(0) + 1 or len(data)
        self._take(data[:end])
        if self.session.logged_in:
            self._stranger = False
            self._parser = Parser(self._server.limits, self.session.version)
            self._server.strangers.pop(self, None)
        return data[end:]

    def _take(self, data: bytes) -> None:
        """Parse and handle bytes, behind all that waits."""
        self._unparsed.append(data)
        if not self._waits:
            self._go_through()
        elif not self._crowded:
            self._crowded = True
            self._balance_reading()

    def _end_with(self, last_word: Callable[[], None]) -> None:
        """End the connection behind all that waits for its turn."""
        if not self._has_waiting_input:
            last_word()
        elif self._last_word is None:
            self._last_word = last_word

    @property
    def _has_waiting_input(self) -> bool:
        """Return whether something that the client has sent waits: for a turn, or for the disk."""
        return self._waits or self.uploads.is_whole

    def _next_turn(self) -> None:
        """Go on with what has waited for its turn."""
        if self.closing or self.was_reset():
            return
        self._go_through()
        if self._crowded and not self._waits and not self.closing:
            self._crowded = False
            self._balance_reading()

    def _go_through(self) -> None:
        """Parse and handle what waits, as far as the share of this turn goes."""
        budget, frames, watch = self._budget, self._frames, self._budget.watch
        floor = budget.floor()
        budget.spend(0)  # so the budget is renewed after this turn, whatever is taken from it
        began = 0.0 if watch is None else watch.now()
        self._waits = False
        while (frames or self._unparsed or self._work is not None) and not self.closing:
            if self._held:
                self._waits = True
                return
            if budget.left <= floor and not self._stranger:  # whose next bytes depend on this frame
                self._waits = True
                budget.wait(self._next_turn)
                return
            if self._work is not None:
                (frame, work), self._work = self._work, None
                self._do(frame, work)
            elif not frames:
                self._parse_piece()
                continue
            elif self.uploads.busy:
                budget.spend(PART * len(frames))
                self.uploads.take(list(frames))
                frames.clear()
                continue
            else:
                frame = frames.popleft()
                budget.left -= FRAME
                self._do(frame, None)
            if watch is not None:
                ended = watch.now()
                if ended - began > watch.longest_s:
                    watch.note(began, self._named, frame)
                began = ended
        if self.closing:
            self._drop_frames()
        elif self._last_word is not None and not self.uploads.is_whole:
            last_word, self._last_word = self._last_word, None
            last_word()

    def _parse_piece(self) -> None:
        """Turn the first of the bytes that wait into frames, all of which must be handled.

        Its lines and escapes cost, too: a frame may have a hundred headers, with an escape in each.
        """
        piece = self._unparsed.popleft()
        if len(piece) > PIECE_BYTES:
            rest = memoryview(piece)
            piece = rest[:PIECE_BYTES]
            self._unparsed.appendleft(rest[PIECE_BYTES:])
        data = bytes(piece)
        try:
            self._frames.extend(self._parser.feed(data))
        except RemoteProtocolError as error:
            self._frames.extend(error.frames)
            self._unparsed.clear()
            text = f"before CONNECTED: {error}" if self._stranger else str(error)
            self._last_word = partial(self.error, text)
        further_lines = data.count(b"\n") - FRAME_LINES * len(self._frames)
        self._budget.spend(FURTHER_LINE * max(further_lines, 0) + ESCAPE * data.count(b"\\"))

    def _do(self, frame: Frame, work: Work | None) -> None:
        """Handle a frame, or do another slice of its work."""
        try:
            if work is None:
                work = self.session.handle(frame)
            if work is not None:
                next(work)
                self._work = frame, work
        except StopIteration:
            pass
        except FrameRefusedError as error:
            self.error(str(error), frame.headers.get("receipt"), *error.headers, logged=error.logged)
        except (DemotedError, JournalError):
            self.abort()
        except Exception:  # noqa: BLE001 - one client's frame must not end the others' broker
            _log.exception("%s: internal error, please report this", self.session)
            self.error("internal error of the broker, please report it", frame.headers.get("receipt"))

    def _named(self, frame: Frame) -> str:
        """Return what a frame is, for the log."""
        destination = frame.headers.get("destination")
        return f"{frame.command}{f' {destination[:128]!r}' if destination else ''} of {self.session}"

    def _drop_frames(self) -> None:
        """Forget what was not handled: the connection has ended."""
        self._frames.clear()
        self._unparsed.clear()
        self._last_word = None
        self._waits = False
        self._budget.forget(self._next_turn)
        if self._work is not None:
            self._work[1].close()
            self._work = None

    def _flush(self) -> None:
        self._flushing = False
        if self._out and not self.closing:
            if self._streaming is not None:
                return
            self._said = self._loop.time()
            out = self._before_a_stream() if self._streams else self._out
            if out is self._out:
                self._out = []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))  # type: ignore[arg-type] # no Streamed is in it
            throttled = self._out_bytes > HIGH_WATER
            self._out_bytes = 0
            if throttled:
                self._may_deliver()
            if self._behind:
                self._balance_unread()

    def _before_a_stream(self) -> list[bytes | Streamed]:
        """What goes out before the body of the first ``Streamed``, which begins; the rest stays."""
        place = next(place for place, part in enumerate(self._out) if isinstance(part, Streamed))
        streamed = self._out[place]
        assert isinstance(streamed, Streamed)
        before, self._out = self._out[:place], self._out[place + 1 :]
        self._streams -= 1
        self._streaming = self._loop.create_task(self._send_body(streamed.body), name="send a large message")
        self._streaming.add_done_callback(lambda _: self._let_go(streamed.body))
        return [*before, streamed.head]

    async def _send_body(self, body: Blob) -> None:
        store = self._server.engine.large.store
        assert store is not None
        try:
            async for chunk in store.chunks(body):
                self._transport.write(chunk)
                self._said = self._loop.time()
                while self._write_paused:
                    self._writable = self._loop.create_future()
                    await self._writable
            self._transport.write(b"\0")
        except (OSError, JournalError) as error:
            if self.closing:
                return
            _log.error("%s: a large message cannot be delivered: %s", self.session, error)
            self._streaming = None
            self.abort()
            return
        self._streaming = None
        self._flush()
        self._may_deliver()

    def _let_go(self, body: Blob) -> None:
        store = self._server.engine.large.store
        if store is not None:
            store.release(body)

    def _may_deliver(self) -> None:
        if not (self._write_paused or self._streaming or self._streams or self.closing):
            self.session.resume()

    def _beat(self) -> None:
        if not self.closing:
            if self._loop.time() - self._said >= self._beat_s * 0.9:
                self.write(b"\n")
            self._beat_timer = self._loop.call_later(self._beat_s, self._beat)

    def _check_login(self) -> None:
        self.error(f"no CONNECT within {self._server.acceptor.connect_timeout} ms (acceptor.connect-timeout)")

    def _check_life(self, last_chance: bool = False) -> None:
        if self.closing:
            return
        silence = self._loop.time() - self._heard
        if not self._reading or silence < self._ttl_s:
            wait = self._ttl_s if not self._reading else max(self._ttl_s - silence, TICK_S)
            self._ttl_timer = self._loop.call_later(wait, self._check_life)
        elif not last_chance:
            self._ttl_timer = self._loop.call_later(GRACE_S, self._check_life, True)
        else:
            self.error(f"nothing came for {silence * 1000:.0f} ms: the connection's time to live has passed")
