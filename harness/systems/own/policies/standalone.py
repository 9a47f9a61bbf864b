"""The policy ``standalone`` in a test: our brokers without a backup."""

from __future__ import annotations

from typing import Final

from harness.systems.own.policies.event import event, needing
from harness.systems.own.policies.policy import Policy

CONFIGURED: Final = "standalone"

_FORWARDING: Final = "forwarding"


class Standalone(Policy):
    """A policy with clustered brokers, each with its own disk."""

    name = "standalone"
    traits = (_FORWARDING,)
    events = needing(
        _FORWARDING,
        {
            "redistribution/begun": event(
                "a broker began to pass on messages that nobody consumed there",
                r"redistribution: the messages of queue .* move to other brokers",
                ("several",),
            ),
        },
    )
    description = "a cluster of brokers without backups; messages wait until their broker is restarted"
    configured = (CONFIGURED,)
