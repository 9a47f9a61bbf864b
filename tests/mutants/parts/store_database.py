"""Bugs of brokers whose shared store is a database.

Rows for locks, and rows that outlive their writers.
"""

from __future__ import annotations

from typing import Any, Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant

_PART: Final = "store-database"
_LOCKS: Final = "broker/storage/database/locks.py"
_STORE: Final = "broker/policies/shared_store/database.py"

_ONE: Final[dict[str, Any]] = {
    "policy": "shared-store",
    "pairs": 1,
    "producers": 3,
    "consumers": 3,
    "properties": {"store": {"type": "database"}},
}

SILENCED: Final = Arena(("pause", "database-disconnect"), {**_ONE, "rate": 60.0})
"""Brokers that stand still, or are cut off from the database, for a moment or for good."""

ENDED: Final = Arena(("kill", "stop"), {**_ONE, "prefetch": 2, "hold_s": 0.05, "rate": 60.0})
"""Brokers that end while messages wait."""

MUTANTS: Final = (
    Mutant(
        "lock-taken-after-missed-renewals",
        _PART,
        "AMQ-4705; Artemis: a lock of a database is another's when it was not renewed in time",
        "who waits takes a lock whose holder has missed two renewals, long before it has expired",
        frozenset({"split-brain", "zombie", "duplicate", "double-delivery", "lost"}),
        SILENCED,
        (
            Replacement(
                _LOCKS,
                "CASE WHEN expires >= clock_ms() THEN 1 ELSE 0 END",
                "CASE WHEN expires >= clock_ms() + 3500 THEN 1 ELSE 0 END",
            ),
            Replacement(
                _LOCKS,
                "AND (expires < clock_ms() OR holder = ?)",
                "AND (expires < clock_ms() + 3500 OR holder = ?)",
            ),
        ),
    ),
    Mutant(
        "ids-of-a-former-life",
        _PART,
        "ARTEMIS-1221",
        "a new life gives its messages ids that the last one has given already",
        frozenset({"lost", "duplicate", "not-recovered", "corrupted", "reordered", "unavailable"}),
        ENDED,
        (
            Replacement(
                _STORE,
                'life = cast("int", found.rows[0][0]) + 1\n',
                'life = max(1, cast("int", found.rows[0][0]))\n',
            ),
        ),
    ),
)
