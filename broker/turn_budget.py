"""A budget of work for clients in one turn of the event loop, counted in units.

Why: everything in a broker runs in one thread. A turn that lasts for seconds answers nobody, sends
no heart-beat, and lets a backup believe that its live is dead; a few kilobytes of frames can ask
for such a turn. So whoever works for a client spends what the work costs, and when the budget of
the turn is used up, waits in line for the next one. Timers, links between brokers and what has
arrived on other connections come in between.

Why units and not milliseconds: a simulation has no clock that runs while code does, and a test can
count. A unit is the test of one term of a selector, about 0.1 microseconds. The constants below
say what other work costs.

Those who wait stand in three lines, which are served by turns, a share each: otherwise a client
with one frame would stand behind the dispatch of 20,000 queues. Within a line they are served in
order, each with ``SHARE`` at most, so that this client waits for a share of each of those before it
and never for all that they ask for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from broker.turn_watch import TurnWatch

Callback = Callable[[], None]

TURN: Final = 80_000
"""The units of one turn of the loop: about nine milliseconds."""
SHARE: Final = 32_000
"""The units that one connection or queue may spend before the others have their turn.

Half of it serves attackers no worse, but consumers beside busy producers get a fifth less: each
share ends with a write to the client, and to the journal.
"""

VISIT: Final = 50
"""The cost of asking one who waits; a queue may have nothing to dispatch by then."""
FRAME: Final = 80
"""The cost of a frame of a client, parsed and handled, with up to ``FRAME_LINES`` lines."""
FRAME_LINES: Final = 8
"""The number of lines that the cost of a frame includes."""
FURTHER_LINE: Final = 10
"""The cost of each further line that a client sends: a header most often."""
ESCAPE: Final = 2
"""The cost of an escape in a header."""
PART: Final = 20
"""The cost of a part of a large body, and of putting off a frame behind it."""
COMPLETION: Final = 20
"""The cost of what follows a durable entry of the journal: an arrival, a receipt."""
ARRIVAL: Final = 25
"""The cost of each further message that an entry brings, or that is due."""
COPY: Final = 80
"""The cost of a message that is stored for a subscription."""
DELIVERY: Final = 40
"""The cost of a message that is given to a consumer."""
TEST: Final = 20
"""The cost of testing a message with a selector, without the terms of the selector."""
REMOVAL: Final = 30
"""The cost of a message that is purged, or has expired."""
CONSUMER_END: Final = 200
"""The cost of a consumer that leaves."""
SELECTOR_CHARACTER: Final = 20
"""The cost of each character of a selector that is compiled."""


class Line(IntEnum):
    """The lines of those who wait for a turn, in the order in which they are served."""

    COMPLETIONS = 0
    """What follows durable entries. It comes first, so that frames taken in never outrun it."""
    CLIENTS = 1
    """Frames, and what else was begun for a client."""
    DELIVERIES = 2
    """The dispatch of queues."""


class TurnBudget:
    """The budget of an engine: ``left`` is what may still be spent in this turn.

    Nobody is stopped within a piece of work, so ``left`` may fall below zero; the next turn begins
    anew all the same. ``watch`` is to be told of what is done in a turn.
    """

    __slots__ = ("_lines", "_renewal", "left", "turns", "watch")

    def __init__(self, watch: TurnWatch | None = None) -> None:
        self.watch = watch
        self.left = TURN
        self.turns = 0
        """How many times it was renewed; a test counts them."""
        self._renewal: asyncio.Handle | None = None
        self._lines: tuple[OrderedDict[Callback, None], ...] = tuple(OrderedDict() for _ in Line)
        # A dict finds its first key by passing by all that were deleted before it: with 20,000 who
        # wait, that took more than the work for them.

    def spend(self, units: int) -> None:
        """Take the cost of finished work from the budget of this turn."""
        self.left -= units
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().call_soon(self._renew)

    def floor(self, shares: int = 1) -> int:
        """Return what ``left`` must stay above while one of those who share the turn works."""
        return max(self.left - shares * SHARE, 0)

    def wait(self, callback: Callback, line: Line = Line.CLIENTS) -> None:
        """Call back in the next turn that has something left, behind all who wait in this line."""
        self._lines[line][callback] = None
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().call_soon(self._renew)

    def forget(self, callback: Callback, line: Line = Line.CLIENTS) -> None:
        """Take a callback out of its line."""
        self._lines[line].pop(callback, None)

    async def room(self) -> None:
        """Wait for a turn in which something of the budget is left."""
        while self.left <= 0:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def go_on(waiting: asyncio.Future[None] = waiting) -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self.wait(go_on)
            try:
                await waiting
            finally:
                self.forget(go_on)

    def _renew(self) -> None:
        self._renewal = None
        self.left = TURN
        self.turns += 1
        while self.left > 0 and any(self._lines):
            for line in self._lines:
                self._serve(line, self.floor())
        if any(self._lines) and self._renewal is None:
            self._renewal = asyncio.get_running_loop().call_soon(self._renew)

    def _serve(self, line: OrderedDict[Callback, None], floor: int) -> None:
        while line and self.left > floor:
            callback, _ = line.popitem(last=False)
            self.left -= VISIT
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - one who fails must not keep the others waiting
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "work for a client failed: please report this", "exception": error}
                )
