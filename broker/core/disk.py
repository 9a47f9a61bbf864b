"""How full the disk is, looked at now and then.

Producers wait before there is no room left (AMQ max-disk-usage).

Why before: a journal that cannot be written ends its broker, for after a failed write nobody knows
what is on the disk. Consumers go on; what they acknowledge is what makes room again, when
compaction gives it back. Their acknowledgements need a little of it, so the bound must leave some.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker.core.memory import Memory
from broker.storage.volume import Space

_log = logging.getLogger(__name__)


class DiskWatch:
    """Blocks the producers of an engine while the disk is too full.

    From ``start`` to ``stop`` whenever more than ``max_usage`` percent of the disk are used.
    """

    def __init__(
        self, space: Callable[[], Awaitable[Space | None]], memory: Memory, max_usage: int, period_s: float
    ) -> None:
        self._space = space
        self._memory = memory
        self._max_usage = max_usage
        self._period_s = period_s
        self._told = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look once, and go on looking if there is anything to see."""
        if self._max_usage >= 0 and await self._look():
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="watch the disk")

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self._look()

    async def _look(self) -> bool:
        """Is there a disk whose room is known?"""
        try:
            space = await self._space()
        except OSError as error:
            if not self._told:
                _log.warning("cannot read how full the disk is: %s", error)
            self._told = True
            return True
        if space is None:
            return False
        blocked = space.used_percent >= self._max_usage
        if blocked is not self._memory.disk_full:
            if blocked:
                _log.warning(
                    "the disk is %.1f %% full (broker.max-disk-usage is %d): producers wait until there "
                    "is room; consumers continue",
                    space.used_percent,
                    self._max_usage,
                )
            else:
                _log.info("the disk has room again (%.1f %% full): producers continue", space.used_percent)
            self._memory.set_disk_full(blocked)
        return True
