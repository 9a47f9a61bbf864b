"""The pace of sends: an open loop, so that a slow broker is not spared.

Why open: clients that wait for a slow broker before they send again hide its slowness, and leave
the moments that matter unobserved. So the rate is kept over all producers as long as any of them
has a free process. A send that could not be made when due is dropped: it is not made up for in a
burst that no schedule asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import Final

from harness.interface import WorkloadContext
from workloads.producer import AgainSlot, ProducerStream, Slot

TICK_S: Final = 0.005
BURST_S: Final = 0.1
"""The seconds of the rate that are sent at once at most, after this process was held up."""
RETRY_S: Final = 0.1
"""The pause after a send that found no connection, also where the rate is as fast as possible."""


class Pacer:
    """A pacer that lets free slots send at ``rate`` a second, all together.

    With a rate of 0 each slot sends as soon as it is free. ``drive`` makes the slots; ``run`` lets
    them send until cancelled. Slots take turns, beginning in a seeded order.
    """

    __slots__ = ("_idle", "_rate", "_running", "_slots", "_without")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._slots: list[Slot] = []
        self._idle: deque[Slot] = deque()
        self._without: list[Slot] = []
        self._running = False

    def drive(
        self,
        context: WorkloadContext,
        streams: Sequence[ProducerStream],
        pipeline: int,
        chance: random.Random,
        *,
        repeats: bool = True,
    ) -> None:
        """Make ``pipeline`` slots for each stream; must be called before ``run``.

        ``repeats``: sends of unknown outcome are repeated if the test asks for it.
        """
        kind = AgainSlot if context.spec.send_again and repeats else Slot
        self._slots = [kind(context, stream, self.on_idle) for stream in streams for _ in range(pipeline)]
        chance.shuffle(self._slots)
        self._idle.extend(self._slots)

    @property
    def busy(self) -> bool:
        """True if a send is under way."""
        return any(slot.busy for slot in self._slots)

    def on_idle(self, slot: Slot, connected: bool) -> None:
        """Take back a slot that is free; ``connected``: its send reached a connection."""
        if self._rate > 0 or not self._running:
            self._idle.append(slot)
        elif connected and slot.connected:
            slot.send()
        else:
            self._without.append(slot)

    async def run(self) -> None:
        """Send until cancelled; then sends under way may complete, and none begins."""
        self._running = True
        try:
            if self._rate > 0:
                await self._keep_rate()
            else:
                await self._keep_busy()
        finally:
            self._running = False

    async def _keep_rate(self) -> None:
        loop = asyncio.get_running_loop()
        idle = self._idle
        start = loop.time()
        issued = 0
        burst = int(self._rate * BURST_S) + 1
        while True:
            # Sleep until the next send is due: a slow rate must not cost two hundred turns a
            # second.
            await asyncio.sleep(max(TICK_S, start + (issued + 1) / self._rate - loop.time()))
            due = int((loop.time() - start) * self._rate)
            for _ in range(min(due - issued, burst)):
                if not idle:
                    break
                idle.popleft().send()
            issued = due

    async def _keep_busy(self) -> None:
        waiting = list(self._idle)
        self._idle.clear()
        while True:
            for slot in waiting:
                slot.send()
            await asyncio.sleep(RETRY_S)
            waiting, self._without = self._without, []
