"""Scenarios with an outcome that is known in advance.

Their outcome is what the source documents promise, limit or describe.
"""

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.registry import PROBES, SCENARIOS, named
from harness.claims.scenarios.scenario import Roles, Scenario

__all__ = ["PROBES", "SCENARIOS", "Probe", "Roles", "Scenario", "named"]
