"""The runtime that brokers of others need, Java, and the check whether this machine has it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from typing import Final

from harness.interface import Runtime, UsageError

_PATIENCE_S: Final = 30.0


def java(least: int) -> Runtime:
    """Return the need of this release of Java or a later one: 17 of "17.0.15", 8 of "1.8.0"."""
    return Runtime(
        program="java",
        package="default-jre-headless",
        asks=("-version",),
        release=r'version "(?:1\.)?(\d+)',
        least=least,
    )


def heap_mb(option: str) -> int:
    """Return the size of a JVM's heap (MB) from its option, 256m.

    Raises UsageError for a text that is not a size.
    """
    size = re.fullmatch(r"(\d+)([mMgG])", option)
    if size is None:
        raise UsageError(f"--set jvm.heap={option}: it must be a number with m or g, for example 256m")
    return int(size[1]) * (1024 if size[2] in "gG" else 1)


def lack_here(runtime: Runtime) -> str:
    """Return what this machine lacks of a runtime, in one line; "" if nothing."""
    program = shutil.which(runtime.program)
    lack = runtime.lack(None if program is None else _output_of(program, runtime.asks))
    return lack if program is None or not lack else f"{program}: {lack}"


@functools.cache
def _output_of(program: str, asks: tuple[str, ...]) -> str:
    if not asks:
        return ""
    try:
        done = subprocess.run(
            [program, *asks],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
