"""What a file in memory holds, and what of it would survive the power going out.

Why more than a length: a disk keeps what was synced; of the rest any sectors may be missing, not
only the last ones. And after a sync that failed, the kernel forgets that those pages were ever
dirty: a later sync reports success without them.
"""

from __future__ import annotations

import random

SECTOR = 512


class Content:
    """``data`` is what a reader sees now.

    The first ``synced`` bytes, without those in ``dropped``, are on the disk.

    The first ``handed`` are with the system at least, whose memory outlives a process.
    """

    __slots__ = ("data", "dropped", "handed", "synced")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = self.handed = len(data)
        self.dropped: list[tuple[int, int]] = []

    def keep(self, size: int) -> None:
        """A sync of the first ``size`` bytes, or what is left of them, has ended well."""
        self.synced = max(self.synced, min(size, len(self.data)))

    def drop(self, size: int) -> None:
        """A sync has failed: what it had to bring to the disk no other will."""
        if self.synced < size:
            self.dropped.append((self.synced, size))
            self.synced = size

    def cut(self, size: int) -> None:
        """Durably nothing from ``size`` on."""
        del self.data[size:]
        self.synced = self.handed = len(self.data)
        self.dropped = [(start, min(end, size)) for start, end in self.dropped if start < size]

    def process_ended(self, chance: random.Random) -> None:
        """Decides how much of what was not synced had been handed over when the process died.

        Nothing, everything or any prefix; it is as unsynced as before.
        """
        floor, end = max(self.synced, self.handed), len(self.data)
        if end > floor:
            del self.data[chance.choice((floor, end, chance.randint(floor, end))) :]
        self.handed = len(self.data)

    def power_lost(self, chance: random.Random | None) -> None:
        """What is not on the disk is lost, or torn if ``chance`` says how."""
        if len(self.data) > self.synced:
            self._tear(chance)
        for start, end in self.dropped:
            self.data[start:end] = bytes(min(end, len(self.data)) - start)
        self.dropped.clear()
        self.synced = self.handed = len(self.data)

    def _tear(self, chance: random.Random | None) -> None:
        """Decide for the unsynced end, sector by sector, what of it had reached the disk."""
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
