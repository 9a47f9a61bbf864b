"""The summary of stored runs in Markdown, which CI servers show beside a job.

Why apart from the summary of the terminal: it is read by people who did not start the run, on a
page that already has headings, tables and a link to the artifact. Texts come from brokers, so every
character with a meaning in Markdown is escaped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from checkers.verdict import NOT_JUDGED, Finding, Verdict
from checkers.visible import visible
from harness.history import judge as judging
from harness.history import known, parquet, store
from harness.interface import TestSpec
from harness.report import consequences
from harness.report.narrative import paragraphs
from harness.report.narrative.excerpt import ExcerptReader
from harness.report.summary import STORY_CHARACTERS, headline, stored_repeat_command

TOLD: Final = 5
"""The maximum number of runs that are told in detail; the others are only in the table."""
LISTED: Final = 200
"""The maximum number of rows of the table: CI servers cut pages of a megabyte."""

_MEANING: Final = re.compile(r"([\\`*_\[\]<>#!|~$&@])")
_GRAVITY: Final = (judging.INVALID, judging.INTERNAL, judging.UNKNOWN, judging.VALID)


@dataclass(frozen=True, slots=True)
class _Run:
    """A stored run, as far as it got: without a verdict if it was killed or failed."""

    directory: Path
    spec: TestSpec
    verdict: Verdict | None
    review: known.Review | None

    @property
    def status(self) -> int:
        """The exit status that the run had, or has now: a run without a verdict failed."""
        return judging.INTERNAL if self.verdict is None else known.exit_status(self.verdict, self.review)

    @property
    def line(self) -> str:
        """The verdict in one line, as the terminal has it."""
        if self.verdict is not None:
            return headline(self.spec.name, self.verdict, self.review)
        record = store.load_run(self.directory)
        return f"NO VERDICT  {self.spec.name}: {judging.trouble_of(record) or 'the run did not end'}"


def text(directories: Sequence[Path]) -> str:
    """Return the summary of runs: all in a table, and the gravest in detail.

    Raises UsageError for a run whose spec cannot be read.
    """
    runs = sorted(map(_read, directories), key=lambda run: _GRAVITY.index(run.status))
    return "\n".join([*(_table(runs) if len(runs) > 1 else ()), *_details(runs)])


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return _MEANING.sub(r"\\\1", visible(text))


def _read(directory: Path) -> _Run:
    spec = store.load_spec(directory)
    try:
        verdict = Verdict.from_json((directory / store.FINDINGS).read_bytes())
        return _Run(directory, spec, verdict, known.stored_review(directory))
    except (OSError, msgspec.MsgspecError):
        return _Run(directory, spec, None, None)


def _table(runs: Sequence[_Run]) -> Iterator[str]:
    words = Counter("no verdict" if run.verdict is None else judging.WORDS[run.status] for run in runs)
    yield f"## {len(runs)} runs: {', '.join(f'{count} {word}' for word, count in words.items())}"
    yield ""
    yield "| verdict | run | directory |"
    yield "|---|---|---|"
    for run in runs[:LISTED]:
        verdict, _, rest = run.line.partition("  ")
        yield f"| {verdict} | {escaped(rest)} | {escaped(str(run.directory))} |"
    if len(runs) > LISTED:
        yield f"| | and {len(runs) - LISTED} more | |"
    yield ""


def _details(runs: Sequence[_Run]) -> Iterator[str]:
    detailed = [run for run in runs if run.status != judging.VALID] if len(runs) > 1 else runs
    for run in detailed[:TOLD]:
        yield from _detail(run)
    if len(detailed) > TOLD:
        yield f"{len(detailed) - TOLD} more runs are not told here."
        yield ""


def _detail(run: _Run) -> Iterator[str]:
    yield f"## {escaped(run.line)}"
    yield ""
    if run.verdict is not None:
        yield from _findings(run, run.verdict)
    report = run.directory / store.REPORT
    if report.is_file():
        yield f"The report is `{_code_span(str(report))}`."
        yield ""
    command = stored_repeat_command(run.directory)
    if command:
        yield "Run it again:"
        yield ""
        yield from ("~~~console", visible(command), "~~~", "")


def _findings(run: _Run, verdict: Verdict) -> Iterator[str]:
    control = ExcerptReader(run.directory / parquet.DIRECTORY).control
    groups = consequences.grouped(verdict.findings, control)
    if groups:
        yield "| finding | count | first |"
        yield "|---|---|---|"
        for group in groups:
            yield _row(run, group.root, group.root.sentence)
            for consequence in group.consequences:
                yield _row(run, consequence.finding, consequence.words)
        yield ""
    story = paragraphs.of_gravest(run.directory, verdict, STORY_CHARACTERS)
    if story:
        yield escaped(story)
        yield ""
    sentences = {f"{finding.name}: {finding.sentence}" for finding in verdict.findings}
    reasons = [reason for reason in verdict.reasons if reason not in sentences and NOT_JUDGED not in reason]
    if reasons:
        yield from (f"- {escaped(reason)}" for reason in reasons)
        yield ""


def _row(run: _Run, finding: Finding, sentence: str) -> str:
    """Return a finding's row of the table; what makes the run invalid is bold."""
    reviewed = None if run.review is None else run.review.review_of(finding.name)
    name = f"**{finding.name}**" if finding.severity == "grave" else f"{finding.name} ({finding.severity})"
    more = "" if reviewed is None else f" ({reviewed})"
    return f"| {name} | {finding.count} | {escaped(sentence + more)} |"


def _code_span(text: str) -> str:
    return visible(text).replace("`", "'")
