"""The unsynced data of a file, kept as an undo log of the bytes that were there before.

A loss of power undoes them.

Why an undo log and not a cache: reads and writes then go straight to the file behind. A broker that
is killed leaves there what the system had taken from it, as it would on a real disk. Only a loss of
power reads the log. Data whose sync failed are not on the disk, even if a later sync succeeds: the
kernel forgets that those pages were ever dirty ("fsyncgate", 2018).
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
    """The data of a file that the disk does not have yet.

    ``size`` bytes are on the disk, except those that were ``overwritten`` since the last sync and
    those that a failed sync ``dropped``. Both are kept as (offset, bytes that the disk has there).
    """

    size: int
    overwritten: list[tuple[int, bytes]] = field(default_factory=list)
    dropped: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, descriptor: int, offset: int, length: int) -> None:
        """Remember the bytes that the disk has where a write goes.

        Bytes there that a failed sync dropped are written anew, and are no longer dropped.
        """
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
        """Record that a file of ``end`` bytes gets another size, durably.

        Its bytes are not synced by that.
        """
        self.overwritten.append((self.size, bytes(max(0, min(size, end) - self.size))))
        self.size = size
        self.overwritten, self.dropped = (
            [(offset, old[: size - offset]) for offset, old in entries if offset < size]
            for entries in (self.overwritten, self.dropped)
        )

    def kept(self, size: int, overwritten: int) -> None:
        """Record that a sync has succeeded.

        It began when the file had ``size`` bytes, and ``overwritten`` parts of it were overwritten.
        """
        self.size = max(self.size, size)
        del self.overwritten[:overwritten]

    def drop(self, size: int) -> None:
        """Record that the sync of a file of ``size`` bytes has failed.

        The data that it was to write are never written.
        """
        self.dropped[:0] = [*reversed(self.overwritten), (self.size, bytes(max(0, size - self.size)))]
        self.overwritten.clear()
        self.size = max(self.size, size)

    def power_lost(self, descriptor: int, chance: random.Random) -> int:
        """Leave in the file what a disk would have, and return how many bytes were lost.

        Any of the added sectors may be missing, not only the last ones.
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
        """Return the overwritten pieces that come back, the latest first.

        A disk writes a sector whole, at some time: earlier writes to the sector are kept, and later
        ones are undone.
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
        """Decide, sector by sector, how much of the added bytes had reached the disk.

        A disk writes a sector whole or not at all: the file then ends with a whole sector, or where
        it had ended. Returns how many bytes were lost.
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
    """Yield the begin and end of each sector's part among ``length`` bytes at ``offset``."""
    start = 0
    while start < length:
        stop = min(length, start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        yield start, stop
        start = stop
