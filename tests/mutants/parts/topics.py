"""Bugs of topics: what subscriptions have, and what becomes of them."""

from __future__ import annotations

from typing import Final

from harness.claims.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import ONE_PAIR

_PART: Final = "topics"
_ENGINE: Final = "broker/core/engine.py"

MUTANTS: Final = (
    Mutant(
        "drop-not-durable",
        _PART,
        "own",
        "the drop of a subscription that has messages is not written to the journal",
        frozenset({"resurrected", "phantom"}),
        ONE_PAIR,
        (
            Replacement(
                _ENGINE,
                "        return [Operation(UPDATE, DROPPED, id_) for id_ in (queue.id, *queue.also)]\n",
                "        return []\n",
            ),
        ),
    ),
    Mutant(
        "name-made-again-keeps-its-backlog",
        _PART,
        "own",
        "a start does not see that a subscription was dropped that was not empty yet; one that was made "
        "again under its name has the messages of both",
        frozenset({"resurrected", "phantom"}),
        ONE_PAIR,
        (
            Replacement(
                "broker/core/recovery.py",
                "durable or any(update.kind == DROPPED for update in record.updates):\n",
                "durable:\n",
            ),
        ),
    ),
    Mutant(
        "send-to-a-topic-in-several-entries",
        _PART,
        "own",
        "what is sent to a topic is an entry of the journal for each subscription",
        frozenset({"lost"}),
        ONE_PAIR,
        (
            Replacement(
                _ENGINE,
                "        sequence = self.journal.append(operations) if operations else "
                "self.journal.last_sequence\n"
                "        if places or done is not None:\n",
                "        sequence = self.journal.last_sequence\n"
                "        for operation in operations:\n"
                "            self.journal.append([operation])\n"
                "        if places or done is not None:\n",
            ),
        ),
    ),
)
