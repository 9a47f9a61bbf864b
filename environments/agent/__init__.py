"""The agent: the program that runs on a machine with its broker, breaks it, and heals it.

This package imports only the standard library and modules that do the same: an agent runs where
nothing else may be installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from filesystems.disk import DISK_MODULES
from filesystems.nfs import CLIENT_MODULES

AGENT_MODULES: Final = (
    "environments/__init__.py",
    "environments/board.py",
    "environments/lease.py",
    "environments/part.py",
    *sorted(
        f"environments/agent/{path.name}"
        for path in Path(__file__).parent.glob("*.py")
        if path.stem != "database_agent"
    ),
    *dict.fromkeys((*CLIENT_MODULES, *DISK_MODULES)),
)
"""The files of ours that an agent needs, as paths from the project's root."""
