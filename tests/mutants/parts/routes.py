"""Bugs of the ways that messages take over other brokers."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import CHAIN

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
)
