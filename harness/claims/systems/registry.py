"""The claims by system. Here a system's rows are added."""

from __future__ import annotations

import importlib
from typing import Final

from harness.claims.systems.row import SystemClaims

CLAIMS: Final[dict[str, str]] = {
    "artemis": "harness.claims.systems.artemis:CLAIMS",
    "classic": "harness.claims.systems.classic:CLAIMS",
    "openmq": "harness.claims.systems.openmq:CLAIMS",
    "rabbitmq": "harness.claims.systems.rabbitmq:CLAIMS",
}
"""System -> the module and name of its claims."""


def of(system: str) -> SystemClaims | None:
    """The claims of a system; None where none are laid out for it."""
    if system not in CLAIMS:
        return None
    module, _, attribute = CLAIMS[system].partition(":")
    found: SystemClaims = getattr(importlib.import_module(module), attribute)
    return found
