"""Our brokers alone: how a test of brokers without a policy is configured."""

from __future__ import annotations

from typing import Final

from harness.systems.own.policies.policy import Policy

CONFIGURED: Final = "standalone"


class Standalone(Policy):
    """Clustered, each with its own disk."""

    name = "standalone"
    description = "brokers without a backup, clustered; what one holds waits for its restart"
    configured = (CONFIGURED,)
