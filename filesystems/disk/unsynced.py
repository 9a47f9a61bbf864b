"""What of a file would be gone if the power went out now, kept as what was there before.

Why an undo log and not a cache: reads and writes then go straight to the file behind, and a broker
that is killed leaves there what the system had taken from it, as it would on a real disk. Only a
loss of power looks in here. What a failed sync held is not on the disk whatever a later one says:
the kernel forgets that those pages were ever dirty ("fsyncgate", 2018).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

SECTOR_BYTES: Final = 512


@dataclass(slots=True)
class Unsynced:
    """What the disk does not have yet of one file.

    ``size`` bytes are on the disk but for what was ``overwritten`` since the last sync and what was
    ``dropped`` by one that failed, both as (offset, what the disk has there).
    """

    size: int
    overwritten: list[tuple[int, bytes]] = field(default_factory=list)
    dropped: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, descriptor: int, offset: int, length: int) -> None:
        """Remember what the disk has where a write goes; what was dropped there is written anew."""
        if offset >= self.size or not length:
            return
        on_disk = bytearray(os.pread(descriptor, min(length, self.size - offset), offset))
        end = offset + len(on_disk)
        dropped, self.dropped = self.dropped, []
        for start, old in dropped:
            low, high = max(start, offset), min(start + len(old), end)
            if low < high:
                on_disk[low - offset : high - offset] = old[low - start : high - start]
                pieces = (start, old[: low - start]), (high, old[high - start :])
                self.dropped += [piece for piece in pieces if piece[1]]
            else:
                self.dropped.append((start, old))
        self.overwritten.append((offset, bytes(on_disk)))

    def cut(self, size: int, end: int) -> None:
        """A file of ``end`` bytes is made shorter or longer, durably; none of it is synced."""
        self.overwritten.append((self.size, bytes(max(0, min(size, end) - self.size))))
        self.size = size
        self.overwritten, self.dropped = (
            [(offset, old[: size - offset]) for offset, old in entries if offset < size]
            for entries in (self.overwritten, self.dropped)
        )

    def kept(self, size: int, overwritten: int) -> None:
        """A sync has ended well.

        It began when the file had ``size`` bytes and so many parts of it were ``overwritten``.
        """
        self.size = max(self.size, size)
        del self.overwritten[:overwritten]

    def drop(self, size: int) -> None:
        """A sync of ``size`` bytes has failed: what it was to write is forgotten."""
        self.dropped[:0] = [*reversed(self.overwritten), (self.size, bytes(max(0, size - self.size)))]
        self.overwritten.clear()
        self.size = max(self.size, size)

    def power_lost(self, descriptor: int, chance: random.Random) -> int:
        """Leave in the file what a disk would have; how many bytes were lost.

        Any of the last sectors may be missing, not only the last ones.
        """
        end = os.fstat(descriptor).st_size
        lost = self._tear(descriptor, end, chance)
        end = os.fstat(descriptor).st_size
        for offset, old in (*self._undone(chance), *self.dropped):
            if offset < end:
                lost += os.pwrite(descriptor, old[: end - offset], offset)
        self.size = end
        self.overwritten.clear()
        self.dropped.clear()
        return lost

    def _undone(self, chance: random.Random) -> list[tuple[int, bytes]]:
        """What of the overwritten comes back, the latest first.

        A sector is written whole, at some time: what it got before that is kept, and the rest not.
        """
        pieces = [
            (offset + start, old[start:stop])
            for offset, old in reversed(self.overwritten)
            for start, stop in _sectors(offset, len(old))
        ]
        writes = Counter(offset // SECTOR_BYTES for offset, _ in pieces)
        left = {sector: chance.randint(0, number) for sector, number in writes.items()}
        undone = []
        for offset, old in pieces:
            if left[offset // SECTOR_BYTES] > 0:
                left[offset // SECTOR_BYTES] -= 1
                undone.append((offset, old))
        return undone

    def _tear(self, descriptor: int, end: int, chance: random.Random) -> int:
        """Decide, sector by sector, how much of what was added had reached the disk.

        A disk writes a sector whole or not at all: what is left ends with one, or as it had ended.
        """
        if end <= self.size:
            return 0
        fate = chance.choice(("lost", "lost", "cut", "sectors"))
        first, last = self.size // SECTOR_BYTES, (end - 1) // SECTOR_BYTES
        kept = {"lost": 0, "cut": last - first, "sectors": last - first + 1}[fate]
        left = min(end, max(self.size, (first + chance.randint(0, kept)) * SECTOR_BYTES))
        os.ftruncate(descriptor, left)
        lost = end - left
        if fate == "sectors":
            for start, stop in _sectors(self.size, left - self.size):
                if chance.random() < 0.5:
                    lost += os.pwrite(descriptor, bytes(stop - start), self.size + start)
        return lost


def _sectors(offset: int, length: int) -> Iterator[tuple[int, int]]:
    """From where to where each sector's part of so many bytes goes, which lie at ``offset``."""
    start = 0
    while start < length:
        stop = min(length, start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        yield start, stop
        start = stop
