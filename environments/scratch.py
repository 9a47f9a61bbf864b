"""Temporary directories, which are recognised and removed when their owner was killed.

Why a lock and no process id in the name: the kernel releases the lock when the owner ends, however
it ends. This also works for owners in other containers that share the directory of temporary files.
A process id may belong to another process by then. The JVM of the checkers claims its directory the
same way (``checkers/gateway.py``, which must not know of environments).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from environments.labels import LEFT, NOTE

PREFIX: Final = "jepsen-run-scratch-"
_SETTLED_S: Final = 60.0
"""The owner of a directory that is younger than this may not have claimed it yet."""
_ELSEWHERE: Final = "elsewhere"
"""The file of a scratch directory that names a directory elsewhere, removed with it."""


@contextlib.contextmanager
def directory(purpose: str) -> Iterator[Path]:
    """Make a directory below the system's temporary one, and remove it at the end.

    ``purpose`` is a word of its name.
    """
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{purpose}-", ignore_cleanup_errors=True) as name:
        claim = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(claim)


@contextlib.contextmanager
def directory_in(parent: Path, purpose: str) -> Iterator[Path]:
    """Make a directory in ``parent`` for files that are then moved to their place there.

    It is removed at the end. Its name begins with a dot and ``purpose``. If its owner is killed,
    ``remove`` finds it by a scratch directory that names it, wherever ``parent`` is. Raises
    OSError.
    """
    path = parent.absolute() / f".{purpose}-{secrets.token_hex(4)}"
    with directory(_ELSEWHERE) as claimed:
        (claimed / _ELSEWHERE).write_bytes(os.fsencode(path))
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def belongs(path: Path) -> bool:
    """Return whether a path is a directory that this module made for this user and that exists."""
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


def leftovers(*, force: bool = False) -> list[str]:  # noqa: ARG001 - directories of living owners never count
    """Return what killed processes of this user left, one line each."""
    abandoned, notes = _unclaimed()
    return [*(_line(each) for path in abandoned for each in (*_elsewhere(path), path)), *notes]


def remove(*, force: bool = False) -> list[str]:  # noqa: ARG001 - as above
    """Remove what `leftovers` finds; return a line for each thing, with `LEFT` if it stays.

    A directory in another place is removed before the scratch directory that names it, so that it
    is never forgotten.
    """
    abandoned, lines = _unclaimed()
    for path in abandoned:
        for each in (*_elsewhere(path), path):
            shutil.rmtree(each, ignore_errors=True)
            lines.append(_line(each, LEFT if each.exists() else ""))
            if each.exists():
                break
    return lines


def _line(path: Path, note: str = "") -> str:
    kind = "scratch directory" if path.name.startswith(PREFIX) else "unfinished directory"
    return f"{note}{kind} {path}"


def _unclaimed() -> tuple[list[Path], list[str]]:
    """Return the directories whose owner is gone, and notes on those too young to say so."""
    abandoned, notes = [], []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        if not belongs(path) or _is_claimed(path):
            continue
        with contextlib.suppress(OSError):  # removed just now
            if abs(time.time() - path.lstat().st_mtime) < _SETTLED_S:
                notes.append(
                    f"{NOTE}{_line(path)}: left alone, younger than a minute and perhaps about to be used"
                )
            else:
                abandoned.append(path)
    return abandoned, notes


def _is_claimed(path: Path) -> bool:
    try:
        claim = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # removed just now, or not ours to open
        return True
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(claim)
    return False


def _elsewhere(path: Path) -> list[Path]:
    """Return the directory of this user that a scratch directory names, if it is there."""
    try:
        named = Path(os.fsdecode((path / _ELSEWHERE).read_bytes()))
        about = named.lstat()
    except (OSError, ValueError):
        return []
    is_ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and named.name.startswith(".")
    return [named] if is_ours else []
