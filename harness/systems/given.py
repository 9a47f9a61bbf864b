"""Where on this machine the person has what a system under test is made of."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from harness.interface import Installed, System, UsageError

HOME: Final = "JEPSEN_RUN_SYSTEM_HOME"
"""Environment variable: of the one system of a command; ``--system-home`` sets it.

Why a variable: processes that the command starts know it, and no spec or report names a path of
one machine.
"""


def given_home(variable: str) -> str:
    """As ``--system-home`` or the system's own variable says; "" where neither does."""
    return os.environ.get(HOME) or os.environ.get(variable, "")


def check_home(system: System) -> None:
    """Raises UsageError where a home was given, and brokers are tested that have none."""
    if os.environ.get(HOME) and not isinstance(system, Installed):
        raise UsageError(
            f"--system-home {os.environ[HOME]}: system {system.name} has no distribution to be unpacked: "
            "say whose it is by --system, or leave it out"
        )


@contextlib.contextmanager
def given_to_another() -> Iterator[None]:
    """Meanwhile ``--system-home`` is not of the system that is asked."""
    home = os.environ.pop(HOME, None)
    try:
        yield
    finally:
        if home is not None:
            os.environ[HOME] = home
