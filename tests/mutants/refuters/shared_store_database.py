"""The refuters of the rows about policy ``shared-store`` on a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mutants.changed import Replacement
from mutants.refuters.refuter import (
    FORGETS,
    LARGE,
    NEVER_IN_DOUBT,
    PAGES,
    WAITS,
    WAITS_FOR_EVER,
    Lack,
    Refuter,
    begins_without,
    without,
)
from mutants.refuters.shared_store import knows_losses

_CANDIDATE: Final = "broker/policies/shared_store/candidate.py"

_DATABASE: Final = "broker/policies/shared_store/database.py"

_LOCKS: Final = "broker/storage/database/locks.py"


def _lacking(lack: Lack) -> Refuter:
    begun = "        return Inherited(life, node_id, journal, Recovered(records))\n"
    return begins_without(lack, _DATABASE, begun, condition="life > 1", records="records")


REFUTERS: Final[Mapping[str, Refuter]] = {
    "SS10": without(
        "a broker does not compare its settings with those of the live",
        _DATABASE,
        "            if own_value != value and live != self._name:\n",
        "            if False:\n",
        fails="a backup with another lock-expiration ends with an error",
    ),
    "SS3-kill": _lacking(FORGETS),
    "SS3-large": _lacking(LARGE),
    "SS3-paging": _lacking(PAGES),
    "SS3-partition": Refuter(
        without="a backup that hears nothing from its live gets the live lock, although the live "
        "still holds it",
        fails="a2 became live",
        changes=knows_losses(
            Replacement(
                _CANDIDATE,
                'lock = await self._places.take("live")\n',
                'self._places._locks.alone = self.alone()\n        lock = await self._places.take("live")\n',
            ),
            Replacement(
                _LOCKS,
                "if kept and holder != self._holder:",
                'if kept and holder != self._holder and not (place == "live" and getattr(self, '
                '"alone", False)):',
            ),
            Replacement(_LOCKS, "AND (expires < clock_ms() OR holder = ?)", "AND (TRUE OR holder = ?)"),
        ),
    ),
    "SS3-stall": WAITS,
    "SS3-pause": Refuter(
        without="the writes of a live do not name the epoch of its lock",
        fails="zombie",
        changes=(
            Replacement(
                _LOCKS,
                "SET expires = clock_ms() + ? WHERE cluster_id = ? AND place = ? AND epoch = ?",
                "SET expires = clock_ms() + ? WHERE cluster_id = ? AND place = ? AND epoch >= 0 * ?",
            ),
            Replacement(
                _LOCKS,
                "WHERE cluster_id = ? AND place = ? AND epoch = ? AND entry = ?",
                "WHERE cluster_id = ? AND place = ? AND epoch >= 0 * ? AND entry >= 0 * ?",
            ),
        ),
    ),
    "SS3-cut-off": Refuter(
        without="a live trusts its lock until it hears otherwise, however long ago the lock was confirmed",
        fails="split-brain",
        changes=(NEVER_IN_DOUBT, WAITS_FOR_EVER),
    ),
}
