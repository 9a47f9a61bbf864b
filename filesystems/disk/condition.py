"""What is wrong with a disk now.

``harness.interface.in_process.DiskCondition`` as the program behind a mount knows it, and what it
does to an operation.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

WRITE: Final = "write"
SYNC: Final = "sync"


def together(conditions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of all conditions at once: delays add up, whatever one refuses is refused."""
    delay_ms = jitter_ms = 0.0
    stalled = full = False
    failing: set[str] = set()
    for one in conditions:
        delay_ms += one.get("delay_ms", 0.0)
        jitter_ms += one.get("jitter_ms", 0.0)
        stalled |= one.get("stalled", False)
        full |= one.get("full", False)
        failing |= set(one.get("failing", ()))
    return {
        "delay_ms": delay_ms,
        "jitter_ms": jitter_ms,
        "stalled": stalled,
        "full": full,
        "failing": tuple(sorted(failing)),
    }


@dataclass(slots=True)
class DiskState:
    """One disk.

    ``set`` replaces its condition; who waits for a stalled disk goes on when it is healed.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    stalled: bool = False
    full: bool = False
    failing: tuple[str, ...] = ()
    chance: random.Random = field(default_factory=random.Random)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(
        self,
        *,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        stalled: bool = False,
        full: bool = False,
        failing: tuple[str, ...] | list[str] = (),
    ) -> None:
        """From now on; the default is a sound disk."""
        self.delay_ms, self.jitter_ms = delay_ms, jitter_ms
        self.stalled, self.full, self.failing = stalled, full, tuple(failing)
        self._changed.set()
        self._changed = asyncio.Event()

    async def settle(self) -> None:
        """What every sync and every change of a directory takes."""
        if self.delay_ms or self.jitter_ms:
            await asyncio.sleep((self.delay_ms + self.chance.random() * self.jitter_ms) / 1000)
        while self.stalled:
            await self._changed.wait()

    def change(self, *, grows: bool = False) -> None:
        """Whether something may change at all. Raises OSError: ENOSPC, EIO."""
        if grows and self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if WRITE in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    @property
    def sync_fails(self) -> bool:
        """The kernel gives up on what a sync was to write."""
        return SYNC in self.failing
