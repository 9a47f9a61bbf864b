"""Bugs of what clients ask for messages: selectors, expiry, ids by which they are taken once."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import DISK, ONE_PAIR, SELECTORS

_PART: Final = "messages"

SENT_ONCE: Final = Arena(DISK.kinds, {**DISK.fields, "send_again": True})
"""Producers that send again what they know nothing of, with the id of its first send."""

SENT_ONCE_TO_A_PAIR: Final = Arena(ONE_PAIR.kinds, {**ONE_PAIR.fields, "send_again": True})
"""The same with a backup."""

MUTANTS: Final = (
    Mutant(
        "header-dropped-at-a-restart",
        _PART,
        "own",
        "a message that is read from the journal has lost the last of its headers",
        frozenset({"corrupted"}),
        DISK,
        (
            Replacement(
                "broker/core/message.py",
                "        data[headers_at:file_at],\n",
                '        data[headers_at : data.rfind(b"\\n", headers_at, file_at - 1) + 1],\n',
            ),
        ),
    ),
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
    Mutant(
        "ids-of-sends-forgotten-at-a-takeover",
        _PART,
        "ARTEMIS-4312",
        "a broker that takes over, or starts, does not read which ids clients have sent already",
        frozenset({"duplicate", "double-delivery"}),
        SENT_ONCE_TO_A_PAIR,
        (
            Replacement(
                "broker/core/recovery.py",
                "            image.sent.append((record.id, decode_sent(record.data)))\n",
                "            decode_sent(record.data)\n",
            ),
        ),
    ),
    Mutant(
        "ids-of-sends-not-replicated",
        _PART,
        "ARTEMIS-4312",
        "the backup gets what clients send, and not the ids that they were sent with",
        frozenset({"duplicate", "double-delivery"}),
        SENT_ONCE_TO_A_PAIR,
        (
            Replacement(
                "broker/policies/replication/feed.py",
                "        self._pending.append(entry)\n",
                "        _, operations = decode_entry(entry)\n"
                "        kept = [one for one in operations if one.kind != SENT]\n"
                "        if kept and len(kept) < len(operations):\n"
                "            entry = encode_entry(sequence, kept)\n"
                "        self._pending.append(entry)\n",
            ),
            Replacement(
                "broker/policies/replication/feed.py",
                "\n\nclass ReplicaFeed",
                "\n\nfrom broker.core.message import SENT\n"
                "from broker.storage.entry import decode_entry, encode_entry\n\n\nclass ReplicaFeed",
            ),
        ),
    ),
    Mutant(
        "selector-tests-another-message",
        _PART,
        "own",
        "a selector is evaluated on the headers of the message that was tested before",
        frozenset({"not-subscribed", "stuck"}),
        SELECTORS,
        (
            Replacement(
                "broker/core/filtering.py",
                "        if known is not message:\n",
                "        if known is None:\n",
            ),
        ),
    ),
)
