"""A connection in memory between two asyncio protocols.

Bytes travel on the loop's time, in pieces, and either direction may stand still.

Why not a real socket: which byte arrives before which crash must be the test's choice. What it
keeps of TCP: order, nothing lost while both ends live, flow control, and that who is cut off hears
nothing, not even that it was cut off.
"""

import asyncio
from collections import deque


class End:
    """One end, as its protocol's transport."""

    def __init__(self, pipe, protocol):
        self.pipe = pipe
        self.protocol = protocol
        self.peer = None
        self.stalled = False
        self.closed = False
        self._out = deque()
        self._size = 0
        self._high = 64 * 1024
        self._paused = False
        self._moving = False
        self._last = False

    # ---- what a protocol asks of its transport

    def get_extra_info(self, name, default=None):
        return default

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = high

    def get_write_buffer_size(self):
        return self._size

    def is_closing(self):
        return self.closed or self._last

    def write(self, data):
        if self.is_closing():
            return
        piece = self.pipe.piece
        self._out.extend(data[at : at + piece] for at in range(0, len(data), piece))
        self._size += len(data)
        if self._size > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()
        self.move()

    def close(self):
        """What was written still travels."""
        if not self.is_closing():
            self._last = True
            asyncio.get_running_loop().call_soon(self.lose)
            self.move()

    def abort(self):
        if not self.closed:
            self._out.clear()
            self.close()

    # ---- the network

    def move(self):
        if not self._moving and not self.stalled and (self._out or self._last):
            self._moving = True
            asyncio.get_running_loop().call_later(self.pipe.latency_s, self._arrive)

    def _arrive(self):
        self._moving = False
        if self.stalled:
            return
        if not self._out:
            if self._last:
                self.peer.lose()
            return
        data = self._out.popleft()
        self._size -= len(data)
        if not self.peer.closed:
            self.peer.protocol.data_received(data)
        if self._paused and self._size <= self._high // 4:
            self._paused = False
            self.protocol.resume_writing()
        self.move()

    def lose(self):
        """The connection is no more, for this end."""
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)
            self.close_behind()

    def close_behind(self):
        """The other end hears of it too, if anything of ours still reaches it."""
        self._last = True
        self.move()


class Pipe:
    """Both ends. ``piece`` is the most bytes that arrive at once."""

    def __init__(self, one, other, *, piece, latency_s=0.001):
        self.piece = piece
        self.latency_s = latency_s
        self.one = End(self, one)
        self.other = End(self, other)
        self.one.peer, self.other.peer = self.other, self.one
        one.connection_made(self.one)
        other.connection_made(self.other)

    def stall(self, end):
        """Nothing that this end says arrives."""
        end.stalled = True

    def heal(self):
        for end in (self.one, self.other):
            end.stalled = False
            end.move()

    def cut(self):
        """Both hear at once that the connection is lost; what was under way is lost too."""
        for end in (self.one, self.other):
            end._out.clear()
            end.lose()
