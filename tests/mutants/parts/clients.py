"""Bugs of clients, and of what a broker makes of clients that are late."""

from __future__ import annotations

from typing import Final

from mutants.changed import Replacement
from mutants.mutant import Arena, Mutant
from mutants.parts.arenas import ONE_PAIR

_PRODUCER: Final = "workloads/producer.py"
_CONSUMER: Final = "workloads/consumer.py"

LATE: Final = Arena(
    ONE_PAIR.kinds,
    {"pairs": 1, "producers": 3, "consumers": 3, "prefetch": 4, "hold_s": 0.2},
    (
        Replacement(
            _CONSUMER,
            "        self.attached.clear()\n        self._held.clear()\n        self._end_sessions(reason)\n",
            "        self.attached.clear()\n        self._end_sessions(reason)\n",
        ),
        Replacement(
            _CONSUMER,
            "        while held and held[0][0] <= now:\n",
            "        while held and held[0][0] <= now and self.attached.is_set():\n",
        ),
        Replacement(_CONSUMER, "max(held[0][0] - now, 0.002)", "max(held[0][0] - now, 0.01)"),
    ),
)
"""Consumers that acknowledge, on a new connection, what they got on the one they lost."""

SENDS_AGAIN: Final = (
    Replacement(
        "workloads/pacer.py",
        "kind = AgainSlot if context.spec.send_again and repeats else Slot\n",
        "kind = AgainSlot\n",
    ),
    Replacement(
        _PRODUCER,
        '        return b"%b%b:%d\\n" % (frame, self._once, self._message), value\n',
        "        return frame, value\n",
    ),
)
"""A producer that sends a message whose outcome is unknown once more, without an id."""

MUTANTS: Final = (
    Mutant(
        "stale-tag-acknowledges-another-message",
        "client",
        "rabbitmq-server 4004, 4305",
        "a message is acknowledged by its place in a subscription alone, whatever connection or life of "
        "the broker that was in",
        frozenset({"duplicate", "lost"}),
        LATE,
        (
            Replacement(
                "broker/stomp/session.py",
                '        self.ack_prefix = f"{self.name}-"\n',
                '        self.ack_prefix = ""\n',
            ),
        ),
    ),
    Mutant(
        "client-takes-unknown-for-failed",
        "client",
        "Jepsen clients: any unexpected exception is a fail",
        "the client records a send whose connection was lost as failed",
        frozenset({"aborted-delivery"}),
        ONE_PAIR,
        (
            Replacement(
                "stomp_protocol/client/connection.py",
                '                    operation.complete("info", reason)\n',
                '                    operation.complete("fail", reason)\n',
            ),
        ),
    ),
    Mutant(
        "client-sends-again",
        "client",
        "redpanda 3039",
        "the client sends a message whose outcome is unknown once more, without a duplicate-detection id",
        frozenset({"duplicate", "double-delivery"}),
        ONE_PAIR,
        SENDS_AGAIN,
    ),
)
