"""Bugs of multi-instance queue managers: which instance is active."""

from __future__ import annotations

from typing import Any, Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant

_PART: Final = "multi-instance"
_PLACES: Final = "broker/policies/multi_instance/places.py"
_LIVE: Final = "broker/policies/shared_store/live.py"
_TWO_ACTIVE: Final = frozenset({"split-brain", "lost", "duplicate"})

_ONE: Final[dict[str, Any]] = {"policy": "multi-instance", "pairs": 1, "producers": 3, "consumers": 3}

LOST_FILES: Final = Arena(("nfs-disconnect", "nfs-stall"), {**_ONE, "time_limit_s": 16.0})
"""Instances that lose their file system, some for longer than it keeps their locks."""

SWITCHED: Final = Arena(("switch-over", "disk-slow"), {**_ONE, "rate": 60.0})
"""Places that are handed over, on a file system that takes its time."""

MUTANTS: Final = (
    Mutant(
        "active-locks-are-not-confirmed",
        _PART,
        "ARTEMIS-2421; IBM MQ: the active instance confirms its locks, or ends itself after 20 s",
        "the active instance believes in its locks once it has them",
        _TWO_ACTIVE,
        LOST_FILES,
        (
            Replacement(
                _PLACES,
                "        await self.data.verify()\n        await self.logs.verify()\n",
                "        return\n",
            ),
        ),
    ),
    Mutant(
        "switched-over-before-the-end",
        _PART,
        "ARTEMIS-1304",
        "an active instance that is ended gives its locks back first and ends its service afterwards",
        _TWO_ACTIVE,
        SWITCHED,
        (
            Replacement(
                _LIVE,
                "            await self._quiesce(self.live.close())\n",
                "            await self._store.leave(self.lock, LIVE)\n"
                "            await self.lock.release()\n"
                "            await self._quiesce(self.live.close())\n",
            ),
            Replacement(_LIVE, "await self._store.leave(self.lock, state)", "assert state"),
        ),
    ),
)
