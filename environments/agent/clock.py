"""The clock of a machine, as a part that can break: it is really set, for all programs there.

The monotonic clock runs on undisturbed. A file says by how much the wall clock is wrong at present,
so that it can be set right if the agent was killed (``environments.agent.end``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from environments.part import Part, PartFault

SKEWED_MS: Final = 20.0
"""The error up to which a clock counts as true: NTP may adjust it while a test runs."""

_WATCHED_S: Final = 0.4
_LOOK_S: Final = 0.01


def shift(milliseconds: float) -> None:
    """Set the wall clock ahead by so much. Raises OSError if it may not be set."""
    now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    time.clock_settime_ns(time.CLOCK_REALTIME, now_ns + round(milliseconds * 1e6))


class Clock(Part):
    """The wall clock: "skew" sets it ahead by ``skew_ms``, "strobe" sets it to and fro.

    A strobe has a period of ``period_ms``.
    """

    name = "clock"
    primitives = ("skew", "strobe")

    def __init__(self, record: Path) -> None:
        self._record = record
        self._true_ms = self._offset_ms()
        self._shifted_ms = 0.0
        self._ahead: dict[PartFault, float] = {}
        self._strobes: dict[PartFault, asyncio.Task[None]] = {}
        self._watched_s = _WATCHED_S
        """The time that a look at the clock takes.

        It is longer than the time between two jumps of any strobe so far.
        """

    def wanted(self, asked: PartFault) -> dict[str, float]:
        """Return the numbers that the harness sent for a fault.

        Raises KeyError, TypeError or ValueError for anything else.
        """
        wanted = {name: float(value) for name, value in asked.wanted.items()}
        if "skew_ms" not in wanted or (asked.primitive == "strobe" and wanted["period_ms"] <= 0):
            raise ValueError(f"{asked.primitive} of a clock: {asked.wanted}")
        return wanted

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> None:
        """Set the clock ahead for a fault that begins, or set it right after one that ends."""
        if changed not in in_force:
            self._ahead.pop(changed, None)
            strobe = self._strobes.pop(changed, None)
            if strobe is not None:
                strobe.cancel()
        elif changed.primitive == "strobe":
            self._watched_s = max(self._watched_s, changed.wanted["period_ms"] / 2000 + _WATCHED_S)
            self._strobes[changed] = asyncio.get_running_loop().create_task(self._strobe(changed))
        else:
            self._ahead[changed] = changed.wanted["skew_ms"]
        self._set()

    async def look(self, node: str) -> str:
        """Compare the wall clock with the monotonic clock.

        Returns "true", "skewed 500 ms", or "true, strobing 500 ms".
        """
        del node
        seen_ms: list[float] = []
        end_s = time.monotonic() + self._watched_s
        while not seen_ms or time.monotonic() < end_s:
            seen_ms.append(self._offset_ms() - self._true_ms)
            await asyncio.sleep(_LOOK_S)
        jumps_ms = max(seen_ms) - min(seen_ms)
        strobing = f", strobing {jumps_ms:.0f} ms" if jumps_ms > SKEWED_MS else ""
        least_ms = min(seen_ms, key=abs)
        return ("true" if abs(least_ms) < SKEWED_MS else f"skewed {least_ms:.0f} ms") + strobing

    async def _strobe(self, fault: PartFault) -> None:
        while True:
            for ahead_ms in (fault.wanted["skew_ms"], 0.0):
                self._ahead[fault] = ahead_ms
                self._set()
                await asyncio.sleep(fault.wanted["period_ms"] / 2000)

    def _set(self) -> None:
        wanted_ms = sum(self._ahead.values())
        if wanted_ms != self._shifted_ms:
            self._record.write_text(repr(wanted_ms))
            try:
                shift(wanted_ms - self._shifted_ms)
            except OSError:
                self._record.write_text(repr(self._shifted_ms))
                raise
            self._shifted_ms = wanted_ms

    @staticmethod
    def _offset_ms() -> float:
        return (time.time_ns() - time.monotonic_ns()) / 1e6
