"""The gate that decides when a receipt may be sent.

A receipt leaves only when what it promises is durable under the policy in force.

Why one place: a receipt sent a moment too early is a lost message, the very thing that this broker
is tested for. The policy moves ``local`` and ``remote``, and holds the gate while the broker does
not know whether it is live. The engine only says what must be durable before something happens.

While a disk syncs, thousands of entries collect. What follows them is done in turns, within the
``budget`` of each (``turn_budget``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from broker.turn_budget import COMPLETION, Line, TurnBudget

Callback = Callable[[], None]


class DurabilityGate:
    """Runs callbacks, in order of their journal sequences, once these are durable.

    ``local`` is the highest sequence on our disk, ``remote`` the highest on an up-to-date backup's
    disk; None means that nothing is replicated and local decides alone. Assigning either runs what
    has become durable, on the spot as far as the turn has room for it: assign from the loop, never
    from within an append.
    """

    __slots__ = (
        "_abandoned", "_draining", "_held", "_in_line", "_local", "_remote", "_scheduled", "_waiting",
        "budget", "look",
    )  # fmt: skip

    def __init__(self, local: int = 0) -> None:
        self.look: Callable[[], object] | None = None
        """Called before any completion or dispatch: a policy that goes by the clock may hold."""
        self.budget: TurnBudget | None = None
        """That of the engine; without one everything is done at once."""
        self._local = local
        self._remote: int | None = None
        self._held = False
        self._abandoned = False
        self._draining = False
        self._in_line = False
        """For another turn."""
        self._scheduled = False
        self._waiting: deque[tuple[int, Callback]] = deque()

    @property
    def local(self) -> int:
        """The highest sequence on our disk."""
        return self._local

    @local.setter
    def local(self, sequence: int) -> None:
        self._local = sequence
        self._drain()

    @property
    def remote(self) -> int | None:
        """The highest sequence on an up-to-date backup's disk; None: nothing is replicated."""
        return self._remote

    @remote.setter
    def remote(self, sequence: int | None) -> None:
        self._remote = sequence
        self._drain()

    @property
    def held(self) -> bool:
        """True between ``hold`` and ``release``."""
        if self.look is not None:
            self.look()
        return self._held

    @property
    def abandoned(self) -> bool:
        """True for ever after ``abandon``."""
        return self._abandoned

    @property
    def waiting(self) -> int:
        """The number of callbacks that wait."""
        return len(self._waiting)

    @property
    def durable(self) -> int:
        """The highest sequence that is durable under the policy in force, held or not."""
        remote = self._remote
        return self._local if remote is None or remote > self._local else remote

    def when_durable(self, sequence: int, callback: Callback) -> None:
        """Run ``callback`` once ``sequence`` is durable, never within this call."""
        if self._abandoned:
            return
        waiting = self._waiting
        if waiting and waiting[-1][0] > sequence:
            place = len(waiting)
            while place and waiting[place - 1][0] > sequence:
                place -= 1
            waiting.insert(place, (sequence, callback))
        else:
            waiting.append((sequence, callback))
        if sequence <= self._local and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._scheduled_drain)

    def hold(self) -> None:
        """Complete nothing until ``release``: the broker does not know whether it is live."""
        self._held = True

    def release(self) -> None:
        """Run callbacks again, first those whose sequences have become durable meanwhile."""
        self._held = False
        self._drain()

    def abandon(self) -> None:
        """Drop all callbacks, now and later, because the broker is no longer live."""
        self._abandoned = True
        self._waiting.clear()

    def _scheduled_drain(self) -> None:
        self._scheduled = False
        self._drain()

    def _next_turn(self) -> None:
        self._in_line = False
        self._drain()

    def _drain(self) -> None:
        if self._draining or self._in_line:
            return
        if self.budget is None:
            self._complete(len(self._waiting))
            return
        budget, waiting = self.budget, self._waiting
        began = 0.0 if budget.watch is None else budget.watch.now()
        share = budget.left - budget.floor()
        completed = self._complete(-(-share // COMPLETION))  # rounded up: with any share at least one
        budget.spend(COMPLETION * completed)
        if waiting and waiting[0][0] <= self.durable and not self.held:
            self._in_line = True
            budget.wait(self._next_turn, Line.COMPLETIONS)
        if budget.watch is not None:
            budget.watch.note(began, _named, completed)

    def _complete(self, most: int) -> int:
        """Run callbacks whose sequences are durable; return how many."""
        waiting = self._waiting
        completed = 0
        self._draining = True
        try:
            # A callback may hold or abandon the gate or move the sequences: look again before each.
            while waiting and completed < most and waiting[0][0] <= self.durable and not self.held:
                completed += 1
                callback = waiting.popleft()[1]
                try:
                    callback()
                except Exception as error:  # noqa: BLE001 - a broken session must not hold up the receipts of others
                    asyncio.get_running_loop().call_exception_handler(
                        {"message": "a durability callback failed: please report this", "exception": error}
                    )
        finally:
            self._draining = False
        return completed


def _named(completed: int) -> str:
    """Return what took a turn, for the log."""
    return f"what followed {completed} durable entries of the journal"
