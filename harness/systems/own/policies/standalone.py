"""The policy ``standalone`` in a test: our brokers without a backup."""

from __future__ import annotations

from typing import Final

from harness.systems.own.policies.policy import Policy

CONFIGURED: Final = "standalone"


class Standalone(Policy):
    """A policy with clustered brokers, each with its own disk."""

    name = "standalone"
    description = "brokers without a backup, clustered; what one holds waits for its restart"
    configured = (CONFIGURED,)
