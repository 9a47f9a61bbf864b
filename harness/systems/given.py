"""The place on this machine where the person has a system's distribution."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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


@contextlib.contextmanager
def given_to_another() -> Iterator[None]:
    """Hide ``--system-home`` meanwhile: it is not of the system that is asked."""
    home = os.environ.pop(HOME, None)
    try:
        yield
    finally:
        if home is not None:
            os.environ[HOME] = home
