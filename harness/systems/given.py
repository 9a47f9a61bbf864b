"""The place on this machine where the person has a system's distribution."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harness.interface import Installed, System, UsageError

HOME: Final = "JEPSEN_RUN_SYSTEM_HOME"
"""The environment variable for the one system of a command; ``--system-home`` sets it.

Why a variable: processes that the command starts know it, and no spec or report names a path of one
machine.
"""


def given_home(variable: str) -> str:
    """Return the path of ``--system-home`` or of the system's own variable; "" without either."""
    return os.environ.get(HOME) or os.environ.get(variable, "")


def check_home(system: System) -> None:
    """Raise UsageError if a home was given for a system that has none."""
    if os.environ.get(HOME) and not isinstance(system, Installed):
        raise UsageError(
            f"--system-home {os.environ[HOME]}: system {system.name} has no distribution: "
            "name the system with --system, or leave out --system-home"
        )


def releases(system: System, homes: Sequence[str]) -> Mapping[str, str]:
    """Return the given homes by the releases of their brokers.

    Without one, it is the release of the brokers that are found without, and "" of brokers that
    are not installed. The first home is the one that is used from now on. Raises UsageError if a
    home is no distribution, or if two are of one release.
    """
    home_by_release: dict[str, str] = {}
    for home in homes or (os.environ.get(HOME, ""),):
        with using(home):
            check_home(system)
            if not isinstance(system, Installed):
                return {"": ""}
            if missing := system.missing():
                raise UsageError(f"system {system.name}: {missing}")
            release = system.version()
        if release in home_by_release:
            other = home_by_release[release]
            raise UsageError(
                f"--system-home {home} is {system.name} {release}, and so is {other}: give each release once"
            )
        home_by_release[release] = home
    if homes:
        os.environ[HOME] = homes[0]
    return home_by_release


@contextlib.contextmanager
def using(home: str) -> Iterator[None]:
    """Let the body use this home of the system under test; "" leaves the one that is given."""
    before = os.environ.get(HOME)
    if home:
        os.environ[HOME] = home
    try:
        yield
    finally:
        os.environ.pop(HOME, None)
        if before is not None:
            os.environ[HOME] = before


@contextlib.contextmanager
def given_to_another() -> Iterator[None]:
    """Hide ``--system-home`` meanwhile: it is not of the system that is asked."""
    home = os.environ.pop(HOME, None)
    try:
        yield
    finally:
        if home is not None:
            os.environ[HOME] = home
