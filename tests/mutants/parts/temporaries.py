"""Bugs of temporary queues: how long they live, and whose they are."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import REPLIES, REPLIES_AT_HOMES, REQUESTS

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
    Mutant(
        "reply-to-a-broker-without-a-link-dropped",
        _PART,
        "own",
        "a reply to a temporary queue of a broker that this one is not linked with at that moment is taken "
        "for one to a queue that has ended",
        frozenset({"lost"}),
        REPLIES,
        (
            Replacement(
                "broker/core/engine.py",
                "            return (self.queue(keeper),)\n",
                "            routes = self.router._routes\n"
                "            is_linked = routes.next_to(node_of_temporary(target)) is not None\n"
                "            return (self.queue(keeper),) if is_linked else ()\n",
            ),
        ),
    ),
    Mutant(
        "reply-to-an-unheard-queue-dropped",
        _PART,
        "own",
        "in a conventional cluster, a broker drops a reply to a temporary queue of which it has not heard",
        frozenset({"lost"}),
        REPLIES_AT_HOMES,
        (
            Replacement(
                "broker/core/engine.py",
                "        if temporary is None and self._keeps(target):\n",
                "        if False:\n",
            ),
        ),
    ),
)
