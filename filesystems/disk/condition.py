"""The condition of a disk, and its effect on operations.

It is ``harness.interface.in_process.DiskCondition`` in the program behind a mount.
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
    """Return the fields of all conditions in force together.

    Delays add up, and an operation that one condition refuses is refused.
    """
    given = [ConditionFields(**one) for one in conditions]
    return {
        "delay_ms": sum((one.delay_ms for one in given), 0.0),
        "jitter_ms": sum((one.jitter_ms for one in given), 0.0),
        "stalled": any(one.stalled for one in given),
        "full": any(one.full for one in given),
        "failing": tuple(sorted({operation for one in given for operation in one.failing})),
    }


class DiskState:
    """The state of a disk; operations on a stalled disk go on when ``set`` ends the stall."""

    def __init__(self, chance: random.Random) -> None:
        self.condition = ConditionFields()
        self._chance = chance
        self._changed = asyncio.Event()

    def set(self, **condition: Any) -> None:
        """Set the condition from now on; raises TypeError for an unknown field."""
        self.condition = ConditionFields(**condition)
        self._changed.set()
        self._changed = asyncio.Event()

    async def settle(self) -> None:
        """Wait for as long as every sync and every change of a directory takes."""
        now = self.condition
        if now.delay_ms or now.jitter_ms:
            await asyncio.sleep((now.delay_ms + self._chance.random() * now.jitter_ms) / 1000)
        while self.condition.stalled:
            await self._changed.wait()

    def change(self, *, grows: bool = False) -> None:
        """Check that the disk permits a change; raises OSError (ENOSPC, EIO) if not.

        ``grows``: the change needs more space.
        """
        if grows and self.condition.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if WRITE in self.condition.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    @property
    def sync_fails(self) -> bool:
        """True if syncs fail: the kernel then drops the data that a sync was to write."""
        return SYNC in self.condition.failing
