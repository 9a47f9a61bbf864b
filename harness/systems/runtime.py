"""The runtime that brokers of others need, Java, and the one that this machine has."""

from __future__ import annotations

import contextlib
import re
import zipfile
from pathlib import Path
from typing import Final

from checkers.java import NoJavaError, find
from harness.interface import Runtime, UsageError

_CLASS_FILES_AHEAD: Final = 44
"""The difference between the version of a class file and the release of Java that it needs."""


_ON_HOSTS: Final = ("/usr/lib/jvm/*/bin/java",)
"""The places of Java on a host, besides its PATH: those of packages."""


def java(least: int) -> Runtime:
    """Return the need of this release of Java or a later one: 17 of "17.0.15", 8 of "1.8.0".

    On this machine it is one that ``checkers.java`` finds, which need not be on PATH.
    """
    local_path = ""
    with contextlib.suppress(NoJavaError):
        local_path = str(find(least).program)
    return Runtime(
        program="java",
        package="default-jre-headless",
        asks=("-version",),
        release=r'version "(?:1\.)?(\d+)',
        least=least,
        local_path=local_path,
        elsewhere=_ON_HOSTS,
    )


def lack_of_java(least: int) -> str:
    """Return why this machine has no Java of this release or a later one; "" if it has."""
    try:
        find(least)
    except NoJavaError as error:
        return str(error)
    return ""


def compiled_for(jar: Path, least: int) -> int:
    """Return the release of Java that a jar was compiled for, but ``least`` if it is older.

    A jar without classes, or none at all, is as good as an old one. The Java Virtual Machine
    Specification, 4.1, has the form of a class file: its version is in bytes 6 and 7.
    """
    try:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and not name.startswith("META-INF/"):
                    with archive.open(name) as file:
                        return max(least, int.from_bytes(file.read(8)[6:]) - _CLASS_FILES_AHEAD)
    except (OSError, zipfile.BadZipFile):
        pass
    return least


def heap_mb(option: str) -> int:
    """Return the size of a JVM's heap (MB) from its option, 256m.

    Raises UsageError for a text that is not a size.
    """
    size = re.fullmatch(r"(\d+)([mMgG])", option)
    if size is None:
        raise UsageError(f"--set jvm.heap={option}: it must be a number with m or g, for example 256m")
    return int(size[1]) * (1024 if size[2] in "gG" else 1)
