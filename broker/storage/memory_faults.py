"""The faults of a disk in memory, and the damage by which a reader notices them.

Why a value of its own: faults overlap and heal one by one, so the code that injects them sets the
whole condition anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WRITE: Final = "write"
SYNC: Final = "sync"


@dataclass(frozen=True, slots=True)
class DiskFault:
    """The condition of a disk; its fields combine freely. Times are seconds on the loop's clock.

    ``delay_s`` and up to ``jitter_s`` more are added to every sync and to every change of a
    directory. With ``stalled`` none of these ends until it is healed. ``full`` refuses whatever
    needs space (ENOSPC). ``failing`` has "write" (every change) and "sync" (EIO). Reading always
    works: a disk that returns wrong bytes has flipped bits, which are damage and not a condition.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    stalled: bool = False
    full: bool = False
    failing: frozenset[str] = frozenset()


SOUND: Final = DiskFault()


@dataclass(frozen=True, slots=True)
class Flip:
    """A bit that was inverted: its place, and the byte that resulted."""

    path: str
    offset: int
    bit: int
    byte: int

    def there(self, data: bytes | bytearray) -> bool:
        """Return whether a reader of the file would still meet the inverted bit."""
        return data[self.offset : self.offset + 1] == bytes([self.byte])

    def __str__(self) -> str:
        return f"{self.path} byte {self.offset} bit {self.bit}"


@dataclass(frozen=True, slots=True)
class Truncation:
    """A file that lost its end, as after a repair of the file system."""

    path: str
    size: int

    def there(self, data: bytes | bytearray) -> bool:
        """Return whether the file still ends there."""
        return len(data) == self.size

    def __str__(self) -> str:
        return f"{self.path} cut to {self.size} bytes"
