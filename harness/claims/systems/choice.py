"""The choice of the rows that run with a system's brokers, and the reasons why others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.claims.scenarios.probe import Probe
from harness.claims.scenarios.scenario import Scenario
from harness.claims.systems import registry
from harness.claims.systems.ledger import Ledger
from harness.claims.systems.row import Departure
from harness.interface import OWN, Installed, UsageError
from harness.systems import registry as systems


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The rows that run, of those that were asked for.

    ``left_out`` has the ids of the rows that do not run, by the reason.
    """

    system: str
    rows: Sequence[Scenario | Probe]
    departures: Mapping[str, Departure] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def ledger(self, path: Path, *, unnamed: bool = False) -> Ledger:
        """Return the file of results of this system, for the installed release.

        ``unnamed`` means any release, for a caller that only reads. Raises UsageError if nothing
        can be written.
        """
        tested = systems.get(self.system)
        if not path.resolve().parent.is_dir():
            raise UsageError(f"--results {path}: there is no directory {path.parent}")
        if unnamed or not isinstance(tested, Installed):
            return Ledger(path, self.system, "")
        if problem := tested.missing():
            raise UsageError(f"system {self.system}: {problem}")
        return Ledger(path, self.system, tested.version())


def choose(requested: Sequence[Scenario | Probe], system: str) -> Choice:
    """Return the rows of a system among those asked for.

    Our own system has the rows themselves, except for those that its brokers cannot run yet. A
    system without claims of its own gets the scenarios as they stand.
    """
    if system == OWN:
        return _without_waiting(requested)
    tested = systems.get(system)
    claims = registry.of(system)
    rows: list[Scenario | Probe] = []
    departures = {}
    left_out: dict[str, list[str]] = {}
    for candidate in requested:
        row = claims.row(candidate.id) if claims else None
        if row is not None:
            rows.append(row.scenario)
            if row.departure is not None:
                departures[candidate.id] = row.departure
        elif claims is None and isinstance(candidate, Scenario):
            rows.append(candidate.of_system(system))
        else:
            why = claims.why_not(candidate, tested) if claims else "the steps are for brokers of own only"
            left_out.setdefault(why, []).append(candidate.id)
    return Choice(system=system, rows=rows, departures=departures, left_out=left_out)


def _without_waiting(requested: Sequence[Scenario | Probe]) -> Choice:
    rows: list[Scenario | Probe] = []
    left_out: dict[str, list[str]] = {}
    for candidate in requested:
        if isinstance(candidate, Scenario) and candidate.own_lacks:
            left_out.setdefault(f"brokers of own have no {candidate.own_lacks}", []).append(candidate.id)
        else:
            rows.append(candidate)
    return Choice(system=OWN, rows=rows, left_out=left_out)
