"""What can be wrong with a disk in memory, and how one finds out.

Why a value of its own: faults overlap and heal one by one, so whoever injects them sets the whole
condition anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WRITE: Final = "write"
SYNC: Final = "sync"


@dataclass(frozen=True, slots=True)
class DiskFault:
    """The fields combine freely. Times are seconds on the loop's clock.

    ``delay_s`` and up to ``jitter_s`` more are added to every sync and to every change of a
    directory; with ``stalled`` none of these ends until it is healed. ``full`` refuses whatever
    needs space (ENOSPC). ``failing`` has "write" (every change) and "sync" (EIO). Reading always
    works: a disk that lies about what is on it has flipped bits, which are no condition but damage.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    stalled: bool = False
    full: bool = False
    failing: frozenset[str] = frozenset()


SOUND: Final = DiskFault()


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit that was turned over: where, and the byte it made."""

    path: str
    offset: int
    bit: int
    byte: int

    def there(self, data: bytes | bytearray) -> bool:
        """Whether a reader of the file would still meet it."""
        return data[self.offset : self.offset + 1] == bytes([self.byte])

    def __str__(self) -> str:
        return f"{self.path} byte {self.offset} bit {self.bit}"


@dataclass(frozen=True, slots=True)
class Truncation:
    """A file that lost its end, as after a repair of the file system."""

    path: str
    size: int

    def there(self, data: bytes | bytearray) -> bool:
        """Whether a reader of the file would still miss it."""
        return len(data) == self.size

    def __str__(self) -> str:
        return f"{self.path} cut to {self.size} bytes"
