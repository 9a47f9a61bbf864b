"""The outcome of a run or of a check, and what a failing test says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from checkers.verdict import NOT_JUDGED, Finding, Verdict
from checkers.visible import visible
from harness.history import store as stores
from harness.history.known import Review, exit_status
from harness.report.summary import by_cause, headline


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A verdict, where its evidence is, and the command that repeats it.

    ``store`` is the directory of the run; None if the machine could not even begin. ``story`` tells
    the first grave finding. ``again`` is the command that runs it, or judges it, once more.
    ``known`` compares the findings with the accepted ones, if a file of them was given.
    """

    name: str
    verdict: Verdict
    store: Path | None = None
    story: str = ""
    again: str = ""
    known: Review | None = None

    @property
    def valid(self) -> bool | None:
        """True, False, or None for unknown."""
        return self.verdict.valid

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the verdict."""
        return self.verdict.findings

    @property
    def status(self) -> int:
        """The exit status of the command line: 0 also if all findings are known, 2 for unknown."""
        return exit_status(self.verdict, self.known)

    @property
    def report(self) -> Path | None:
        """The HTML report; None if there is none."""
        path = None if self.store is None else self.store / stores.REPORT
        return path if path is not None and path.is_file() else None

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def outcome_of(document: Mapping[str, Any], *, is_recorded: bool = False) -> Outcome:
    """Return the outcome that a JSON document of the program describes.

    A history that was recorded before is judged again, not run again.
    """
    store = Path(document["store"]).absolute()
    return Outcome(
        name=document["spec"]["name"],
        verdict=msgspec.convert(document["verdict"], Verdict),
        store=store,
        story=document["story"],
        again=document["judge"] if is_recorded else document["again"],
        known=msgspec.convert(document["known"], Review | None),
    )


def _lines(outcome: Outcome) -> Iterator[str]:
    """Yield the lines of a failure, for a reader who sees nothing else of the run."""
    verdict = outcome.verdict
    yield visible(headline(outcome.name, verdict, outcome.known))
    sentences = {f"{finding.name}: {finding.sentence}" for finding in verdict.findings}
    for finding in by_cause(verdict.findings):
        yield visible(f"  {finding.name} x {finding.count} ({finding.severity}): {finding.sentence}")
    for reason in verdict.reasons[1:] if verdict.valid is None else verdict.reasons:
        if reason not in sentences and (verdict.valid is None or NOT_JUDGED not in reason):
            yield visible(f"  {reason}")
    if outcome.story:
        yield visible(f"Story   {outcome.story}")
    if outcome.report is not None:
        yield visible(f"Report  {outcome.report}")
    if outcome.again:
        yield visible(f"Again   {outcome.again}")
