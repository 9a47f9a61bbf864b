"""The agent: what runs on a machine beside its broker, breaks it, and heals it.

Only the standard library and modules that keep to it are imported in this package: an agent runs
where nothing else may be installed.
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
"""The files of ours that it needs, from the project's root."""
