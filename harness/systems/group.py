"""What a spec says of the live-backup groups of a test: ``--set group:backups=2``."""

from __future__ import annotations

from typing import Final

from harness.interface import TestSpec, UsageError
from harness.spec import near

NAME: Final = "group"
BACKUPS: Final = "backups"
"""How many slaves each live of policy ``replication`` has."""
BACKUPS_MAX: Final = 8


def backups(spec: TestSpec) -> int:
    """Backups of each live. Raises UsageError."""
    given = spec.properties.get(NAME, {})
    for name in given:
        if name != BACKUPS:
            raise UsageError(f"--set {NAME}:{name}: unknown property: {near(name, [BACKUPS])}")
    value = given.get(BACKUPS, 1)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= BACKUPS_MAX:
        raise UsageError(f"--set {NAME}:{BACKUPS}={value}: it must be a number from 1 to {BACKUPS_MAX}")
    return value
