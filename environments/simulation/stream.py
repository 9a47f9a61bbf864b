"""A TCP connection of the simulated network, and its ends.

An end is a socket with its kernel's rules, and asyncio's transport on it.

What a process has written belongs to its kernel as far as the window has room: it is sent even if
the process is killed at once. The rest waits in the transport. What has arrived waits in the kernel
until the process reads it, also while the process is paused. A socket that is closed with unread
bytes resets the connection, and so does a socket that receives after it was closed. The order of
callbacks and the errors are those of asyncio's selector transport.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
from asyncio import events, transports
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from environments.simulation.pipe import WINDOW_BYTES, ControlSegment, SimulatedPipe

if TYPE_CHECKING:
    from environments.simulation.loop import NodeLoop


def _error(number: int) -> OSError:
    """Return the error of that ``errno``, as the kernel would raise it."""
    return OSError(number, os.strerror(number))


def _nobody(_: bytes) -> None:
    raise AssertionError("bytes were read for a transport that has no protocol")


class SimulatedConnection:
    """A pair of pipes with the sockets at their ends; the server's once it has accepted."""

    def __init__(self, forward: SimulatedPipe, backward: SimulatedPipe) -> None:
        self.forward = forward
        self.backward = backward
        self.client: StreamTransport | None = None
        self.server: StreamTransport | None = None
        forward.way.connections[self] = None
        backward.way.connections[self] = None

    def reset(self) -> None:
        """Reset both ends at once, as a device between them does; what was on its way is lost."""
        for pipe in (self.forward, self.backward):
            pipe.drop()
        for end in (self.client, self.server):
            if end is not None:
                end.arrive(ControlSegment.RST)
        self.end()

    def end(self) -> None:
        """Take the connection off its links."""
        self.forward.way.connections.pop(self, None)
        self.backward.way.connections.pop(self, None)


class StreamTransport(transports._FlowControlMixin, asyncio.Transport):  # noqa: SLF001 - as asyncio's own transports
    """An end of a connection: the socket from the SYN on, and the transport of a protocol."""

    _maybe_pause_protocol: Callable[[], None]
    _maybe_resume_protocol: Callable[[], None]

    def __init__(
        self,
        loop: NodeLoop,
        connection: SimulatedConnection,
        out: SimulatedPipe,
        incoming: SimulatedPipe,
        names: tuple[tuple[str, int], tuple[str, int]],
    ) -> None:
        super().__init__({"sockname": names[0], "peername": names[1]}, loop)
        self._loop: NodeLoop = loop
        self.node = loop.node
        self.process = loop
        self._protocol: Any = None
        self._deliver: Callable[[bytes], object] = _nobody
        self._connection = connection
        self._out = out
        self._in = incoming
        self.established: asyncio.Future[None] | None = None
        """On a socket that connects: done when the other side has answered."""
        # the kernel's half
        self._segments: list[bytes] = []
        self._arrived: list[bytes] = []
        self._ended: ControlSegment | None = None  # FIN or RST, behind what has arrived
        self._socket_closed = False
        self._reset = False
        self._error = _error(errno.ECONNRESET)
        self._vanished = False
        # the transport's half
        self._buffer = bytearray()
        self._closing = False
        self._conn_lost = 0
        self._eof_asked = False
        self._eof_seen = False
        self._paused = False
        self._started = False
        self._read_planned = False
        self._write_planned = False
        self._read_handle = events.Handle(self._read, (), loop)
        self._write_handle = events.Handle(self._write_ready, (), loop)
        out.source = self
        incoming.deliver = self.arrive
        loop.network.opened(self)

    # ----------------------------------------------------------------------------------- the kernel

    @property
    def blocked(self) -> bool:
        """True if bytes wait for the window."""
        return bool(self._buffer)

    def arrive(self, item: bytes | ControlSegment) -> None:
        """Take the next item of the stream from the network, whatever the process does."""
        if self._socket_closed or self._vanished:
            self._answer_the_late(item)
        elif type(item) is bytes:
            self._arrived.append(item)
            if self._started and not self._read_planned and not self._paused:
                self._read_planned = True
                self._loop.put(self._read_handle)
        elif self.established is not None and not self.established.done():
            self._answered(self.established, item)  # type: ignore[arg-type]
        else:
            self._end(item)  # type: ignore[arg-type]

    def _end(self, how: ControlSegment) -> None:
        """End the stream behind what has arrived, or break it off."""
        if self._ended is not ControlSegment.RST:
            self._ended = how
            if how is ControlSegment.RST:
                self._reset = True
                if self._buffer:
                    self.window_opened()  # a writer must see the reset, too
            self._wake_reader()

    def _answered(self, established: asyncio.Future[None], item: ControlSegment) -> None:
        """Take the other side's answer to an attempt to connect."""
        if item is ControlSegment.SYN_ACK:
            established.set_result(None)
        else:
            refused = item is ControlSegment.REFUSED
            established.set_exception(_error(errno.ECONNREFUSED if refused else errno.ECONNRESET))

    def give_up(self) -> None:
        """End the connection after too long without an answer; the other side is not told."""
        self.time_out()
        self._connection.end()
        if self._ended is not ControlSegment.RST:
            self._error = _error(errno.ETIMEDOUT)
            self._end(ControlSegment.RST)

    def time_out(self) -> None:
        """Give up an attempt to connect, as the kernel does."""
        if self.established is not None and not self.established.done():
            self.established.set_exception(_error(errno.ETIMEDOUT))

    def _answer_the_late(self, item: bytes | ControlSegment) -> None:
        """Answer what arrives at a closed socket with a reset; a machine that is off is silent."""
        if item is ControlSegment.RST or item is ControlSegment.REFUSED:
            self._reset = True
            self._connection.end()
        elif self._reset:
            pass
        elif self._vanished and not self._loop.network.answers(self._loop.node):
            self._loop.network.unanswered(self)
        elif item is not ControlSegment.FIN:
            self.send_reset()
        else:
            self._connection.end()

    def never_answered(self) -> None:
        """Let the other side give up, because this machine has been off for so long."""
        other = self._connection.server if self is self._connection.client else self._connection.client
        if other is not None:
            other.give_up()

    def tried_again(self) -> None:
        """Reset the connection: the machine is on again, and does not know it."""
        self.send_reset()

    def send_reset(self) -> None:
        """Tell the other side that this end does not exist."""
        if not self._reset:
            self._reset = True
            self._out.send(ControlSegment.RST)

    def flush(self) -> None:
        """Send what was written in one step as one segment."""
        segments = self._segments
        if self._socket_closed or self._vanished:
            segments.clear()  # written by a process that died in this very step
        elif segments:
            data = segments[0] if len(segments) == 1 else b"".join(segments)
            segments.clear()
            if not self._reset:
                self._out.send(data)

    def close_socket(self) -> None:
        """Close the socket as the kernel does, for the process or because of its death."""
        if self._socket_closed or self._vanished:
            return
        self.flush()
        self._socket_closed = True
        if not self._reset:
            if self._arrived:
                self.send_reset()
            elif not self._eof_asked or self._buffer:
                self._out.send(ControlSegment.FIN)
        if self._ended is not None:
            self._connection.end()
        self._arrived.clear()
        self._loop.network.closed(self)

    def vanish(self) -> None:
        """Be silent, because the machine has lost its power; nothing answers until it is back."""
        self._segments.clear()
        self._out.drop_unsent()
        self._vanished = True
        self._loop.network.closed(self)

    def abandon(self) -> None:
        """Mark a dead process' transport as closed, so that no warning says it was left open."""
        self._closing = True

    def _wake_reader(self) -> None:
        if self._started and not self._read_planned and not self._paused:
            self._read_planned = True
            self._loop.put(self._read_handle)

    # -------------------------------------------------------------------------------------- reading

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the socket its protocol: ``connection_made``, and next round the first bytes."""
        self.set_protocol(protocol)
        self._loop.call_soon(protocol.connection_made, self)
        self._loop.call_soon(self._start_reading)

    def _start_reading(self) -> None:
        self._started = True
        if self._arrived or self._ended is not None:
            self._wake_reader()

    def _read(self) -> None:
        self._read_planned = False
        if self._conn_lost or self._paused or (self._closing and self._ended is not ControlSegment.RST):
            return
        arrived = self._arrived
        if arrived and not self._closing:
            data = arrived[0] if len(arrived) == 1 else b"".join(arrived)
            arrived.clear()
            self._in.consumed(len(data))
            self._hand_over(data)
            if self._ended is not None:
                self._wake_reader()
        elif self._ended is ControlSegment.RST:
            self._lose(self._error)
        elif self._ended is ControlSegment.FIN and not self._eof_seen:
            self._eof_seen = True
            self._end_of_stream()

    def _hand_over(self, data: bytes) -> None:
        try:
            self._deliver(data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - asyncio's rule: a protocol that fails loses its connection
            self._fatal(error, "Fatal error: protocol.data_received() call failed.")

    def _end_of_stream(self) -> None:
        try:
            keep_open = self._protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001
            self._fatal(error, "Fatal error: protocol.eof_received() call failed.")
            return
        if not keep_open:
            self.close()

    def pause_reading(self) -> None:
        """Leave the bytes that arrive in the kernel."""
        self._paused = True

    def resume_reading(self) -> None:
        """Read the bytes that arrive again."""
        if self._closing or not self._paused:
            return
        self._paused = False
        if self._arrived or self._ended is not None:
            self._wake_reader()

    def is_reading(self) -> bool:
        """Return whether ``data_received`` may be called."""
        return not self._closing and not self._paused

    # -------------------------------------------------------------------------------------- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; what the window has no room for waits in the transport."""
        if type(data) is not bytes and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._eof_asked:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._conn_lost:
            self._conn_lost += 1
            return
        if not data:
            return
        if self._reset:
            self._lose(self._error)
            return
        if self._buffer:
            self._buffer += data
            self._maybe_pause_protocol()
            return
        size = len(data) if not isinstance(data, memoryview) else data.nbytes
        room = WINDOW_BYTES - self._out.used
        if size <= room:
            self._take(bytes(data))
            return
        whole = bytes(data)
        if room > 0:
            self._take(whole[:room])
        self._buffer += whole[max(room, 0) :]
        self._maybe_pause_protocol()

    def _take(self, data: bytes) -> None:
        """Take bytes into the kernel."""
        self._out.used += len(data)
        if not self._segments:
            if self._loop.active:
                self._loop.unsent.append(self)
                self._segments.append(data)
                return
            if not self._reset:
                self._out.send(data)
            return
        self._segments.append(data)

    def writelines(self, list_of_data: Any) -> None:
        """Send all the given bytes."""
        self.write(b"".join(list_of_data))

    def window_opened(self) -> None:
        """Note that the socket is writable; the process will see it when it runs."""
        if not self._write_planned:
            self._write_planned = True
            self._loop.put(self._write_handle)

    def _write_ready(self) -> None:
        self._write_planned = False
        if self._conn_lost:
            return
        if self._reset:
            self._lose(self._error)
            return
        room = WINDOW_BYTES - self._out.used
        if self._buffer and room > 0:
            self._take(bytes(self._buffer[:room]))
            del self._buffer[:room]
        self._maybe_resume_protocol()
        if not self._buffer:
            if self._closing:
                self._conn_lost += 1
                self._loop.call_soon(self._connection_lost, None)
            elif self._eof_asked:
                self._send_fin()

    def write_eof(self) -> None:
        """Close this direction, after what was written."""
        if self._closing or self._eof_asked:
            return
        self._eof_asked = True
        if not self._buffer:
            self._send_fin()

    def _send_fin(self) -> None:
        self.flush()
        if not self._reset:
            self._out.send(ControlSegment.FIN)

    def can_write_eof(self) -> bool:
        """Return True: TCP can end one direction."""
        return True

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the kernel has not taken."""
        return len(self._buffer)

    # -------------------------------------------------------------------------------------- the end

    def is_closing(self) -> bool:
        """Return whether the transport is closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Close after what was written; nothing more is read."""
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._conn_lost += 1
            self._loop.call_soon(self._connection_lost, None)

    def abort(self) -> None:
        """Close at once; what the kernel has not taken is lost."""
        self._lose(None)

    def _fatal(self, error: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        if self._conn_lost:
            return
        self._buffer.clear()
        self._closing = True
        self._conn_lost += 1
        self._loop.call_soon(self._connection_lost, error)

    def _connection_lost(self, error: BaseException | None) -> None:
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            self.close_socket()
            self._protocol = None
            self._deliver = _nobody

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to another protocol from now on."""
        self._protocol = protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            feed = asyncio.protocols._feed_data_to_buffered_proto  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio's own transports do
            self._deliver = functools.partial(feed, protocol)
        else:
            self._deliver = protocol.data_received  # type: ignore[attr-defined]

    def get_protocol(self) -> Any:
        """Return the transport's protocol."""
        return self._protocol
