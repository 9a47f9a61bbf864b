"""The content of a file in memory, and the part of it that would survive a power loss.

Why more than a length: a disk keeps what was synced. Of the rest, any sectors may be missing, not
only the last ones. And after a sync that failed, the kernel forgets that those pages were ever
dirty: a later sync reports success without them.
"""

from __future__ import annotations

import random

SECTOR = 512


class Content:
    """The bytes of a file: ``data`` is what a reader sees now.

    The first ``synced`` bytes, without those in ``dropped``, are on the disk.

    At least the first ``handed`` bytes are in the system's memory, which outlives a process.
    """

    __slots__ = ("data", "dropped", "handed", "synced")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = self.handed = len(data)
        self.dropped: list[tuple[int, int]] = []

    def keep(self, size: int) -> None:
        """Note that a sync of the first ``size`` bytes, or what is left of them, has succeeded."""
        self.synced = max(self.synced, min(size, len(self.data)))

    def drop(self, size: int) -> None:
        """Note that a sync has failed: no later sync brings its bytes to the disk."""
        if self.synced < size:
            self.dropped.append((self.synced, size))
            self.synced = size

    def cut(self, size: int) -> None:
        """Cut the file to ``size`` bytes, durably."""
        del self.data[size:]
        self.synced = self.handed = len(self.data)
        self.dropped = [(start, min(end, size)) for start, end in self.dropped if start < size]

    def process_ended(self, chance: random.Random) -> None:
        """Decide how much of the unsynced bytes the system had when the process died.

        It has none, all or any prefix of them; these bytes are as unsynced as before.
        """
        floor, end = max(self.synced, self.handed), len(self.data)
        if end > floor:
            del self.data[chance.choice((floor, end, chance.randint(floor, end))) :]
        self.handed = len(self.data)

    def power_lost(self, chance: random.Random | None) -> None:
        """Lose the bytes that are not on the disk, or tear them if ``chance`` says how."""
        if len(self.data) > self.synced:
            self._tear(chance)
        for start, end in self.dropped:
            self.data[start:end] = bytes(min(end, len(self.data)) - start)
        self.dropped.clear()
        self.synced = self.handed = len(self.data)

    def _tear(self, chance: random.Random | None) -> None:
        """Decide for the unsynced end, sector by sector, which of it had reached the disk."""
        fate = chance.choice(("lost", "kept", "cut", "sectors")) if chance is not None else "lost"
        if fate == "lost":
            del self.data[self.synced :]
        elif chance is not None and fate != "kept":
            del self.data[chance.randint(self.synced, len(self.data)) :]
            if fate == "sectors":
                position = self.synced
                while position < len(self.data):
                    end = min(len(self.data), (position // SECTOR + 1) * SECTOR)
                    if chance.random() < 0.5:
                        self.data[position:end] = bytes(end - position)
                    position = end
