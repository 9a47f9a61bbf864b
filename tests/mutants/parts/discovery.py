"""Bugs of brokers that find each other by broadcasts."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import DISCOVERY, DISCOVERY_OF_PAIRS

_DISCOVERY: Final = "broker/cluster/discovery.py"

MUTANTS: Final = (
    Mutant(
        "master-does-not-listen-before-it-is-live",
        "discovery",
        "own",
        "a master that looks for a live with its node ID does not wait for broadcasts",
        frozenset({"split-brain", "zombie", "duplicate", "double-delivery", "lost", "diverged"}),
        DISCOVERY_OF_PAIRS,
        (
            Replacement(
                _DISCOVERY,
                "        await asyncio.sleep(max(0.0, self._started_s + self._timeout_s - now_s))\n",
                "        await asyncio.sleep(0 * now_s)\n",
            ),
        ),
    ),
    Mutant(
        "removed-entry-never-returns",
        "discovery",
        "ARTEMIS-2637 (nearest: an error ends discovery)",
        "a broker whose entry was removed is not dialled when it is heard again",
        frozenset({"diverged"}),
        DISCOVERY,
        (
            Replacement(
                _DISCOVERY,
                "        self._removed.pop(connector, None)\n",
                "        if suffix:\n            return\n",
            ),
        ),
    ),
)
