"""What a full queue makes of a producer: its sends are parked, in order, until there is room.

Why parked and not simply unread: acknowledgements come on the same stream, and a consumer that may
not acknowledge can never make room.
    a connection that only produces   is not read any further: TCP slows the client down (a
                                      SUBSCRIBE behind its sends is not seen either: subscribe
                                      first, or consume on another connection)
    one that also consumes            is read on; its ACK, NACK and SUBSCRIBE work at once, its
                                      sends (and commits that come after a parked send) wait here.
                                      More than PARKED_BYTES_MAX of them end it with an ERROR: such
                                      a client must wait for receipts or use two connections. If
                                      they wait for news of other brokers, it is not read meanwhile
Receipts keep the order of the frames: one that comes after a parked send waits behind it. A commit
waits for no room in memory: the acknowledgements in it may be what makes it. For room in a queue
with ``max-messages`` it waits, unless its own acknowledgements make enough. What a connection has
parked that was cut meanwhile is never taken: its client may long have sent more on another.

An ACK or NACK of another broker's message is parked, too, until that broker has answered. It was
sent there at once; only what follows waits for it.

Who waits for more than a second is told in the log, with what it waits for, and once more when it
goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from broker.core.memory import Memory, Room
from broker.turn_budget import FRAME, TurnBudget

PARKED_BYTES_MAX: Final = 4 * 1024 * 1024
WAIT_TOLD_S: Final = 1.0
"""A wait that is shorter needs no line in the log."""

Action = Callable[[], None]
Wait = Room | asyncio.Future[None] | None
"""What an action waits for: room, a future, or (None) only its turn."""


def _nobody(*_: object) -> Any:
    """Tell nobody, and say that nothing has to stop."""
    return False


class Intake:
    """Runs actions in order, in turns; those that fill a queue wait until it has room.

    ``changed`` is called when it begins or ends to wait.

    ``cut`` is asked before what has waited is taken: whether the connection is no more, which then
    calls ``clear``. ``tell`` writes a line to the log.
    """

    __slots__ = (
        "_again", "_budget", "_changed", "_cut", "_going", "_memory", "_parked", "_since", "_tell", "_timer",
        "size",
    )  # fmt: skip

    def __init__(
        self,
        memory: Memory,
        budget: TurnBudget,
        changed: Action,
        cut: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        self._memory = memory
        self._budget = budget
        self._changed = changed
        self._cut = cut
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._parked: deque[tuple[Wait, int, Action]] = deque()
        self._going = False
        self._again: list[tuple[Wait, int, Action]] = []
        """What the action that runs has parked: it goes before all that was parked behind it."""
        self.size = 0
        """Bytes parked."""

    def __bool__(self) -> bool:
        """Is anything parked?"""
        return bool(self._parked or self._again)

    def park(self, wait: Wait, size: int, action: Action) -> None:
        """Do it later, when what it waits for has come."""
        self.size += size
        if self._going:
            self._again.append((wait, size, action))
            return
        first = not self._parked
        self._parked.append((wait, size, action))
        if first:
            assert wait is not None, "only what waits for something may be the first to wait"
            self._wait(wait)
            loop = asyncio.get_running_loop()
            self._since = loop.time()
            self._timer = loop.call_later(WAIT_TOLD_S, self._tell_of_wait)
        self._changed()

    def clear(self) -> None:
        """The connection is gone, and with it what was never taken."""
        self._parked.clear()
        self._again.clear()
        self.size = 0
        self._memory.forget(self._go_on)
        self._budget.forget(self._go_on)
        if self._timer is not None:
            self._timer.cancel()
        self._changed = self._cut = self._tell = _nobody  # which point back to the connection

    @property
    def holds_much(self) -> bool:
        """True if much is parked because of other brokers: that ends whatever the client does."""
        awaits_others = bool(self._parked) and isinstance(self._parked[0][0], asyncio.Future)
        return awaits_others and self.size > PARKED_BYTES_MAX

    def _wait(self, wait: Room | asyncio.Future[None]) -> None:
        if isinstance(wait, asyncio.Future):
            wait.add_done_callback(lambda _: self._go_on())
        else:
            self._memory.wait(wait, self._go_on)

    def _go_on(self) -> None:
        if self._cut():
            return
        parked, budget = self._parked, self._budget
        floor = budget.floor()
        while parked:
            wait, size, action = parked[0]
            if wait is not None and self._must_wait(wait):
                self._wait(wait)
                self._changed()
                return
            if budget.left <= floor:
                budget.wait(self._go_on)
                return
            budget.spend(FRAME)
            parked.popleft()
            self.size -= size
            self._going = True
            try:
                action()
            finally:
                self._going = False
            if self._again:
                parked.extendleft(reversed(self._again))
                self._again.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self._since:
            waited_s = asyncio.get_running_loop().time() - self._since
            self._tell(f"its sends go on after {waited_s:.1f} s")
        self._since = 0.0
        self._changed()

    def _must_wait(self, wait: Room | asyncio.Future[None]) -> bool:
        return not wait.done() if isinstance(wait, asyncio.Future) else self._memory.must_wait(wait)

    def _tell_of_wait(self) -> None:
        self._timer = None
        queue = self._parked[0][0]
        if isinstance(queue, asyncio.Future):
            self._tell("it waits for other brokers")
        elif queue is None or not self._memory.must_wait(queue):  # it waits for its turn alone
            self._timer = asyncio.get_running_loop().call_later(WAIT_TOLD_S, self._tell_of_wait)
        elif not isinstance(queue, str):
            self._tell(f"a commit waits: {self._memory.reason(queue)}")
        else:
            self._tell(f"sends to {queue[:48]!r} wait: {self._memory.reason(queue)}")
