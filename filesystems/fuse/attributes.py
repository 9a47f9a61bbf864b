"""What the kernel wants to know of a file, whichever file system it lies in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attributes:
    """One file as its file system knew it when it was asked.

    ``mode`` has the bits of its type too, as in stat(2); times are (seconds, nanoseconds).
    """

    file_id: int
    mode: int
    size: int
    links: int
    uid: int
    gid: int
    space_used: int
    accessed: tuple[int, int]
    changed: tuple[int, int]
    modified: tuple[int, int]
