"""Bugs of what clients ask for messages: selectors, expiry, ids by which they are taken once."""

from __future__ import annotations

from typing import Final

from harness.claims.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import DISK, ONE_PAIR
from mutants.parts.clients import SENDS_AGAIN

_PART: Final = "messages"

SENT_ONCE: Final = Arena(
    DISK.kinds,
    DISK.fields,
    (
        *SENDS_AGAIN,
        Replacement(
            "workloads/producer.py",
            "            connection.request(frame, self, body)\n",
            '            once = b"_AMQ_DUPL_ID:%d\\n" % self._message\n'
            "            connection.request(frame + once, self, body)\n",
        ),
    ),
)
"""Producers that send again what they know nothing of, with the id of its first send."""

MUTANTS: Final = (
    Mutant(
        "ids-of-sends-not-journalled",
        _PART,
        "own",
        "what a client has sent with an id is remembered in memory alone",
        frozenset({"duplicate", "double-delivery"}),
        SENT_ONCE,
        (
            Replacement(
                "broker/core/engine.py",
                "            Operation(ADD, SENT, mark, encode_sent(sent)),\n",
                "",
            ),
        ),
    ),
)

UNSEARCHED: Final = (
    Mutant(
        "selector-tests-another-message",
        _PART,
        "own",
        "a selector is evaluated on the headers of the message that was tested before",
        frozenset({"phantom", "stuck"}),
        ONE_PAIR,
        (
            Replacement(
                "broker/core/filtering.py",
                "        if known is not message:\n",
                "        if known is None:\n",
            ),
        ),
    ),
    Mutant(
        "expires-while-it-is-held",
        _PART,
        "own",
        "the scan moves what has expired to the expiry address though a consumer holds it",
        frozenset({"duplicate", "double-delivery"}),
        ONE_PAIR,
        (
            Replacement(
                "broker/core/groups.py",
                "        return [message for message in waiting if message in messages]\n",
                "        return list(messages)\n",
            ),
        ),
    ),
)
"""No workload asks for these yet: ``test_filtering`` and ``test_expiry`` find them."""
