"""The facts about the file system under a directory that this machine knows.

They are used where a test could find out only by pulling the plug.
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
    """Return the text of MOUNTS; places that are not UTF-8 are as ``os.fsdecode`` has them."""
    return os.fsdecode(MOUNTS.read_bytes())


def mount_point(escaped: str) -> str:
    """Return a place from the kernel's lists, in which some bytes are octal numbers."""
    plain = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), os.fsencode(escaped))
    return os.fsdecode(plain)


def unsafe(directory: Path, mounts: str, variables: Mapping[str, str]) -> str:
    """Return why fsync there cannot be believed; "" if nothing says so.

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
    """Return (type, options) of the mount that a directory is on.

    It is the last of the longest places that fit, as later mounts cover earlier ones.
    """
    place = os.path.realpath(directory)
    best: tuple[int, str, list[str]] = (-1, "", [])
    for line in filter(None, mounts.split("\n")):  # other ends of lines may be part of a place
        words = line.split(" ")
        separator = words.index("-")
        point = mount_point(words[4])
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= best[0]:
            options = words[5].split(",") + words[separator + 3].split(",")
            best = (len(point), words[separator + 1], options)
    return best[1], best[2]
