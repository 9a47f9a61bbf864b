"""A connection through the link proxy: two ends, and a pipe for each direction between them.

Why pipes: the two directions of a connection obey two different links, so each direction holds,
delays and ends for itself. The end of a stream and a reset travel within the pipe, behind the bytes
that were sent before them, as they do in a real network.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from environments.link_condition import CLEAR
from harness.interface import Link

HELD_BYTES_MAX: Final = 1 << 20
"""The bytes that one direction of one connection may hold in this process.

When it holds more, the proxy stops reading from the source, as a TCP window would.
"""

PACE_S: Final = 0.02
"""A limited link sends in pieces of so many seconds.

After a late timer it may catch up by so much.
"""

_EOF: Final = b""
"""The mark of a source's end of stream within a queue; no read ever returns it otherwise."""

_LINGER_RST: Final = struct.pack("ii", 1, 0)


def set_reset_on_close(sock: socket.socket) -> None:
    """Make a socket send a RST at once when it is closed, and no FIN after unsent bytes."""
    with contextlib.suppress(OSError):  # not connected any more: nothing to reset
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RST)


class Line:
    """A directed link: its condition, and the pipes that obey it."""

    __slots__ = ("condition", "free_at", "link", "pipes")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.condition = CLEAR
        self.pipes: dict[Pipe, None] = {}
        self.free_at = 0.0  # monotonic: when a rate-limited link may send its next piece


class Pipe:
    """A direction of a connection.

    What is read from ``source`` is written to ``sink`` as the line allows.
    """

    __slots__ = (
        "choked", "condition", "done", "held", "line", "loop", "queue", "random", "reading", "sink", "source",
        "straight", "timer",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, line: Line, chance: random.Random) -> None:
        self.loop = loop
        self.line = line
        self.random = chance
        self.condition = line.condition
        self.source: End
        self.sink: End
        self.queue: deque[tuple[float, bytes | memoryview | None]] = deque()  # None: reset
        self.held = 0
        self.timer: asyncio.TimerHandle | None = None
        self.choked = False  # the sink's buffer is full
        self.reading = True
        self.done = False  # the end has been delivered to the sink
        self.straight = False  # nothing is in force and nothing queued: write through
        line.pipes[self] = None

    def hold(self, item: bytes | None) -> None:
        """Queue bytes that cannot be written at once; None is a reset."""
        condition = self.condition
        due = 0.0
        if condition.delay_ms or condition.jitter_ms:
            delay_ms = condition.delay_ms + condition.jitter_ms * self.random.random()
            due = time.monotonic() + delay_ms / 1000
        # Only the queue's head is ever looked at: a late piece must hold up the pieces behind it,
        # because this is a stream.
        self.queue.append((due, item))
        if item is not None:
            self.held += len(item)
        if self.timer is None:
            self.pump()
        else:
            self.update()

    def change(self) -> None:
        """Obey the line's new condition from now on."""
        self.condition = self.line.condition
        if not self.condition.delay_ms and not self.condition.jitter_ms:
            # The delay is over: what it held back is sent now, as when a network recovers.
            self.queue = deque((0.0, item) for _, item in self.queue)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.pump()

    def pump(self) -> None:
        """Deliver the items that are due, and set a timer for the rest."""
        self.timer = None
        queue = self.queue
        line = self.line
        rate = self.condition.rate_bytes_s
        if queue and not self.condition.cut and not self.choked and self.sink.ready:
            now = time.monotonic()
            while queue and not self.choked:
                due, item = queue[0]
                if rate and item:
                    due = max(due, line.free_at)
                if due > now:
                    # Rounded up: a loop's timer may have a millisecond's resolution and must never
                    # be early.
                    self.timer = self.loop.call_later(due - now + 0.001, self.pump)
                    break
                queue.popleft()
                if item is None:
                    self.sink.reset()
                    return
                if not item:
                    self.finish()
                    continue
                if rate:
                    piece = max(1, int(rate * PACE_S))
                    line.free_at = max(line.free_at, now - PACE_S) + min(piece, len(item)) / rate
                    if len(item) > piece:
                        view = memoryview(item)
                        queue.appendleft((due, view[piece:]))
                        item = view[:piece]
                self.held -= len(item)
                self.sink.write(item)
        self.update()

    def finish(self) -> None:
        """Deliver the source's end of stream."""
        self.done = True
        sink = self.sink
        if self.source.inlet.done and sink.inlet.done:
            sink.close()
            self.source.close()
        else:
            sink.write_eof()

    def update(self) -> None:
        """Read from the source only while its bytes can be passed on or held.

        Also decides whether bytes are written straight through, which they are when nothing is in
        the way.
        """
        condition = self.condition
        self.straight = not self.queue and not condition.active and self.sink.ready
        reading = not self.choked and self.held < HELD_BYTES_MAX and not condition.cut and self.sink.ready
        if reading is not self.reading and self.source.ready:
            self.reading = reading
            if reading:
                self.source.transport.resume_reading()
            else:
                self.source.transport.pause_reading()

    def drop(self) -> None:
        """Discard what is held, because the sink is gone."""
        self.queue.clear()
        self.held = 0
        self.straight = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.line.pipes.pop(self, None)


class End(asyncio.Protocol):
    """A side of a connection through the proxy.

    ``inlet`` is the pipe that this side feeds, ``outlet`` the pipe that writes to it.
    """

    __slots__ = ("ended", "inlet", "lost", "outlet", "ready", "sock", "transport", "write")

    def __init__(self, sock: socket.socket, inlet: Pipe, outlet: Pipe) -> None:
        self.sock = sock
        self.inlet = inlet
        self.outlet = outlet
        self.transport: Any = None
        self.write: Callable[[bytes | memoryview], None]
        self.ready = False  # has a transport that can be written to
        self.lost = False
        self.ended = False
        inlet.source = self
        outlet.sink = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, and deliver what came from the other side meanwhile."""
        self.transport = transport
        self.write = self.transport.write
        self.ready = True
        self.inlet.update()
        self.outlet.pump()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, at once if no fault is in force."""
        inlet = self.inlet
        if inlet.straight:
            inlet.sink.write(data)
        else:
            inlet.hold(data)

    def eof_received(self) -> bool:
        """Pass on the end of stream, behind the bytes before it."""
        self.ended = True
        self.inlet.hold(_EOF)
        return True  # the other direction goes on until it ends itself

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the peer is gone, unless both sides have ended properly."""
        self.ready = False
        self.lost = True
        self.outlet.drop()
        other = self.inlet.sink
        if other.lost:
            self.inlet.drop()
        elif not (self.inlet.done and other.inlet.done):
            # The peer is gone for both directions. The inlet carries this news to the other side,
            # behind the bytes that it holds.
            self.inlet.hold(None if exc is not None or not self.ended else _EOF)
            if other.ready:
                other.inlet.update()

    def pause_writing(self) -> None:
        """Stop reading from the other side, because the peer of this side does not keep up."""
        self.outlet.choked = True
        self.outlet.update()

    def resume_writing(self) -> None:
        """Read from the other side again, which `pause_writing` had stopped."""
        self.outlet.choked = False
        self.outlet.pump()

    def write_eof(self) -> None:
        """End this direction, as the source did; the other direction goes on."""
        if self.ready and not self.transport.is_closing():
            with contextlib.suppress(OSError):  # the peer has just gone: connection_lost follows
                self.transport.write_eof()

    def close(self) -> None:
        """Close once everything that was written has been sent."""
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """End the connection with a RST instead of a FIN."""
        if self.transport is not None and not self.lost:
            set_reset_on_close(self.sock)
            self.transport.abort()

    def abandon(self) -> None:
        """End the connection as `reset` does, even if this side never got a transport."""
        if self.transport is None and not self.lost:
            set_reset_on_close(self.sock)
            self.sock.close()
            self.connection_lost(ConnectionAbortedError())
        self.reset()
