"""The findings that follow from a split brain, grouped under it.

A reader with four findings looks for four bugs. While two brokers are live under one node ID, their
clients see duplicates, answers of a replaced broker and different members: one bug, and the rest
follows.

The rule, which docs/explanation/verdicts.md explains: a finding follows if it is of a kind that is
to be expected from two lives (``Anomaly.follows_two_lives``), every operation that its witness says
succeeded was of the two brokers, and the last of these operations lies between the two moments in
which both were certainly live. Earlier ones may lie before: a message is delivered a second time
after a first one. A witness that names no broker, or another one, follows from nothing.

Why not in the verdict: that several findings have one root changes neither what was found nor how
often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from checkers.anomaly import named
from checkers.roles import Overlap, overlaps, reigns
from checkers.schema import MONITOR
from checkers.verdict import Finding
from harness.report.narrative.excerpt import Row, example_of
from harness.report.summary import by_cause

ROOT: Final = "split-brain"


@dataclass(frozen=True, slots=True)
class Consequence:
    """A finding that follows from a split brain.

    ``brokers`` are the two that were live. ``is_whole`` says that all its instances follow; else
    only the one that the witness shows is known to.
    """

    finding: Finding
    brokers: tuple[str, str]
    is_whole: bool

    @property
    def words(self) -> str:
        """The reason in words, for a reader who has not read the rule."""
        happened = f"at {' and '.join(self.brokers)} while both were live"
        if self.finding.count == 1:
            return f"Follows from the split brain: it happened {happened}."
        if self.is_whole:
            return f"Follows from the split brain: all {self.finding.count} happened {happened}."
        return f"The first, which is shown, follows from the split brain: it happened {happened}."


@dataclass(frozen=True, slots=True)
class Group:
    """A finding, and those that follow from it."""

    root: Finding
    consequences: tuple[Consequence, ...] = ()


def grouped(findings: Iterable[Finding], control: Sequence[Row]) -> list[Group]:
    """Return the findings in the order in which they are read, with what follows from each.

    ``control`` are the rows of the monitor and the harness (``ExcerptReader.control``).
    """
    ordered = by_cause(findings)
    lives = _two_lives(control) if any(finding.name == ROOT for finding in ordered) else []
    following = {
        finding.name: consequence
        for finding in ordered
        if (consequence := _consequence(finding, lives, control)) is not None
    }
    return [
        Group(finding, tuple(following.values()) if finding.name == ROOT else ())
        for finding in ordered
        if finding.name not in following
    ]


def _two_lives(control: Sequence[Row]) -> list[Overlap]:
    """Return the spans in which two brokers were certainly live under one node ID."""
    unknown = {"node_id": None, "value": None}
    roles = [
        {**unknown, "time_low": row["time"], "time_high": row["time"], **row}
        for row in control
        if row["process"] == MONITOR and row["f"] == "role"
    ]
    return overlaps(reigns(roles, max((row["time"] for row in control), default=0)))


def _consequence(finding: Finding, lives: Sequence[Overlap], control: Sequence[Row]) -> Consequence | None:
    if not named(finding.name).follows_two_lives or finding.severity == "info":
        return None
    done = [row for row in finding.witness.rows if row["type"] == "ok"]
    if not done:
        return None
    last = max(done, key=lambda row: row["index"])
    for two in lives:
        brokers = (two.earlier.broker, two.later.broker)
        named_brokers = {row.get("broker") for row in done}
        if two.begin <= _began(last) and _ended(last) <= two.end and named_brokers <= {*brokers}:
            return Consequence(finding, brokers, is_whole=_is_whole(finding, last, two, control))
    return None


def _is_whole(finding: Finding, last: Row, two: Overlap, control: Sequence[Row]) -> bool:
    """Return whether no instance can be elsewhere or have ended after the split brain.

    The cluster has only the two brokers, both were live to the end, and the witness shows the
    earliest instance by the row that completes it.
    """
    brokers = {row["broker"] for row in control if row["f"] == "role"}
    return (
        brokers == {two.earlier.broker, two.later.broker}
        and two.end >= max(row["time"] for row in control)
        and example_of(finding).get("index") == last["index"]
    )


def _began(row: Row) -> int:
    return int(row.get("time_low", row["time"]))


def _ended(row: Row) -> int:
    return int(row.get("time_high", row["time"]))
