"""A watchdog of the event loop: it logs a turn that took too long, and what ran in it.

Why: while a turn lasts nobody is answered and no heart-beat leaves, and whoever looks for the cause
finds only clients that timed out and a backup that took over. A timer tells how late the loop is;
what takes part in turns (frames of clients, dispatch, what follows a write of the journal) says how
long it took, and the longest is named.

Real brokers alone have one: a simulation has no clock that runs while code does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

TICK_S: Final = 0.05
"""How often the loop is looked at; a turn may have begun so long before it is late."""
PERIOD_S: Final = 10.0
LINES_MAX: Final = 5
"""In one period; what is left out is counted, and the longest of it told."""

_log = logging.getLogger(__name__)


class TurnWatch:
    """Watches the running loop from ``start`` to ``stop``.

    ``bound_ms``: a longer turn is logged. ``clock`` and ``processor_clock`` count seconds.
    """

    def __init__(
        self,
        bound_ms: int,
        clock: Callable[[], float] = time.perf_counter,
        processor_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.now = clock
        self._processor_now = processor_clock
        self._bound_s = bound_ms / 1000
        self._tick_s = min(TICK_S, self._bound_s / 2)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._processor_before = 0.0
        self.longest_s = 0.0
        """The longest work noted since the last tick; shorter work need not be noted."""
        self._name_longest: Callable[[], str] | None = None
        self._period_began = clock()
        self._lines = 0
        self._left_out = 0
        self._longest_left_out_s = 0.0

    def start(self) -> None:
        """Begin."""
        self._period_began = self.now()
        self._arm()

    def stop(self) -> None:
        """Log nothing more but what was left out."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_period()

    def note(self, began: float, name: Callable[..., str], *about: object) -> None:
        """Note the work since ``began``, a moment of ``now``; ``name`` of ``about`` names the work.

        Nothing is made for work that was not the longest.
        """
        took = self.now() - began
        if took > self.longest_s:
            self.longest_s = took
            # The name is made at once for long work alone, since later its objects may be gone.
            self._name_longest = partial(name, *about) if took < self._tick_s else partial(str, name(*about))

    def _arm(self) -> None:
        self._due = self.now() + self._tick_s
        self._processor_before = self._processor_now()
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        now = self.now()
        if now - self._period_began > PERIOD_S:
            self._end_period()
            self._period_began = now
        took = max(now - self._due, self.longest_s)
        if took > self._bound_s:
            self._tell(took)
        self.longest_s = 0.0
        self._name_longest = None
        self._arm()

    def _tell(self, took: float) -> None:
        if self._lines >= LINES_MAX and not _log.isEnabledFor(logging.DEBUG):
            self._left_out += 1
            self._longest_left_out_s = max(self._longest_left_out_s, took)
            return
        self._lines += 1
        processor_s = self._processor_now() - self._processor_before
        _log.warning(
            "a turn of the event loop took %.0f ms, of which the process ran %.0f ms "
            "(broker.longest-turn is %.0f ms); no client was served meanwhile: %s",
            took * 1000,
            min(processor_s, took) * 1000,
            self._bound_s * 1000,
            self._cause(took, processor_s),
        )

    def _cause(self, took: float, processor_s: float) -> str:
        cause = "no single piece of work took long"
        if self._name_longest is not None and self.longest_s >= took / 4:
            cause = f"{self.longest_s * 1000:.0f} ms of it were spent on {self._name_longest()}"
        if processor_s < took / 2:
            cause += "; the process had to wait, for a processor or the disk, or was stopped"
        return cause

    def _end_period(self) -> None:
        if self._left_out:
            _log.warning(
                "%d more turns of the event loop exceeded broker.longest-turn; the longest took %.0f ms",
                self._left_out,
                self._longest_left_out_s * 1000,
            )
        self._lines = self._left_out = 0
        self._longest_left_out_s = 0.0
