"""All scenarios, by the row of the claims they belong to; the one place where a family is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.interface import UsageError
from harness.scenarios import ha_database, replication, shared_store
from harness.scenarios.scenario import Scenario
from harness.spec import near

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *replication.SCENARIOS,
    *shared_store.SCENARIOS,
    *ha_database.SCENARIOS,
)

FAMILIES: Final[Mapping[str, str]] = {
    "SS": "shared store (AMQ 17.3.1.2, 17.3.2)",
    "RP": "replication and quorum (AMQ 17.3.1.3, 17.3.3)",
    "LO": "live-only and scale-down (AMQ 17.3.4)",
    "CO": "colocated (AMQ 17.3.5)",
    "CL": "cluster (AMQ 17.1, 17.2, 17.4 - 17.6)",
    "CV": "conventional clusters (SUN, CAPS)",
    "HA": "high availability on a shared database (SUN)",
    "MI": "multi-instance (WMQ)",
}
"""The families of claims, those included that have no scenario yet."""


def named(identifier: str) -> Scenario:
    """The scenario with that id. Raises KeyError."""
    try:
        return next(scenario for scenario in SCENARIOS if scenario.id == identifier)
    except StopIteration:
        raise KeyError(identifier) from None


def chosen(words: Sequence[str]) -> tuple[Scenario, ...]:
    """Those that the words name: a scenario ("RP14-true"), a row ("RP14") or a family ("RP"); all without words. Raises UsageError."""
    found: dict[str, Scenario] = {}
    for word in words:
        wanted = word.upper()
        mine = [
            scenario
            for scenario in SCENARIOS
            if wanted in (scenario.id.upper(), scenario.row, scenario.row.rstrip("0123456789"))
        ]
        if not mine:
            if wanted in FAMILIES:
                raise UsageError(f"{wanted}, {FAMILIES[wanted]}: no scenario exists yet")
            known = {name for scenario in SCENARIOS for name in (scenario.id, scenario.row)} | set(FAMILIES)
            raise UsageError(f'unknown claim "{word}": {near(word, known)}')
        found.update((scenario.id, scenario) for scenario in mine)
    return tuple(found.values()) if words else SCENARIOS


def missing() -> dict[str, str]:
    """The families without any scenario, so that nobody takes "all" for more than it is."""
    there = {scenario.row.rstrip("0123456789") for scenario in SCENARIOS}
    return {family: text for family, text in FAMILIES.items() if family not in there}
