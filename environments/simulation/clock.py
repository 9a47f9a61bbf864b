"""The clocks of one machine.

Virtual time is the truth and belongs to the world; a machine only has an idea of it. Its monotonic
clock, which is ``loop.time()``, began at some boot, unlike its neighbours', so that a value that
crossed the network is of no use there; it may run fast or slow, but never jumps. Its wall clock may
be wrong by any amount and may be set. A clock belongs to the machine: it outlives the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EPOCH_S: Final = 1_767_225_600
"""The wall clock of a machine whose clock is right, when virtual time is 0.

2026-01-01T00:00:00Z.
"""


class Clock:
    """One machine's idea of time. ``boot_s`` is its monotonic clock at virtual time 0."""

    __slots__ = (
        "_anchor_ns",
        "_changed",
        "_monotonic_s",
        "_now_ns",
        "_rate",
        "_wall_s",
        "skew_ms",
        "strobes",
    )

    def __init__(self, now_ns: Callable[[], int], changed: Callable[[], None], boot_s: float = 0.0) -> None:
        self._now_ns = now_ns
        self._changed = changed
        self._anchor_ns = 0
        self._monotonic_s = boot_s
        self._wall_s: float = EPOCH_S
        self._rate = 1.0
        self.skew_ms = 0.0
        """How far the wall clock is ahead (negative: behind), besides a wrong rate's drift."""
        self.strobes: tuple[tuple[float, float], ...] = ()
        """(step, period) in ms: ahead by the step in the first half of each period."""

    @property
    def rate(self) -> float:
        """Seconds that pass on this machine in one true second."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        if not 0 < rate < float("inf"):
            raise ValueError(f"the rate of a clock is {rate!r}; it must be above 0")
        now = self._now_ns()
        self._monotonic_s, self._wall_s = self.monotonic_at(now), self._wall_s + self._elapsed_s(now)
        self._anchor_ns, self._rate = now, rate
        self._changed()

    def set_right(self) -> None:
        """Take away what a wrong rate has made of the wall clock, in one jump as NTP does.

        ``skew_ms`` stays.
        """
        now = self._now_ns()
        self._monotonic_s, self._wall_s, self._anchor_ns = self.monotonic_at(now), EPOCH_S + now / 1e9, now

    def wall_s(self) -> float:
        """Seconds since the epoch, as this machine believes."""
        now = self._now_ns()
        jumped_ms = sum(step for step, period in self.strobes if now / 1e6 % period < period / 2)
        return self._wall_s + self._elapsed_s(now) + (self.skew_ms + jumped_ms) / 1000

    def monotonic_s(self) -> float:
        """``loop.time()`` of this machine's processes."""
        return self.monotonic_at(self._now_ns())

    def monotonic_at(self, now_ns: int) -> float:
        """``loop.time()`` at a virtual time."""
        return self._monotonic_s + (now_ns - self._anchor_ns) / 1e9 * self._rate

    def due_ns(self, monotonic_s: float) -> int:
        """When this machine's monotonic clock shows ``monotonic_s``.

        In virtual time, to the nanosecond.
        """
        return self._anchor_ns + round((monotonic_s - self._monotonic_s) / self._rate * 1e9)

    def _elapsed_s(self, now_ns: int) -> float:
        return (now_ns - self._anchor_ns) / 1e9 * self._rate
