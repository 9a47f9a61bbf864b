"""Bugs of brokers that share a database: fencing, leases, takeovers."""

from __future__ import annotations

from typing import Any, Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant

_PART: Final = "ha-database"
_STORE_SESSIONS: Final = "broker/policies/ha_database/store_sessions.py"
_JOURNAL: Final = "broker/storage/database/journal.py"
_TWO_OWNERS: Final = frozenset(
    {"split-brain", "zombie", "lost", "duplicate", "double-delivery", "double-takeover"}
)

_TWO: Final[dict[str, Any]] = {"policy": "ha-database", "pairs": 2, "producers": 4, "consumers": 4}
_THREE: Final[dict[str, Any]] = {"policy": "ha-database", "pairs": 3}

ENDED: Final = Arena(("kill", "stop"), {**_THREE, "time_limit_s": 12.0})
"""Brokers that die and come back, one after the other."""

BACKLOG: Final = Arena(
    ("kill", "stop"),
    {**_THREE, "rate": 80.0, "consumers": 3, "prefetch": 2, "hold_s": 0.05, "time_limit_s": 12.0},
)
"""The same, and consumers that do not keep up.

Brokers fail with messages that nobody has had yet.
"""

TAKEN: Final = Arena(
    ("takeover", "pause"),
    {
        **_TWO,
        "rate": 60.0,
        "prefetch": 2,
        "hold_s": 0.1,
        "properties": {
            "*": {
                "ha-policy.ha-database.takeover-wait": 0,
                "ha-policy.ha-database.monitor-interval": 50,
            }
        },
    },
)
"""Takeovers by hand, as fast as can be, of brokers that serve or stand still for a moment."""

SEVERED: Final = Arena(("database-disconnect", "database-restart", "database-stall"), _TWO)
"""A database that is lost in the middle of things."""

MUTANTS: Final = (
    Mutant(
        "check-then-insert-fencing",
        _PART,
        "openmq: message inserts of a zombie are fenced by select-then-insert only",
        "a broker looks whether it still owns its store, every lock-renew-period, and writes in other "
        "transactions",
        _TWO_OWNERS,
        TAKEN,
        (
            Replacement(
                _JOURNAL,
                "            sent = loop.time()\n            try:\n                await "
                "self._database.transact(statements, self._timeout_s)\n",
                "            sent = loop.time()\n            try:\n"
                '                if sent >= getattr(self, "_looked_s", -1.0) + 0.3:\n'
                "                    [seen] = await self._database.transact([self._owner.position()], "
                "self._timeout_s)\n"
                "                    if seen.rows[0][0] != self._owner.epoch:\n"
                '                        raise JournalReplacedError("replaced")\n'
                "                    self._looked_s = sent\n"
                "                await self._database.transact(statements[1:], self._timeout_s)\n",
            ),
        ),
    ),
    Mutant(
        "takeover-leaves-the-rows",
        _PART,
        "openmq 221, 218",
        "messages that were taken over and consumed are removed from memory, not from the store",
        frozenset({"duplicate"}),
        ENDED,
        (
            Replacement(
                _JOURNAL,
                "tuple(key(id_) for id_ in batch.deleted)",
                "tuple((cluster, self._owner.session, id_) for id_ in batch.deleted)",
            ),
        ),
    ),
    Mutant(
        "anybody-takes-the-client-in",
        _PART,
        "ARTEMIS-2863, -856",
        "a client that belongs to a broker which failed is served by any other, before the messages it "
        "sent there are",
        frozenset({"reordered", "reordered-realtime", "group-split"}),
        BACKLOG,
        (
            Replacement(
                _STORE_SESSIONS,
                'return f"store session {session} is not served here", self._owners.get(session, "")',
                'return "", ""',
            ),
        ),
    ),
    Mutant(
        "unknown-outcome-taken-for-success",
        _PART,
        "Jepsen: a commit whose answer is lost is neither done nor undone",
        "a batch whose commit was not answered counts as stored",
        frozenset({"lost", "duplicate"}),
        SEVERED,
        (
            Replacement(
                _JOURNAL,
                "                in_doubt = in_doubt or isinstance(error, OutcomeUnknownError)\n",
                "                if isinstance(error, OutcomeUnknownError):\n                    return\n",
            ),
        ),
    ),
    Mutant(
        "receipt-before-commit",
        _PART,
        "nats-server 7564",
        "a receipt leaves when its batch is sent to the database, not when that has committed it",
        frozenset({"lost", "duplicate"}),
        SEVERED,
        (
            Replacement(
                _JOURNAL,
                "            begun = loop.time()\n",
                "            begun = loop.time()\n"
                "            if self.on_synced is not None:\n"
                "                self.on_synced(batch.after)\n",
            ),
        ),
    ),
)
