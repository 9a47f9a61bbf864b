"""Bugs of what is refused, dies, expires or waits for its time."""

from __future__ import annotations

from typing import Final

from harness.claims.changed import Replacement
from mutants.mutant import Arena, Mutant, Unfound
from mutants.parts.arenas import REFUSALS

_PART: Final = "refusals"
_ENGINE: Final = "broker/core/engine.py"
_PROPERTIES: Final = "broker/core/properties.py"
_UNPACKED: Final = "    return Properties(*_PACKED.unpack_from(data, position))\n"

SCANNED: Final = Arena(
    REFUSALS.kinds,
    {**REFUSALS.fields, "properties": {"*": {"broker.message-expiry-scan-period": 200}}},
)
"""The same with a scan for what has expired five times a second."""

IN_MEMORY: Final = Arena(REFUSALS.kinds, {**REFUSALS.fields, "consumers": 1, "properties": {}})
"""The same without pages, on which messages wait by age, and with so few consumers that many do."""

MUTANTS: Final = (
    Mutant(
        "delay-forgotten-after-a-restart",
        _PART,
        "own",
        "a start does not read until when a message is delayed",
        frozenset({"early-delivery"}),
        REFUSALS,
        (
            Replacement(
                _PROPERTIES,
                _UNPACKED,
                "    priority, expires, _ = _PACKED.unpack_from(data, position)\n"
                "    return Properties(priority, expires)\n",
            ),
        ),
    ),
    Mutant(
        "expiry-forgotten-after-a-restart",
        _PART,
        "own",
        "a start does not read when a message expires",
        frozenset({"expired-delivery"}),
        REFUSALS,
        (
            Replacement(
                _PROPERTIES,
                _UNPACKED,
                "    priority, _, due = _PACKED.unpack_from(data, position)\n"
                "    return Properties(priority, 0, due)\n",
            ),
        ),
    ),
    Mutant(
        "expired-until-the-scan-delivered",
        _PART,
        "own",
        "what has expired is found by the scan alone, and delivered until then",
        frozenset({"expired-delivery"}),
        REFUSALS,
        (
            Replacement(
                "broker/core/queue.py",
                "        if message.properties is not None and self._has_expired(message):\n",
                "        if message.properties is None and self._has_expired(message):\n",
            ),
        ),
    ),
    Mutant(
        "priority-ignored",
        _PART,
        "own",
        "a queue gives out its messages as they came, whatever priority they ask for",
        frozenset({"priority-inversion"}),
        IN_MEMORY,
        (
            Replacement(
                "broker/core/queue.py",
                "            if properties is not None:\n"
                "                message.place += (DEFAULT_PRIORITY - properties.priority) * RANK\n",
                "",
            ),
        ),
    ),
    Mutant(
        "lost-connections-count-as-refusals",
        _PART,
        "AMQ-9829",
        "a message is given up after so many deliveries, refused or not",
        frozenset({"died-early"}),
        REFUSALS,
        (
            Replacement(
                "broker/core/deadletters.py",
                "    refused_too_often = 0 <= settings.max_delivery_attempts <= message.refusals\n",
                "    refused_too_often = 0 <= settings.max_delivery_attempts <= message.deliveries\n",
            ),
        ),
    ),
    Mutant(
        "dead-letter-leaves-its-original",
        _PART,
        "own",
        "a message that dies is added to the dead letters, and not deleted from the journal of its queue",
        frozenset({"resurrected", "duplicate", "double-delivery"}),
        REFUSALS,
        (
            Replacement(
                _ENGINE,
                "                operations += self.paging.removals((message,))\n"
                "                if address:\n",
                "                if not address or message.page is not None:\n"
                "                    operations += self.paging.removals((message,))\n"
                "                if address:\n",
            ),
        ),
    ),
    Mutant(
        "dead-letter-stored-for-its-old-queue",
        _PART,
        "own",
        "a dead letter is stored as one of the queue that gave it up",
        frozenset({"resurrected", "duplicate", "double-delivery", "lost"}),
        REFUSALS,
        (
            Replacement(
                _ENGINE,
                "                    operations.append(Operation(ADD, MESSAGE, dead.id, encode(dead, "
                "holder.id)))\n",
                "                    operations.append(Operation(ADD, MESSAGE, dead.id, encode(dead, "
                "queue.id)))\n",
            ),
        ),
    ),
)

UNFOUND: Final = (
    Unfound(
        Mutant(
            "expires-while-it-is-held",
            _PART,
            "own",
            "the scan moves what has expired to the expiry address though a consumer holds it",
            frozenset({"resurrected", "duplicate", "double-delivery"}),
            SCANNED,
            (
                Replacement(
                    "broker/core/groups.py",
                    "        return [message for message in waiting if message in messages]\n",
                    "        return list(messages)\n",
                ),
            ),
        ),
        "a look at why 100 schedules of the workload refusals, with five scans a second, do not show it",
    ),
)
"""``test_expiry`` finds it."""
