"""Scenarios with an outcome that is known in advance: what the source documents promise, limit or describe."""

from harness.scenarios.registry import SCENARIOS, named
from harness.scenarios.scenario import Roles, Scenario

__all__ = ["SCENARIOS", "Roles", "Scenario", "named"]
