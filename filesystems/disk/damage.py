"""What a disk does to bytes that it had kept: bits that turn over, files that lose their end.

And whether a reader would still meet it.
"""

from __future__ import annotations

import fnmatch
import random
from pathlib import Path
from typing import NamedTuple


class DamagedSpot(NamedTuple):
    """A bit that was turned over, and the byte it made; or where a file was cut (``bit`` None)."""

    place: int
    bit: int | None = None
    byte: int = 0

    def is_in(self, data: bytes | bytearray) -> bool:
        """Whether a reader of the file would still meet it."""
        if self.bit is None:
            return len(data) == self.place
        return data[self.place : self.place + 1] == bytes([self.byte])

    def __str__(self) -> str:
        if self.bit is None:
            return f"cut to {self.place} bytes"
        return f"byte {self.place} bit {self.bit}"


class Damages:
    """All damage done to the files below one directory, the last one last."""

    def __init__(self, behind: Path, chance: random.Random) -> None:
        self._behind = behind
        self._chance = chance
        self._done: list[tuple[Path, DamagedSpot]] = []

    def corrupt(self, *, files: str = "*", cut: bool = False) -> str | None:
        """Turn over one bit of what files hold, each as likely as any other, or cut the file there.

        Where, or None if there is nothing.
        """
        sizes = {
            path: path.stat().st_size
            for path in sorted(self._behind.rglob("*"))
            if path.is_file() and not path.is_symlink() and fnmatch.fnmatchcase(self._name(path), files)
        }
        total = sum(sizes.values())
        if not total:
            return None
        place, bit = self._chance.randrange(total), self._chance.randrange(8)
        for path, size in sizes.items():  # noqa: B007 - where it stops is what is looked for
            if place < size:
                break
            place -= size
        with path.open("r+b") as file:
            if cut:
                file.truncate(place)
                spot = DamagedSpot(place)
            else:
                file.seek(place)
                byte = file.read(1)[0] ^ (1 << bit)
                file.seek(place)
                file.write(bytes([byte]))
                spot = DamagedSpot(place, bit, byte)
        self._done.append((path, spot))
        return f"{self._name(path)} {spot}"

    def last(self) -> str:
        """The last damage that a reader would still meet; "" if none."""
        for path, spot in reversed(self._done):
            try:
                if spot.is_in(path.read_bytes()):
                    return f"{self._name(path)} {spot}"
            except FileNotFoundError:
                continue
        return ""

    def _name(self, path: Path) -> str:
        return path.relative_to(self._behind).as_posix()
