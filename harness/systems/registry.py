"""The brokers that can be tested, by policy."""

from __future__ import annotations

from collections.abc import Mapping

from harness.interface import System
from harness.interface.errors import choose
from harness.systems.own import OwnSystem


def systems() -> tuple[System, ...]:
    """Every system, each with connections of its own."""
    return (OwnSystem(),)


def policies() -> Mapping[str, str]:
    """Policy -> one line about it, of all systems."""
    return {policy: line for system in systems() for policy, line in system.policies.items()}


def for_policy(policy: str) -> System:
    """The system that has ``policy``. Raises UsageError naming the near one."""
    choose("policy", policy, policies())
    return next(system for system in systems() if policy in system.policies)
