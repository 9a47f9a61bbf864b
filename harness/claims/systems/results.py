"""The results of a system's rows, run by run: a file that the command keeps.

Why kept: a run with the brokers of others takes minutes and needs their distribution. So not
everybody who changes a word can make a page of all rows again. Every run names what it was of: its
row as it was run and judged (``fingerprint``), the release, the day. A run of a row that has been
changed since counts for nothing.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from checkers.anomaly import rank
from harness.claims.scenarios.expectations import Expectation
from harness.claims.scenarios.scenario import Roles, Scenario
from harness.interface import TestSpec, UsageError

AS_EXPECTED: Final = "as-expected"
OTHERWISE: Final = "otherwise"
UNKNOWN: Final = "unknown"


class RowRun(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A run of a row.

    ``found`` are the findings that made it invalid, ``words`` why it was otherwise or unknown.
    """

    row: str
    fingerprint: str
    version: str
    environment: str
    date: str
    seed: int
    came: Literal["as-expected", "otherwise", "unknown"]
    found: tuple[str, ...] = ()
    words: str = ""


class Results(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """All recorded runs of one system's rows, in their order."""

    system: str
    runs: tuple[RowRun, ...] = ()

    def of(self, scenario: Scenario, version: str = "") -> tuple[RowRun, ...]:
        """Return the runs of a row as it is, with one release: by default its latest."""
        mark = fingerprint(scenario)
        runs = [run for run in self.runs if run.row == scenario.id and run.fingerprint == mark]
        version = version or (runs[-1].version if runs else "")
        return tuple(run for run in runs if run.version == version)

    def add(self, run: RowRun) -> Results:
        """Return the results with one more run, without runs of the row before it was changed."""
        others_kept = [old for old in self.runs if old.row != run.row or old.fingerprint == run.fingerprint]
        return msgspec.structs.replace(self, runs=(*others_kept, run))

    def without(self, scenario: Scenario) -> Results:
        """Return the results without the runs of a row."""
        return msgspec.structs.replace(self, runs=tuple(run for run in self.runs if run.row != scenario.id))


_LATER = (
    "torn-transaction",
    "not-linearizable",
    "expired-delivery",
    "early-delivery",
    "died-early",
    "wrong-total",
)


def fingerprint(scenario: Scenario) -> str:
    """Return what identifies a row's load, faults and expectation, in twelve hexadecimal digits.

    The words of the row do not count: a row that is reworded keeps its recorded runs.

    Fields of the spec that have their default are left out, so that a row outlives new ones. So are
    anomalies that were not looked for when the first rows were recorded. A row that allows all
    consequences of two lives allows these, too, and a run that was as expected still is.
    """
    allowed = tuple(name for name in scenario.allowed if name not in _LATER)
    parts: tuple[Roles | Expectation, ...] = (scenario.roles, *scenario.besides, *scenario.guards)
    expected = (scenario.required, allowed, [_data_of(part) for part in parts])
    identity = (load_of(scenario.spec), scenario.schedule, expected)
    encoded = msgspec.json.encode(identity, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:12]


def _data_of(expectation: Roles | Expectation) -> tuple[str, dict[str, Any]]:
    """Return the kind of an expectation and its fields, without those that have their default."""
    assert isinstance(expectation, msgspec.Struct), "expectations are data"
    fields = {field.name: field.default for field in msgspec.structs.fields(expectation)}
    values = {name: getattr(expectation, name) for name in fields}
    return type(expectation).__name__, {
        name: value for name, value in values.items() if value != fields[name]
    }


def load_of(spec: TestSpec) -> TestSpec:
    """Return the spec without what another run may have otherwise: its environment and its seed."""
    return msgspec.structs.replace(spec, environment="", hosts=(), seed=0)


def findings_in_words(runs: Sequence[RowRun]) -> str:
    """Return what runs found, the most frequent first: "lost 10, duplicate 9"."""
    counts = collections.Counter(
        name for run in runs if run.came != UNKNOWN for name in run.found or ("nothing",)
    )
    ordered = sorted(counts.items(), key=lambda one: (-one[1], rank(one[0])))
    return ", ".join(name if len(runs) == 1 else f"{name} {count}" for name, count in ordered)


def load(path: Path, system: str = "") -> Results:
    """Return the results in a file; none if there is no file yet. Raises UsageError."""
    if not path.exists():
        return Results(system=system)
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"--results {path}: {error}") from None
    if system and results.system != system:
        raise UsageError(f"--results {path} has runs of {results.system}, not of {system}")
    return results


def save(path: Path, results: Results) -> None:
    """Write the file, a run a line, whole or not at all."""
    lines = ",\n".join(f"  {msgspec.json.encode(run).decode()}" for run in results.runs)
    text = f'{{"system": "{results.system}", "runs": [\n{lines}\n]}}\n'
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
