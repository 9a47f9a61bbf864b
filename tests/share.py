"""What a run of the tests tries in turn: all of it, or a sixth that the commit decides.

Mutants, ports under hostile inputs, scenarios once more with another seed or in another process,
and tests with the marker ``in_turn``: those that see once more, with another broker, on another
machine or in other histories, what a test of every commit sees, and take seconds for it.
Why a sixth: a commit that breaks one of them is seen six commits later at the latest. Of mutants,
and of scenarios once more, a commit tries a twelfth. Every night tries all (``--share=all``).

CI tries each row of the claims with every commit (marker ``row``). Other runs try a sixth of these
rows, too: a newcomer's run of all tests shall end within eight minutes on two cores.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from harness import __version__

ROOT: Final = Path(__file__).parents[1]

ALL: Final = "all"
SHARES: Final = ("1/6", "2/6", "3/6", "4/6", "5/6", "6/6")

T = TypeVar("T")


def of_commit() -> str:
    """Return the share of today's commit: each commit has the next one.

    Where commits cannot be counted (no repository, or a shallow one), CI tries all. Elsewhere the
    commit's name decides, or in an unpacked archive the version of the program: whoever only wants
    to see the tests pass shall not wait for six times as many.
    """
    shallow = _git("rev-parse", "--is-shallow-repository")
    count = _git("rev-list", "--count", "HEAD")
    if shallow == "false" and count.isdigit():
        return SHARES[int(count) % len(SHARES)]
    if in_ci():
        return ALL
    return SHARES[zlib.crc32((_git("rev-parse", "HEAD") or __version__).encode()) % len(SHARES)]


def _git(*words: str) -> str:
    """What git says; "" where it cannot."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def chosen(share: str, those: Sequence[T]) -> Sequence[T]:
    """Return that share of those, or all."""
    return those if share == ALL else those[SHARES.index(share) :: len(SHARES)]


OPTION: Final = "share"

IN_TURN: Final = "in_turn"
ROW: Final = "row"


def left_to_others(share: str, items: Sequence[Any]) -> set[Any]:
    """Return those of these tests that are tried in turn, and not with this commit."""
    left = set()
    for marker in (IN_TURN,) if in_ci() else (IN_TURN, ROW):
        marked = sorted(
            (item for item in items if item.get_closest_marker(marker)), key=lambda item: item.nodeid
        )
        left |= {*marked} - {*chosen(share, marked)}
    return left


def in_ci() -> bool:
    """Return whether this is a run of CI, which says so by a variable of the environment."""
    return os.environ.get("CI") == "true"


def few(share: str, those: Sequence[T]) -> Sequence[T]:
    """Return half of that share, or all: of what takes longest."""
    return those if share == ALL else chosen(share, those)[::2]


def parametrize(
    metafunc: Any, argument: str, those: Mapping[str, Any], choose: Callable[..., Any] = chosen
) -> None:
    """Make the test for that share of those, which have names."""
    names = choose(metafunc.config.getoption(OPTION), tuple(those))
    metafunc.parametrize(argument, [those[name] for name in names], ids=names)
