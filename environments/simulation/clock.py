"""The clocks of one machine.

Virtual time is the truth and belongs to the world; a machine's clocks only approximate it. A
machine's monotonic clock, which is ``loop.time()``, began at some boot of its own, so that a value
that crossed the network is of no use elsewhere. It may run fast or slow, but never jumps. The wall
clock may be wrong by any amount and may be set. A clock belongs to the machine: it outlives the
process.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from environments.fault_options import nothing_left, number
from environments.part import Part, PartFault

if TYPE_CHECKING:
    from environments.simulation.world import World

EPOCH_S: Final = 1_767_225_600
"""The wall clock of a machine whose clock is right, when virtual time is 0.

It is 2026-01-01T00:00:00Z.
"""

CLOCKS: Final = ("clock-skew", "clock-step", "clock-rate", "clock-strobe")

CLOCK_S: Final = 0.05
CLOCK_PARTS: Final = (0.07, 0.13, 0.19, 0.26, 0.35)
"""The parts of ``CLOCK_S`` between readings: unequal, so that no clock jumps in their rhythm."""
SKEWED_MS: Final = 1.0
RATE_MARGIN: Final = 0.001


class SimulatedClock:
    """A machine's clocks. ``boot_s`` is its monotonic clock at virtual time 0."""

    def __init__(self, now_ns: Callable[[], int], changed: Callable[[], None], boot_s: float = 0.0) -> None:
        self._now_ns = now_ns
        self._changed = changed
        self._anchor_ns = 0
        self._monotonic_s = boot_s
        self._wall_s: float = EPOCH_S
        self._rate = 1.0
        self.skew_ms = 0.0
        """The lead of the wall clock (negative: it is behind), without a wrong rate's drift."""
        self.strobes: tuple[tuple[float, float], ...] = ()
        """Pairs (step, period) in ms: the clock leads by step in the first half of each period."""

    @property
    def rate(self) -> float:
        """The seconds that pass on this machine in one true second."""
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
        """Remove the error that a wrong rate has made in the wall clock, in one jump as NTP does.

        ``skew_ms`` stays.
        """
        now = self._now_ns()
        self._monotonic_s, self._wall_s, self._anchor_ns = self.monotonic_at(now), EPOCH_S + now / 1e9, now

    def wall_s(self) -> float:
        """Return the seconds since the epoch by this machine's wall clock."""
        now = self._now_ns()
        jumped_ms = sum(step for step, period in self.strobes if now / 1e6 % period < period / 2)
        return self._wall_s + self._elapsed_s(now) + (self.skew_ms + jumped_ms) / 1000

    def monotonic_s(self) -> float:
        """Return ``loop.time()`` of this machine's processes."""
        return self.monotonic_at(self._now_ns())

    def monotonic_at(self, now_ns: int) -> float:
        """Return ``loop.time()`` at a virtual time."""
        return self._monotonic_s + (now_ns - self._anchor_ns) / 1e9 * self._rate

    def due_ns(self, monotonic_s: float) -> int:
        """Return the virtual nanosecond at which the monotonic clock shows ``monotonic_s``."""
        return self._anchor_ns + round((monotonic_s - self._monotonic_s) / self._rate * 1e9)

    def _elapsed_s(self, now_ns: int) -> float:
        return (now_ns - self._anchor_ns) / 1e9 * self._rate


@dataclass(frozen=True, slots=True)
class _Wrong:
    """The error of a clock; with ``strobe_ms`` it jumps by ``skew_ms`` and back in that period."""

    skew_ms: float = 0.0
    rate: float = 1.0
    strobe_ms: float | None = None


class SimulatedClocks(Part):
    """The machines' clocks, as a part that can break."""

    name = "clock"
    primitives = CLOCKS

    def __init__(self, world: World) -> None:
        self._world = world

    def wanted(self, asked: PartFault) -> Any:
        """Return the error of each clock that a fault asks for."""
        given = dict(asked.wanted)
        if asked.primitive == "clock-skew":
            wrong = _Wrong(skew_ms=number(asked.primitive, given, "skew_ms"))
        elif asked.primitive == "clock-step":
            wrong = _Wrong(skew_ms=number(asked.primitive, given, "step_ms"))
        elif asked.primitive == "clock-rate":
            wrong = _Wrong(rate=number(asked.primitive, given, "rate", above=0))
        else:
            strobe_ms = number(asked.primitive, given, "period_ms", above=0)
            wrong = _Wrong(skew_ms=number(asked.primitive, given, "step_ms"), strobe_ms=strobe_ms)
        nothing_left(asked.primitive, given)
        return wrong

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Set the clocks; a clock that no fault makes fast or slow any more is set right."""
        for node in changed.nodes:
            clock = self._world.clock(node)
            here = [one.wanted for one in in_force if node in one.nodes]
            clock.skew_ms = sum((one.skew_ms for one in here if one.strobe_ms is None), 0.0)
            clock.strobes = tuple((one.skew_ms, one.strobe_ms) for one in here if one.strobe_ms is not None)
            if changed.primitive == "clock-rate":
                clock.rate = math.prod((one.rate for one in here), start=1.0)
                if all(one.primitive != "clock-rate" for one in in_force if node in one.nodes):
                    clock.set_right()

    async def look(self, node: str) -> str:
        """Compare a node's clocks with true time, in several readings.

        Returns "true", "skewed 60000 ms", "rate 1.500", or "true, strobing 500 ms".
        """
        clock, world = self._world.clock(node), self._world
        before_s, before_ns = clock.monotonic_s(), world.now_ns
        errors_ms, jumps_ms = [], []
        for part in CLOCK_PARTS:
            passed_s, passed_ns = clock.wall_s() - clock.monotonic_s(), world.now_ns
            await asyncio.sleep(CLOCK_S * part)
            assert world.now_ns > passed_ns, "a look at a clock that took no time"
            jumps_ms.append((clock.wall_s() - clock.monotonic_s() - passed_s) * 1000)
            errors_ms.append((clock.wall_s() - EPOCH_S - world.now_ns / 1e9) * 1000)
        jump_ms = max(jumps_ms, key=abs)
        strobing = f", strobing {abs(jump_ms):.0f} ms" if abs(jump_ms) >= SKEWED_MS else ""
        rate = (clock.monotonic_s() - before_s) / ((world.now_ns - before_ns) / 1e9)
        if abs(rate - 1) > RATE_MARGIN:
            return f"rate {rate:.3f}{strobing}"
        skew_ms = min(errors_ms, key=abs) if strobing else errors_ms[-1]
        return ("true" if abs(skew_ms) < SKEWED_MS else f"skewed {skew_ms:.0f} ms") + strobing
