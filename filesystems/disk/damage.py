"""What a disk does to bytes that it had kept: bits that turn over, files that lose their end.

And whether a reader would still meet it.
"""

from __future__ import annotations

import fnmatch
import random
from pathlib import Path
from typing import NamedTuple


class _Damage(NamedTuple):
    """A bit that was turned over, and the byte it made; or a file that was cut (``bit`` None)."""

    path: Path
    place: int
    bit: int | None
    byte: int


class Damages:
    """All damage done to the files below one directory, the last one last."""

    def __init__(self, behind: Path, chance: random.Random) -> None:
        self._behind = behind
        self._chance = chance
        self._done: list[_Damage] = []

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
                self._done.append(_Damage(path, place, None, 0))
            else:
                file.seek(place)
                byte = file.read(1)[0] ^ (1 << bit)
                file.seek(place)
                file.write(bytes([byte]))
                self._done.append(_Damage(path, place, bit, byte))
        return self._where(self._done[-1])

    def last(self) -> str:
        """The last damage that a reader would still meet; "" if none."""
        for damage in reversed(self._done):
            try:
                data = damage.path.read_bytes()
            except FileNotFoundError:
                continue
            there = (
                len(data) == damage.place
                if damage.bit is None
                else data[damage.place : damage.place + 1] == bytes([damage.byte])
            )
            if there:
                return self._where(damage)
        return ""

    def _name(self, path: Path) -> str:
        return path.relative_to(self._behind).as_posix()

    def _where(self, damage: _Damage) -> str:
        if damage.bit is None:
            return f"{self._name(damage.path)} cut to {damage.place} bytes"
        return f"{self._name(damage.path)} byte {damage.place} bit {damage.bit}"
