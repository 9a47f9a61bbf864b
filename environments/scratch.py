"""Directories for what is only needed while something runs.

They are recognised and removed when their owner was killed.

Why a lock and no process id in the name: the kernel lets go of it when the owner ends, however it
ends, and for owners in other containers that share the directory of temporary files just the same;
an id may be another process' by then. The JVM of the checkers claims its directory the same way
(``checkers/gateway.py``, which must not know of environments).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from environments.labels import LEFT

PREFIX: Final = "jepsen-run-scratch-"
_SETTLED_S: Final = 60.0
"""A younger directory may not be claimed yet."""


@contextlib.contextmanager
def directory(purpose: str) -> Iterator[Path]:
    """A directory below the system's temporary one, removed at the end.

    ``purpose`` is a word of its name.
    """
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{purpose}-", ignore_cleanup_errors=True) as name:
        claim = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(claim)


def belongs(path: Path) -> bool:
    """Whether a path is a directory that this module made for this user, and still there."""
    try:
        about = path.lstat()
    except OSError:
        return False
    return (
        path.name.startswith(PREFIX)
        and about.st_uid == os.getuid()
        and path.is_dir()
        and not path.is_symlink()
    )


def leftovers(*, force: bool = False) -> list[str]:  # noqa: ARG001 - nobody's who lives is ever asked about
    """What killed processes of this user left, one line each."""
    return [f"scratch directory {path}" for path in _abandoned()]


def remove(*, force: bool = False) -> list[str]:  # noqa: ARG001 - as above
    """Remove what `leftovers` finds; one line for each thing, also where it is `LEFT`."""
    lines = []
    for path in _abandoned():
        shutil.rmtree(path, ignore_errors=True)
        lines.append(f"{LEFT if path.exists() else ''}scratch directory {path}")
    return lines


def _abandoned() -> list[Path]:
    found = sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    return [path for path in found if _is_abandoned(path)]


def _is_abandoned(path: Path) -> bool:
    try:
        about = path.lstat()
        if about.st_uid != os.getuid() or abs(time.time() - about.st_mtime) < _SETTLED_S:
            return False
        claim = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # removed just now, or no directory
        return False
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(claim)
    return True
