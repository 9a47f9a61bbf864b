"""Which mutants a run of the tests tries: all, or a third that the commit decides.

Why a third: each takes a second or two of processor time, and a commit that blinds the search to
one of them is seen three commits later at the latest. Every night tries all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).parents[2]

ALL: Final = "all"
THIRDS: Final = ("1/3", "2/3", "3/3")

T = TypeVar("T")


def of_commit() -> str:
    """The third of today's commit: each commit has the next one.

    All where the number of commits is not known: no repository, or a shallow one.
    """
    shallow = _git("rev-parse", "--is-shallow-repository")
    count = _git("rev-list", "--count", "HEAD")
    return THIRDS[int(count) % 3] if shallow == "false" and count.isdigit() else ALL


def _git(*words: str) -> str:
    """What git says; "" where it cannot."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def chosen(third: str, names: Sequence[T]) -> Sequence[T]:
    """Every third of them, or all."""
    return names if third == ALL else names[THIRDS.index(third) :: 3]
