"""A row of the claims with the brokers of another system than ours, as data.

Why not the rows as they stand: other brokers need other times (a JVM starts in twenty seconds and
notices a cut after two). They have other properties and other words in their logs, and some depart
from the documents. What is done and what must follow from it stays in the scenario, so that runs
are judged by the same code. A departure from the documents is stated with the row, with the page of
the finding; it never makes the expectation of the documents softer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.registry import named
from harness.claims.scenarios.scenario import Scenario
from harness.interface import System

PATIENT: Final[Mapping[str, Any]] = {
    "operation_timeout_s": 10.0,
    "unavailable_bound_s": 60.0,
    "recovery_bound_s": 90.0,
    "quiet_period_s": 2.0,
}
"""The fields of a spec for brokers that take tens of seconds to start, on a busy machine."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """A departure of brokers from the documents: the row expects what the brokers do.

    ``page`` is the page of the finding, relative to ``docs``. It is "" if the brokers' own
    documents say so, too, and ``reason`` quotes them.
    """

    reason: str
    page: str = ""


class SystemRow(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario as it is run and judged with the brokers of one system."""

    scenario: Scenario
    departure: Departure | None = None


class SystemClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The rows with which one system's brokers are compared.

    ``anyway`` are findings that these brokers have whatever the fault, and without any. So no row
    is held against them: each row allows them. ``left_out`` is why a row, or one scenario of it,
    cannot be run with them. ``compared`` names rows and families of rows: a table of the page
    has their verdicts beside those of our own broker.
    """

    rows: tuple[SystemRow, ...]
    anyway: Mapping[str, Departure] = {}
    left_out: Mapping[str, str] = {}
    compared: tuple[str, ...] = ()

    def row(self, identifier: str) -> SystemRow | None:
        """Return the row of a scenario, or None."""
        return next((row for row in self.rows if row.scenario.id == identifier), None)

    def why_not(self, row: Scenario | Probe, system: System) -> str:
        """Return in words why there is no such row."""
        reason = self.left_out.get(row.id) or self.left_out.get(row.row)
        if reason:
            return reason
        if isinstance(row, Probe):
            return "the steps are for brokers of own only"
        if row.spec.policy not in system.policies:
            return f"brokers of {system.name} have no policy {row.spec.policy}"
        return f"no run is prepared for {system.name}"


def varied(
    identifier: str,
    system: str,
    *,
    spec: Mapping[str, Any],
    departure: Departure | None = None,
    anyway: Iterable[str] = (),
    **changes: Any,
) -> SystemRow:
    """Return the scenario of that id with other fields of its spec and other ``changes`` of itself.

    ``anyway`` as in ``SystemClaims``.
    """
    own_scenario = named(identifier)
    theirs = msgspec.structs.replace(
        own_scenario,
        spec=msgspec.structs.replace(own_scenario.spec, system=system, **spec),
        **changes,
    )
    allowed = tuple(dict.fromkeys((*theirs.allowed, *anyway)))
    return SystemRow(scenario=msgspec.structs.replace(theirs, allowed=allowed), departure=departure)
