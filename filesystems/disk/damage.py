"""The damage that a disk does to stored bytes: flipped bits, and files that lose their end."""

from __future__ import annotations

import fnmatch
import random
from pathlib import Path
from typing import NamedTuple


class DamagedSpot(NamedTuple):
    """A place in a file where a bit was flipped, or where the file was cut (``bit`` None).

    ``byte`` is the byte that the flipped bit made.
    """

    place: int
    bit: int | None = None
    byte: int = 0

    def is_in(self, data: bytes | bytearray) -> bool:
        """Return whether a reader of the file would still find the damage."""
        if self.bit is None:
            return len(data) == self.place
        return data[self.place : self.place + 1] == bytes([self.byte])

    def __str__(self) -> str:
        if self.bit is None:
            return f"cut to {self.place} bytes"
        return f"byte {self.place} bit {self.bit}"


class Damages:
    """All damage done to the files below a directory, in order."""

    def __init__(self, behind: Path, chance: random.Random) -> None:
        self._behind = behind
        self._chance = chance
        self._done: list[tuple[Path, DamagedSpot]] = []

    def corrupt(self, *, files: str = "*", cut: bool = False) -> str | None:
        """Flip a bit in the files, each bit as likely as any other, or cut the file there.

        ``files`` is a pattern of names. Returns where, or None if there is nothing to damage.
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
        for path, size in sizes.items():  # noqa: B007 - the path at which the loop stops is needed
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
        """Return the last damage that a reader would still find; "" if none."""
        for path, spot in reversed(self._done):
            try:
                if spot.is_in(path.read_bytes()):
                    return f"{self._name(path)} {spot}"
            except FileNotFoundError:
                continue
        return ""

    def _name(self, path: Path) -> str:
        return path.relative_to(self._behind).as_posix()
