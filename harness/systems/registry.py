"""The systems under test by name.

A module is imported only when its system is chosen: what a broker's own modules need may be of no
use on this machine.
"""

from __future__ import annotations

import importlib
from typing import Final

from harness.interface import OWN, System, TestSpec, UsageError
from harness.interface.errors import choose, meant

SYSTEMS: Final[dict[str, str]] = {
    OWN: "harness.systems.own.system:OwnSystem",
    "artemis": "harness.systems.artemis.system:ArtemisSystem",
}
"""Name -> the module and class of it, which takes no argument. Here a system is added."""


def get(name: str) -> System:
    """A system with connections of its own. Raises UsageError naming the near one."""
    module, _, attribute = SYSTEMS[choose("system", name, SYSTEMS)].partition(":")
    system: System = getattr(importlib.import_module(module), attribute)()
    return system


def of(spec: TestSpec) -> System:
    """The system that a spec is for. Raises UsageError for a policy that it does not have."""
    system = get(spec.system)
    if spec.policy not in system.policies:
        raise UsageError(
            f'unknown policy "{spec.policy}": {meant(spec.policy, system.policies)}'
            f"system {system.name} has {', '.join(system.policies)}"
        )
    return system
