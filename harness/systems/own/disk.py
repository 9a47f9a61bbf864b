"""The disk of our broker where it runs in the harness' own process.

A ``MemoryVolume`` under the harness' names.

Why an adapter: environments know disks only by ``harness.interface.Disk``, and the broker knows
nothing of the harness.
"""

from __future__ import annotations

import random
from typing import Final

from broker.storage.memory import MemoryVolume
from broker.storage.memory_faults import SOUND, DiskFault
from harness.interface import DiskCondition, DiskDamage

SYNC_S: Final = 0.0004
"""What a sync takes where nothing is wrong: that of an ordinary solid-state disk.

Each varies from half to twice of it.
"""


class OwnDisk:
    """See ``harness.interface.Disk``; ``volume`` is what the broker writes to."""

    def __init__(self) -> None:
        self.volume = MemoryVolume(latency_s=SYNC_S)

    def seed(self, chance: random.Random) -> None:
        """Let its times vary by this chance from now on."""
        self.volume.chance = chance

    def process_ended(self, chance: random.Random) -> None:
        """A killed process: any prefix of what was not synced is there."""
        self.volume.process_ended(chance)

    def power_lost(self, chance: random.Random) -> None:
        """A machine that went dark: what was not synced is lost or torn."""
        self.volume.crash(chance)

    def destroy(self) -> None:
        """Another, empty disk."""
        self.volume.destroy()

    def condition(self, condition: DiskCondition) -> None:
        """Translate; the default is a sound disk."""
        fault = DiskFault(
            delay_s=condition.delay_ms / 1000,
            jitter_s=condition.jitter_ms / 1000,
            stalled=condition.stalled,
            full=condition.full,
            failing=frozenset(condition.failing),
        )
        self.volume.fault = SOUND if fault == SOUND else fault

    def corrupt(self, chance: random.Random, damage: DiskDamage) -> str | None:
        """Anywhere in what was synced."""
        done = self.volume.corrupt(chance, files=damage.files, cut=damage.cut)
        return None if done is None else str(done)

    async def probe(self) -> str:
        """A write and a sync of its own, and a look at the flipped bits."""
        damage = self.volume.damaged()
        state = await self.volume.probe()
        return f"damaged {damage[-1]}" if damage and state == "sound" else state
