"""Bugs of messages that move to another broker because nobody consumes them where they wait."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import REDISTRIBUTION

MUTANTS: Final = (
    Mutant(
        "redistributed-under-its-former-identity",
        "redistribution",
        "own",
        "a message that is redistributed keeps its identity, so a broker that has had it before takes it for "
        "a repeat",
        frozenset({"lost"}),
        REDISTRIBUTION,
        (
            Replacement(
                "broker/core/engine.py",
                "message.identity_at(self.settings.node_id).moved()",
                "message.identity_at(self.settings.node_id)",
            ),
        ),
    ),
    Mutant(
        "redistributed-and-kept",
        "redistribution",
        "ARTEMIS-4312",
        "a message that is redistributed stays in the journal of its former queue",
        frozenset({"duplicate", "double-delivery", "resurrected"}),
        REDISTRIBUTION,
        (
            Replacement(
                "broker/core/engine.py",
                "        operations += self.paging.removals([one.message for one in deliveries])\n",
                "",
            ),
        ),
    ),
    Mutant(
        "groups-redistributed",
        "redistribution",
        "own",
        "messages of groups are redistributed, too",
        frozenset({"group-split", "reordered", "reordered-session", "reordered-realtime"}),
        REDISTRIBUTION,
        (
            Replacement(
                "broker/core/queue.py",
                "        if self._redistributors:  # then nobody else consumes\n",
                "        if False:\n",
            ),
        ),
    ),
)
