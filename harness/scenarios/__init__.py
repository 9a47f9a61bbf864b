"""Scenarios with an outcome that is known in advance.

What the source documents promise, limit or describe.
"""

from harness.scenarios.probe import Probe
from harness.scenarios.refuter import Refuter
from harness.scenarios.registry import PROBES, SCENARIOS, named
from harness.scenarios.scenario import Roles, Scenario

__all__ = ["PROBES", "SCENARIOS", "Probe", "Refuter", "Roles", "Scenario", "named"]
