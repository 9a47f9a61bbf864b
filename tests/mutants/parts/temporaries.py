"""Bugs of temporary queues: how long they live, and whose they are."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import REQUESTS

_PART: Final = "temporary queues"
_SURVIVES: Final = Replacement(
    "broker/stomp/subscription.py",
    "        if self.transient and not engine.abandoned",
    "        if self.transient and queue.subscription is not None and not engine.abandoned",
)

MUTANTS: Final = (
    Mutant(
        "temporary-queue-survives-its-connection",
        _PART,
        "own",
        "a temporary queue is still there when its connection has ended, with what waits in it",
        frozenset({"resurrected"}),
        REQUESTS,
        (_SURVIVES,),
    ),
    Mutant(
        "temporary-queue-given-to-another",
        _PART,
        "own",
        "the temporary queue of a connection that has ended is given to the next one that wants one",
        frozenset({"corrupted"}),
        REQUESTS,
        (
            _SURVIVES,
            Replacement(
                "broker/stomp/destinations.py",
                "        self._engine.queue(queue)\n",
                "        for other in self._engine.queues.values():\n"
                "            if other.name.startswith(TEMPORARY_PREFIX) and not other.consumers:\n"
                "                queue = other.name\n"
                "        self._engine.queue(queue)\n",
            ),
        ),
    ),
)
