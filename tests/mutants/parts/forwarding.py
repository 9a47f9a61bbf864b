"""Bugs of messages on their way from one broker to another."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Mutant
from mutants.parts.arenas import FORWARDING, FORWARDING_ALONE

MUTANTS: Final = (
    Mutant(
        "copied-again-after-a-crash",
        "forwarding",
        "Artemis: scale-down crash between copy and acknowledgement (nearest: a bridge repeats itself); "
        "ARTEMIS-4312, -2560",
        "a message that another broker sends again, because it does not know whether the first copy "
        "arrived, is taken twice",
        frozenset({"duplicate", "double-delivery"}),
        FORWARDING,
        (
            Replacement(
                "broker/core/engine.py",
                "            known = self._forwarded.sequence(identity)\n",
                "            known = None\n",
            ),
        ),
    ),
    Mutant(
        "duplicates-forgotten-at-a-takeover",
        "fail-over",
        "ARTEMIS-4312",
        "a broker that takes over does not read which forwarded messages had been taken already",
        frozenset({"duplicate", "double-delivery"}),
        FORWARDING,
        (
            Replacement(
                "broker/core/recovery.py",
                "            image.forwarded.append((record.id, *decode_forwarded(record)))\n",
                "            decode_forwarded(record)\n",
            ),
        ),
    ),
    Mutant(
        "forward-answered-before-it-is-stored",
        "forwarding",
        "AMQ-3695",
        "a forwarded message is confirmed to its origin when it is taken, not when it is durable",
        frozenset({"lost"}),
        FORWARDING_ALONE,
        (
            Replacement(
                "broker/cluster/arrivals.py",
                "engine.accept_forwarded(request.sender, messages, durable, passing)\n",
                "engine.accept_forwarded(request.sender, messages, None, passing)\n        durable()\n",
            ),
        ),
    ),
    Mutant(
        "bridge-keeps-what-it-held",
        "forwarding",
        "openmq 221, 218; ARTEMIS-4527",
        "a bridge that loses its link does not give back what was not confirmed",
        frozenset({"stuck"}),
        FORWARDING,
        (
            Replacement(
                "broker/cluster/bridge.py",
                "            self._engine.unsubscribe(consumer)\n",
                "            consumer.pause()\n",
            ),
        ),
    ),
)
