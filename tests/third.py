"""What a run of the tests tries in turn: all of it, or a third that the commit decides.

Mutants, ports under hostile inputs, scenarios once more with another seed or in another process,
and tests with the marker ``in_turn``: those that see once more, with another broker or on another
machine, what a test of every commit sees, and take a JVM or a cluster for it.
Why a third: each takes seconds of processor time, and a commit that blinds the search to one mutant
is seen three commits later at the latest. Of scenarios once more a commit tries a ninth: they are
simulated by every commit. Every night tries all (``--third=all``).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

ROOT: Final = Path(__file__).parents[1]

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


def chosen(third: str, those: Sequence[T]) -> Sequence[T]:
    """Every third of those, or all."""
    return those if third == ALL else those[THIRDS.index(third) :: 3]


OPTION: Final = "third"

MARKER: Final = "in_turn"


def left_to_others(third: str, items: Sequence[Any]) -> set[Any]:
    """Of the tests with the marker, those that other commits try."""
    marked = sorted((item for item in items if item.get_closest_marker(MARKER)), key=lambda item: item.nodeid)
    return {*marked} - {*chosen(third, marked)}


def few(third: str, those: Sequence[T]) -> Sequence[T]:
    """A third of that third, or all: of what only the night tries wholly."""
    return those if third == ALL else chosen(third, those)[::3]


def parametrize(
    metafunc: Any, argument: str, those: Mapping[str, Any], choose: Callable[..., Any] = chosen
) -> None:
    """The test is there for the third of those, which have names."""
    names = choose(metafunc.config.getoption(OPTION), tuple(those))
    metafunc.parametrize(argument, [those[name] for name in names], ids=names)
