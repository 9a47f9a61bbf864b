"""The program of a machine, a broker or a server, as a part that can break."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Sequence
from typing import Final

from environments.agent.child import Child
from environments.part import Part, PartFault

_SETTLE_PATIENCE_S: Final = 2.0
_RESTART_GAP_S: Final = 1.01
"""The shortest time from the second of a program's start to its next start.

File servers number their lives by that second, and would take one life for the other.
"""


class Program(Part):
    """The program: "pause" stops it; "down" ends it, and starts it again when the fault is over.

    A program that somebody else starts during "down" is not hit.
    """

    primitives = ("pause", "down")

    def __init__(self, child: Child) -> None:
        self.child = child
        self._paused = self._down = self._ended = False  # ended: by a fault, and not started again yet

    def wanted(self, asked: PartFault) -> bool:
        """Return whether the fault is wanted, as the harness sent it."""
        return bool(asked.wanted)

    def apply(self, in_force: Sequence[PartFault], changed: PartFault) -> Awaitable[None]:
        """Send the signals at once; a signal takes effect when its target is next scheduled."""
        kinds = {fault.primitive for fault in in_force}
        self._down, self._paused = "down" in kinds, "pause" in kinds
        begins = changed in in_force
        if changed.primitive == "pause" and (begins or not self._paused):
            self.child.signal(signal.SIGSTOP if begins else signal.SIGCONT)
        if self._down and not self._ended:
            self._ended = True
            self.child.signal(signal.SIGKILL)
        if self._ended and not self._down:
            return self._return()
        return self._settle("paused") if kinds else self._goes_on()

    async def look(self, node: str) -> str:
        """Return the state of the program's process."""
        del node
        return self.child.state()

    def end(self) -> None:
        """Kill the program for good."""
        self._ended = False
        self.child.signal(signal.SIGKILL)

    async def _return(self) -> None:
        """Start the program that a fault has ended, unless another "down" is in force by then."""
        await self.child.exited.wait()
        await asyncio.sleep(max(0.0, int(self.child.began_s) + _RESTART_GAP_S - time.time()))
        if self._ended and not self._down:
            self.child.again()
            self._ended = False
            if self._paused:
                self.child.signal(signal.SIGSTOP)
            else:
                await self._goes_on()

    async def _settle(self, state: str) -> None:
        """Wait until the program is in this state, or gone; give up silently after a while.

        A process within a dead mount does not stop, and a probe is there to say so.
        """
        deadline = time.monotonic() + _SETTLE_PATIENCE_S
        while self.child.state() not in (state, "gone") and time.monotonic() < deadline:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.002)

    async def _goes_on(self) -> None:
        """Wait until the program is of use again."""
        await self._settle("running")
