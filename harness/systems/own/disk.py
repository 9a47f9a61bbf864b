"""The disk of our broker in the harness' own process: a ``MemoryVolume`` behind the interface.

Why an adapter: environments know disks only by ``harness.interface.Disk``, and the broker knows
nothing of the harness.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from broker.storage.memory import MemoryVolume
from broker.storage.memory_faults import SOUND, DiskFault
from harness.interface import DiskCondition, DiskDamage

SYNC_S: Final = 0.0004
"""The time of a sync on a sound disk (s): that of an ordinary solid-state disk.

Each sync takes from half to twice of it.
"""


class OwnDisk:
    """A disk as ``harness.interface.Disk`` has it; ``volume`` is what the broker writes to."""

    def __init__(self) -> None:
        self.volume = MemoryVolume(latency_s=SYNC_S)

    def seed(self, chance: random.Random) -> None:
        """Let its times vary by this chance from now on."""
        self.volume.chance = chance

    def process_ended(self, chance: random.Random) -> None:
        """Keep any prefix of what was not synced: the process was killed."""
        self.volume.process_ended(chance)

    def power_lost(self, chance: random.Random) -> None:
        """Lose or tear what was not synced: the machine lost power."""
        self.volume.crash(chance)

    def destroy(self) -> None:
        """Replace the disk by an empty one."""
        self.volume.destroy()

    def image(self) -> Mapping[str, bytes]:
        """Return every file, as a broker that opened it now would read it."""
        return self.volume.image()

    def restore(self, image: Mapping[str, bytes]) -> None:
        """Replace what the disk has by the files of an image."""
        self.volume.restore(image)

    def condition(self, condition: DiskCondition) -> None:
        """Apply a condition; the default is a sound disk."""
        fault = DiskFault(
            delay_s=condition.delay_ms / 1000,
            jitter_s=condition.jitter_ms / 1000,
            stalled=condition.stalled,
            full=condition.full,
            failing=frozenset(condition.failing),
        )
        self.volume.fault = SOUND if fault == SOUND else fault

    def corrupt(self, chance: random.Random, damage: DiskDamage) -> str | None:
        """Damage a random place of what was synced, and return which."""
        done = self.volume.corrupt(chance, files=damage.files, cut=damage.cut)
        return None if done is None else str(done)

    async def probe(self) -> str:
        """Try a write and a sync, and look for flipped bits."""
        damage = self.volume.damaged()
        state = await self.volume.probe()
        return f"damaged {damage[-1]}" if damage and state == "sound" else state
