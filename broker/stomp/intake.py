"""What a full queue makes of a producer: its sends are parked, in order, until there is room.

Why parked and not simply unread: acknowledgements come on the same stream, and a consumer that may
not acknowledge can never make room.
    a connection that only produces   is not read any further: TCP slows the client down (a
                                      SUBSCRIBE behind its sends is not seen either: subscribe
                                      first, or consume on another connection)
    one that also consumes            is read on; its ACK, NACK and SUBSCRIBE work at once, its
                                      sends (and commits that come after a parked send) wait here.
                                      More than PARKED_BYTES_MAX of them end it with an ERROR: such
                                      a client must wait for receipts or use two connections
Receipts keep the order of the frames: one that comes after a parked send waits behind it. A commit
itself never waits for room: the acknowledgements in it may be what makes it. What a connection has
parked that was cut meanwhile is never taken: its client may long have sent more on another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.core.budget import FRAME, TurnBudget
from broker.core.memory import Memory

PARKED_BYTES_MAX: Final = 4 * 1024 * 1024

Action = Callable[[], None]


class Intake:
    """Runs actions in order, in turns; those that fill a queue wait until it has room.

    ``changed`` is called when it begins or ends to wait.

    ``cut`` is asked before what has waited is taken: whether the connection is no more, which then
    calls ``clear``.
    """

    __slots__ = ("_budget", "_changed", "_cut", "_memory", "_parked", "size")

    def __init__(self, memory: Memory, budget: TurnBudget, changed: Action, cut: Callable[[], bool]) -> None:
        self._memory = memory
        self._budget = budget
        self._changed = changed
        self._cut = cut
        self._parked: deque[tuple[str | None, int, Action]] = deque()
        self.size = 0
        """Bytes parked."""

    def __bool__(self) -> bool:
        """Is anything parked?"""
        return bool(self._parked)

    def park(self, queue: str | None, size: int, action: Action) -> None:
        """Do it later: when the queue has room (None: only in its turn)."""
        first = not self._parked
        self._parked.append((queue, size, action))
        self.size += size
        if first:
            assert queue is not None, "only a send may be the first to wait"
            self._memory.wait(queue, self._go_on)
        self._changed()

    def clear(self) -> None:
        """The connection is gone, and with it what was never taken."""
        self._parked.clear()
        self.size = 0
        self._memory.forget(self._go_on)
        self._budget.forget(self._go_on)

    def _go_on(self) -> None:
        if self._cut():
            return
        parked, budget = self._parked, self._budget
        floor = budget.floor()
        while parked:
            queue, size, action = parked[0]
            if queue is not None and self._memory.is_full(queue):
                self._memory.wait(queue, self._go_on)
                return
            if budget.left <= floor:
                budget.wait(self._go_on)
                return
            budget.spend(FRAME)
            parked.popleft()
            self.size -= size
            action()
        self._changed()
