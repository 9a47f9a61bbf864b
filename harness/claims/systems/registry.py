"""The claims by system; the rows of a new system are added here."""

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
"""The module and name of the claims of each system."""


def of(system: str) -> SystemClaims | None:
    """Return the claims of a system; None if it has none."""
    if system not in CLAIMS:
        return None
    module, _, attribute = CLAIMS[system].partition(":")
    claims: SystemClaims = getattr(importlib.import_module(module), attribute)
    return claims
