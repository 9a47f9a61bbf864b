"""What this machine knows about the file system under a directory.

It is asked where a test cannot find it out without pulling the plug.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
_MEMORY: Final = ("tmpfs", "ramfs")
_UNSAFE: Final = ("nobarrier", "barrier=0", "volatile")


def mount_table() -> str:
    """The text of MOUNTS; places that are no UTF-8 as ``os.fsdecode`` has them."""
    return os.fsdecode(MOUNTS.read_bytes())


def mount_point(escaped: str) -> str:
    """A place as the kernel's lists have it, where some bytes are octal numbers."""
    plain = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), os.fsencode(escaped))
    return os.fsdecode(plain)


def unsafe(directory: Path, mounts: str, variables: Mapping[str, str]) -> str:
    """Why fsync there cannot be believed; "" if nothing says so.

    ``mounts`` is the ``mount_table``, ``variables`` the environment.
    """
    if "eatmydata" in variables.get("LD_PRELOAD", ""):
        return "libeatmydata is loaded, which turns fsync into nothing"
    kind, options = _mount_of(directory, mounts)
    if kind in _MEMORY:
        return f"it is a {kind}: its files are in this machine's memory"
    found = [option for option in options if option in _UNSAFE]
    return f"it is mounted with {found[0]}, so that fsync does not reach the disk" if found else ""


def _mount_of(directory: Path, mounts: str) -> tuple[str, list[str]]:
    """(type, options) of the mount that a directory is on.

    The last of the longest that fit, as later ones cover earlier ones.
    """
    place = os.path.realpath(directory)
    best: tuple[int, str, list[str]] = (-1, "", [])
    for line in filter(None, mounts.split("\n")):  # no other end of a line is escaped in a place
        words = line.split(" ")
        separator = words.index("-")
        point = mount_point(words[4])
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= best[0]:
            options = words[5].split(",") + words[separator + 3].split(",")
            best = (len(point), words[separator + 1], options)
    return best[1], best[2]
