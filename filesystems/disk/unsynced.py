"""What of a file would be gone if the power went out now, kept as what was there before.

Why an undo log and not a cache: reads and writes then go straight to the file behind, and a broker
that is killed leaves there what the system had taken from it, as it would on a real disk. Only a
loss of power looks in here. What a failed sync held is not on the disk whatever a later one says:
the kernel forgets that those pages were ever dirty ("fsyncgate", 2018).
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import Final

SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class Unsynced:
    """What the disk does not have yet of one file.

    ``size`` bytes are on the disk but for what was ``overwritten`` since the last sync (offset,
    what the disk has there) and ``dropped`` ranges.
    """

    size: int
    overwritten: list[tuple[int, bytes]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)

    def write(self, descriptor: int, offset: int, length: int) -> None:
        """Remember what a write is about to replace."""
        if offset < self.size and length:
            self.overwritten.append((offset, os.pread(descriptor, min(length, self.size - offset), offset)))

    def cut(self, size: int) -> None:
        """A file is made shorter or longer, durably."""
        self.size = size
        self.overwritten = [
            (offset, old[: size - offset]) for offset, old in self.overwritten if offset < size
        ]
        self.dropped = [(start, min(end, size)) for start, end in self.dropped if start < size]

    def kept(self, size: int, overwritten: int) -> None:
        """A sync has ended well.

        It began when the file had ``size`` bytes and so many parts of it were ``overwritten``.
        """
        self.size = max(self.size, size)
        del self.overwritten[:overwritten]

    def drop(self, size: int) -> None:
        """A sync has failed: what it was to write is forgotten."""
        if size > self.size:
            self.dropped.append((self.size, size))
            self.size = size

    def power_lost(self, descriptor: int, chance: random.Random) -> int:
        """Leave in the file what a disk would have; how many bytes were lost.

        Any of the last sectors may be missing, not only the last ones.
        """
        end = os.fstat(descriptor).st_size
        lost = 0
        for offset, old in reversed(self.overwritten):
            if chance.random() < 0.5 and offset < end:
                os.pwrite(descriptor, old[: end - offset], offset)
                lost += len(old)
        lost += self._tear(descriptor, end, chance)
        end = os.fstat(descriptor).st_size
        for start, stop in self.dropped:
            if start < end:
                gone = min(stop, end) - start
                os.pwrite(descriptor, bytes(gone), start)
                lost += gone
        self.size = end
        self.overwritten.clear()
        self.dropped.clear()
        return lost

    def _tear(self, descriptor: int, end: int, chance: random.Random) -> int:
        """Decide, sector by sector, how much of what was added had reached the disk."""
        if end <= self.size:
            return 0
        fate = chance.choice(("lost", "lost", "cut", "sectors"))
        left = self.size if fate == "lost" else chance.randint(self.size, end)
        os.ftruncate(descriptor, left)
        lost = end - left
        if fate == "sectors":
            position = self.size
            while position < left:
                stop = min(left, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
                if chance.random() < 0.5:
                    os.pwrite(descriptor, bytes(stop - position), position)
                    lost += stop - position
                position = stop
        return lost
