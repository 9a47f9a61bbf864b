"""What is wrong with a disk now.

``harness.interface.in_process.DiskCondition`` as the program behind a mount knows it, and what it
does to an operation.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

WRITE: Final = "write"
SYNC: Final = "sync"


@dataclass(frozen=True, slots=True)
class ConditionFields:
    """The fields of a condition; the default is a sound disk."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    stalled: bool = False
    full: bool = False
    failing: Sequence[str] = ()


def together(conditions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of all conditions at once: delays add up, whatever one refuses is refused."""
    given = [ConditionFields(**one) for one in conditions]
    return {
        "delay_ms": sum((one.delay_ms for one in given), 0.0),
        "jitter_ms": sum((one.jitter_ms for one in given), 0.0),
        "stalled": any(one.stalled for one in given),
        "full": any(one.full for one in given),
        "failing": tuple(sorted({operation for one in given for operation in one.failing})),
    }


class DiskState:
    """One disk; who waits for a stalled one goes on when `set` gives it another condition."""

    def __init__(self, chance: random.Random) -> None:
        self.condition = ConditionFields()
        self._chance = chance
        self._changed = asyncio.Event()

    def set(self, **condition: Any) -> None:
        """From now on; TypeError for a field that there is not."""
        self.condition = ConditionFields(**condition)
        self._changed.set()
        self._changed = asyncio.Event()

    async def settle(self) -> None:
        """What every sync and every change of a directory takes."""
        now = self.condition
        if now.delay_ms or now.jitter_ms:
            await asyncio.sleep((now.delay_ms + self._chance.random() * now.jitter_ms) / 1000)
        while self.condition.stalled:
            await self._changed.wait()

    def change(self, *, grows: bool = False) -> None:
        """Whether something may change at all. Raises OSError: ENOSPC, EIO."""
        if grows and self.condition.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if WRITE in self.condition.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    @property
    def sync_fails(self) -> bool:
        """The kernel gives up on what a sync was to write."""
        return SYNC in self.condition.failing
