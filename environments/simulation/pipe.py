"""A direction of a TCP connection between two kernels.

Bytes arrive in order, whole and once, or a reset cuts off the rest.

A cut link holds what is on its way, the end of the stream and resets, too, and delivers it in order
after the heal. The window bounds the bytes that the sender's kernel has taken and the receiver's
process has not. So a process that does not read stops the process that writes.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from environments.simulation.link import Way
from environments.simulation.trace import BYTES, Trace

if TYPE_CHECKING:
    from environments.simulation.scheduler import Scheduler
    from environments.simulation.stream import StreamTransport

WINDOW_BYTES: Final = 256 * 1024
"""The size of both kernels' buffers of one direction."""

PATIENCE_NS: Final = 924_600_000_000
"""The time after which Linux ends a connection: fifteen retransmissions without an answer."""

SPLIT_CHANCE: Final = 0.03
"""The probability that a segment arrives in two parts.

A stream keeps no boundaries, and code that relies on them must be found.
"""


class ControlSegment(enum.Enum):
    """The things that travel on a pipe in addition to bytes."""

    SYN = "connects"
    SYN_ACK = "accepts"
    REFUSED = "refuses"
    FIN = "closes"
    RST = "resets"


class SimulatedPipe:
    """A pipe from ``source``'s kernel over one `Way`; ``back`` carries the acknowledgements."""

    def __init__(
        self,
        way: Way,
        back: Way,
        name: str,
        node: str,
        scheduler: Scheduler,
        trace: Trace,
        chance: random.Random,
    ) -> None:
        self.way = way
        self.back = back
        self.name = name
        self.node = node
        self.source: StreamTransport | None = None
        """The socket that sends."""
        self.deliver: Callable[[bytes | ControlSegment], None]
        """The kernel at the end, which takes the next item of the stream."""
        self.used = 0
        """The bytes of the window that are taken."""
        self._scheduler = scheduler
        self._trace = trace
        self._label = trace.label(node, BYTES, name)
        self._draw = chance.random
        self._queue: deque[tuple[int, bytes | ControlSegment]] = deque()
        self._last_ns = 0
        self._planned = False
        self._held_since_ns: int | None = None
        self._credit = 0
        self._credit_planned = False

    def send(self, item: bytes | ControlSegment) -> None:
        """Send from the sender's kernel now; bytes must have been counted in ``used``."""
        size = len(item) if type(item) is bytes else 0
        if size > 1 and self._draw() < SPLIT_CHANCE:
            cut = 1 + int(self._draw() * (size - 1))
            self._put(item[:cut], cut)  # type: ignore[index]
            self._put(item[cut:], size - cut)  # type: ignore[index]
        else:
            self._put(item, size)

    def _put(self, item: bytes | ControlSegment, size: int) -> None:
        due = self.way.arrival_ns(size)
        if due < self._last_ns:
            due = self._last_ns
        else:
            self._last_ns = due
        self._queue.append((due, item))
        if not self._planned:
            self._planned = True
            self._scheduler.at(due, self._arrive)

    def _arrive(self) -> None:
        way, queue, now = self.way, self._queue, self._scheduler.now_ns
        if way.condition.cut:
            if self._held_since_ns is None:
                self._held_since_ns = now
                self._scheduler.at(now + PATIENCE_NS, self._give_up)
            way.wait(self._arrive, self._held_since_ns)  # still planned: the heal calls it
            return
        self._held_since_ns = None
        while queue and queue[0][0] <= now:
            item = queue.popleft()[1]
            if type(item) is bytes:
                self._trace.mark(now, self._label, item)
            else:
                self._trace.record(now, self.node, item.value, self.name)  # type: ignore[union-attr]
            self.deliver(item)
        if queue:
            self._scheduler.at(queue[0][0], self._arrive)
        else:
            self._planned = False

    def _give_up(self) -> None:
        """End the connection if nothing got through as long as a kernel sends again."""
        now = self._scheduler.now_ns
        if (
            self._held_since_ns is not None
            and now - self._held_since_ns >= PATIENCE_NS
            and self.source is not None
        ):
            self._queue.clear()
            self.source.give_up()

    def drop(self) -> None:
        """Lose everything that is on its way."""
        self._queue.clear()

    def drop_unsent(self) -> None:
        """Lose what would have to be sent again, because the sender's machine is off."""
        if self._held_since_ns is not None:
            self._queue.clear()

    def consumed(self, size: int) -> None:
        """Note that bytes were read, and give their room in the window back to the sender.

        This takes time over the way back only if it matters: if the sender waits for room, or if
        that way is cut.
        """
        if (
            self.source is not None
            and not self.source.blocked
            and not self._credit
            and not self.back.condition.cut
        ):
            self.used -= size
            return
        self._credit += size
        if not self._credit_planned:
            self._credit_planned = True
            self._scheduler.at(self.back.arrival_ns(0), self._credited)

    def _credited(self) -> None:
        if self.back.condition.cut:
            self.back.wait(self._credited)
            return
        self._credit_planned = False
        self.used -= self._credit
        self._credit = 0
        if self.source is not None and self.source.blocked:
            self.source.window_opened()
