"""All scenarios and probes, by the row of the claims they belong to.

A new family is added only here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.claims.scenarios import (
    change_record,
    change_record_probes,
    client_failover,
    client_list,
    cluster_probes,
    clusters,
    conventional,
    conventional_store,
    discovery,
    encryption_probes,
    file_system_probes,
    ha_database,
    ha_database_admin_probes,
    ha_database_probes,
    joining,
    limit_probes,
    limits,
    membership_probes,
    multi_instance,
    multi_instance_probes,
    reload_probes,
    replication,
    shared_store,
    shared_store_database,
    shared_store_probes,
    subscriptions,
    topics,
    transactions,
)
from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.scenario import Scenario
from harness.interface import UsageError
from harness.interface.errors import meant

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *replication.SCENARIOS,
    *shared_store.SCENARIOS,
    *shared_store_database.SCENARIOS,
    *ha_database.SCENARIOS,
    *multi_instance.SCENARIOS,
    *transactions.SCENARIOS,
    *subscriptions.SCENARIOS,
    *clusters.SCENARIOS,
    *clusters.BETWEEN_BROKERS,
    *conventional.SCENARIOS,
    *discovery.SCENARIOS,
    *client_failover.SCENARIOS,
    *client_list.SCENARIOS,
    *conventional_store.SCENARIOS,
    *joining.SCENARIOS,
    *limits.SCENARIOS,
    *topics.SCENARIOS,
    *change_record.SCENARIOS,
)

OTHERS_ONLY: Final[tuple[Scenario, ...]] = ()
"""The scenarios that brokers of own cannot run yet; each says what they lack."""

PROBES: Final[tuple[Probe, ...]] = (
    *ha_database_probes.PROBES,
    *ha_database_admin_probes.PROBES,
    *multi_instance_probes.PROBES,
    *file_system_probes.PROBES,
    *shared_store_probes.PROBES,
    *cluster_probes.PROBES,
    *membership_probes.PROBES,
    *limit_probes.PROBES,
    *reload_probes.PROBES,
    *change_record_probes.PROBES,
    *encryption_probes.PROBES,
    *conventional_store.PROBES,
)

FAMILIES: Final[Mapping[str, tuple[int, str]]] = {
    "SS": (10, "shared store (AMQ 17.3.1.2, 17.3.2)"),
    "RP": (20, "replication and quorum (AMQ 17.3.1.3, 17.3.3)"),
    "TX": (4, "transactions across a fail-over (AMQ 17.3.4, SUN, WMQ)"),
    "DS": (4, "durable subscriptions across a fail-over (AMQ 17.3.4, SUN, WMQ)"),
    "LO": (9, "live-only and scale-down (AMQ 17.3.4)"),
    "CO": (2, "colocated (AMQ 17.3.5)"),
    "CL": (21, "cluster (AMQ 17.1, 17.2, 17.4 - 17.6)"),
    "CV": (19, "conventional clusters (SUN, CAPS)"),
    "HA": (12, "high availability on a shared database (SUN)"),
    "MI": (6, "multi-instance (WMQ)"),
}
"""The families of claims: how many rows each has, and what they are about."""


def named(identifier: str) -> Scenario:
    """Return the scenario with that id. Raises KeyError."""
    return {scenario.id: scenario for scenario in (*SCENARIOS, *OTHERS_ONLY)}[identifier]


def chosen(words: Sequence[str]) -> tuple[Scenario | Probe, ...]:
    """Return the scenarios and probes that the words name.

    A word is a scenario or probe ("RP14-true"), a row ("RP14") or a family ("RP"); without words
    all are returned. Raises UsageError.
    """
    everything: tuple[Scenario | Probe, ...] = (*SCENARIOS, *OTHERS_ONLY, *PROBES)
    chosen_rows: dict[str, Scenario | Probe] = {}
    for word in words:
        identifier = word.upper()
        matching = [
            scenario
            for scenario in everything
            if identifier in (scenario.id.upper(), scenario.row, scenario.row.rstrip("0123456789"))
        ]
        if not matching:
            family = identifier.rstrip("0123456789")
            count, text = FAMILIES.get(family, (0, ""))
            if (identifier == family and text) or identifier.removeprefix(family) in map(
                str, range(1, count + 1)
            ):
                raise UsageError(f"{identifier}, {text}: no scenario exists yet")
            names = {name for scenario in everything for name in (scenario.id, scenario.row)} | set(FAMILIES)
            all_ = f"there are the families {', '.join(sorted(FAMILIES))} and their rows, for example RP14"
            raise UsageError(f'unknown claim "{word}": {meant(word, names).rstrip() or all_}')
        chosen_rows.update((scenario.id, scenario) for scenario in matching)
    return tuple(chosen_rows.values()) if words else everything


def missing() -> dict[str, str]:
    """Return the rows without a scenario or probe, by family: "SS8".

    If no row of a family has one, that is the family itself. With this nobody takes "all" for more
    than it is.
    """
    rows_present = {candidate.row for candidate in chosen([])}
    absent_rows = {}
    for family, (count, text) in FAMILIES.items():
        rows = [f"{family}{number}" for number in range(1, count + 1)]
        absent = [row for row in rows if row not in rows_present]
        if absent:
            absent_rows[family if absent == rows else ", ".join(absent)] = text
    return absent_rows
