"""Bugs of the ways that messages take over other brokers."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import CHAIN, ROUND_CUTS

MUTANTS: Final = (
    Mutant(
        "first-link-state-counts",
        "routes",
        "own",
        "a broker looks at no version of a link state, and keeps the first that it hears of each life",
        frozenset({"stuck"}),
        CHAIN,
        (
            Replacement(
                "broker/cluster/routes.py",
                "        return state.version > known.version\n",
                "        return state.start > known.start\n",
            ),
        ),
    ),
    Mutant(
        "hops-counted-at-the-destination",
        "routes",
        "own",
        "of two copies of a message that came by different ways, a broker takes both, because one has "
        "crossed more links",
        frozenset({"duplicate", "double-delivery"}),
        ROUND_CUTS,
        (
            Replacement(
                "broker/core/identity.py",
                "        return MessageId(self.origin, self.record, self.moves) if self.hops else self\n",
                "        return self\n",
            ),
        ),
    ),
)
