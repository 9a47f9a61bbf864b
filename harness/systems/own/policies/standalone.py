"""The policy ``standalone`` in a test: our brokers without a backup."""

from __future__ import annotations

from typing import Final

from harness.systems.own.policies.policy import Policy

CONFIGURED: Final = "standalone"


class Standalone(Policy):
    """A policy with clustered brokers, each with its own disk."""

    name = "standalone"
    description = "a cluster of brokers without backups; messages wait until their broker is restarted"
    configured = (CONFIGURED,)
