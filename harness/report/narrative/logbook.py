"""The log lines of brokers, placed next to the steps of a story by time.

Why by time: nothing in a log says which row of the history it belongs to. Lines carry the wall
clock of their machine, and rows count from the begin of the test. So the wall clock of that begin
must be known (``run.json``: ``zero``). Lines without a time belong to the last line that had one.
If a fault had set a broker's clock forward or back, its lines are corrected by the same amount. If
a clock ran at another rate, its stamps cannot be trusted. The story says so in both cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from environments.simulation.clock import EPOCH_S
from harness.history import store
from harness.report.narrative.cluster_state import observed

if TYPE_CHECKING:
    from harness.report.narrative.story import Step, Story

LINES_MAX: Final = 6
"""The maximum number of log lines of one step; the nearest are taken."""
CHARACTERS_MAX: Final = 400
NEAR_NS: Final = 1_000_000_000
BYTES_MAX: Final = 8_000_000
"""The bytes of a log file that are read, from its begin; the story says if it is longer."""

_ORDER_NS: Final = 5_000_000
"""The time by which lines of different threads may be out of order (ns).

The rounding to milliseconds is added to that.
"""
_SKEWED: Final = re.compile(r"^skewed (-?\d+)")
_STAMP: Final = re.compile(
    r"\W{0,2}(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|[+-]\d\d:?\d\d)?"
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a broker's log.

    ``at`` is in nanoseconds of the history's clock: the line's own time, or that of the last line
    before it that has one.
    """

    at: int
    broker: str
    text: str


@dataclass(frozen=True, slots=True)
class Skew:
    """A span from ``begin`` to ``end`` in which a clock was ahead ``by`` ns; negative: behind."""

    fault: str
    begin: int
    end: int
    by: int


@dataclass(frozen=True, slots=True)
class Book:
    """The log lines of one broker, in order of the log.

    ``trouble`` is why there are none, or not all.
    """

    lines: tuple[LogLine, ...] = ()
    trouble: str = ""


def zero_of(record: store.RunRecord) -> tuple[float | None, str]:
    """Return the wall clock of the history's time 0 (seconds since the epoch), and a doubt.

    The doubt is a sentence for the story, empty if the clock is exact. The clock is None if it is
    not known.
    """
    if record.zero:
        return datetime.fromisoformat(record.zero).timestamp(), ""
    if record.environment == "simulation":
        return float(EPOCH_S), ""
    if record.started:
        return (
            datetime.fromisoformat(record.started).timestamp(),
            (
                "The run recorded only roughly when its clock began: log lines may stand some hundredths of "
                "a second too early or late."
            ),
        )
    return None, "The run did not record when its clock began: log lines cannot be placed, see logs/."


def read(directory: Path, broker: str, zero_s: float, skews: Sequence[Skew] = ()) -> Book:
    """Return everything that a broker logged, from ``logs/<broker>/``.

    ``skews`` are those of the broker's clock.
    """
    files = sorted(path for path in (directory / broker).rglob("*") if path.is_file())
    lines: list[LogLine] = []
    trouble = ""
    unplaced = 0
    for file in files:
        with file.open("rb") as stream:
            data = stream.read(BYTES_MAX)
            if stream.read(1):
                trouble = f"Of the log of {broker} only the first {BYTES_MAX // 1_000_000} MB were read."
        at: int | None = None
        for text in data.decode(errors="replace").splitlines():
            stamp = _time_ns(text)
            if stamp is not None:
                at = _true_time(stamp - round(zero_s * 1e9), at, skews)
            if at is None:
                unplaced += 1
            else:
                lines.append(LogLine(at, broker, text[:CHARACTERS_MAX]))
    if not files:
        trouble = f"No log of {broker} was kept."
    elif unplaced and not lines:
        trouble = f"The lines of {broker}'s log carry no time that could be read: see logs/{broker}/."
    return Book(tuple(lines), trouble)


class LogReader:
    """A reader of one run's logs, below ``directory``.

    Lines that several stories need are read once.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._books: dict[tuple[str, float, tuple[Skew, ...]], Book] = {}

    def book_of(self, broker: str, zero_s: float, skews: Sequence[Skew]) -> Book:
        """Return the log lines of a broker, as ``read`` does."""
        key = (broker, zero_s, tuple(skews))
        if key not in self._books:
            self._books[key] = read(self._directory, broker, zero_s, skews)
        return self._books[key]


def _true_time(stamp: int, before: int | None, skews: Iterable[Skew]) -> int:
    """Return when a line was written.

    Lines of a log are in order. So of the times that the stamp can mean, this is the earliest one
    that is not before the last line.
    """
    possible = [stamp] + [stamp - skew.by for skew in skews if skew.begin <= stamp - skew.by <= skew.end]
    later = [at for at in possible if before is None or at >= before - _ORDER_NS]
    return min(later, default=stamp)


def skews_of(story: Story, broker: str) -> list[Skew]:
    """Return by how much faults had set a broker's clock, as a probe saw it."""
    skews = []
    for fault in story.standing.breaks:
        for row in fault.rows:
            skewed = _SKEWED.search(str(observed(row).get(f"{broker}/clock", "")))
            if skewed is not None:
                end = fault.end if fault.end is not None else 1 << 62
                skews.append(Skew(fault.words, fault.begin, end, int(skewed[1]) * 1_000_000))
                break
    return skews


def _time_ns(text: str) -> int | None:
    """Return the time that a line begins with, in ns since the epoch; None if there is none.

    A stamp without a zone is UTC: containers and our own brokers write such stamps.
    """
    stamp = _STAMP.match(text)
    if stamp is None:
        return None
    day, clock, fraction, zone = stamp.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in (None, 'Z') else zone}")
    except ValueError:
        return None
    seconds = int(moment.astimezone(UTC).timestamp())
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def placed(story: Story, logs: LogReader, record: store.RunRecord) -> Story:
    """Return the story with its brokers' log lines, each at the step that it is nearest to.

    A step has at most ``LINES_MAX`` lines.
    """
    zero_s, doubt = zero_of(record)
    notes = [doubt] if doubt else []
    if zero_s is None or not story.steps:
        return replace(story, notes=(*story.notes, *notes))
    skews = {broker: skews_of(story, broker) for broker in story.brokers}
    books = {broker: logs.book_of(broker, zero_s, skews[broker]) for broker in story.brokers}
    notes += [book.trouble for book in books.values() if book.trouble]
    for broker in story.brokers:
        notes += [
            f"{skew.fault} set the clock of {broker} by {skew.by / 1e6:g} ms: the lines of its log from "
            "that time are put back by as much."
            for skew in skews[broker]
        ]
        skewing = {skew.fault for skew in skews[broker]}
        notes += [
            f"{fault.words} changed the clock of {broker}: the times in its log are not those of the history."
            for fault in story.faults
            if fault.words.startswith("clock") and broker in fault.ends and fault.words not in skewing
        ]
    return replace(story, steps=_shared_out(story.steps, books), notes=(*story.notes, *notes))


def _shared_out(steps: Sequence[Step], books: Mapping[str, Book]) -> tuple[Step, ...]:
    near: dict[int, list[LogLine]] = {n: [] for n in range(len(steps))}
    low, high = steps[0].at - NEAR_NS, steps[-1].rows[-1]["time"] + NEAR_NS
    for book in books.values():
        for line in book.lines:
            if low <= line.at <= high:
                n = min(range(len(steps)), key=lambda n: _distance(steps[n], line))
                if _distance(steps[n], line)[0] <= NEAR_NS:
                    near[n].append(line)
    return tuple(_with(step, near[n]) for n, step in enumerate(steps))


def _distance(step: Step, line: LogLine) -> tuple[int, bool]:
    """Return the distance in time, then whether the line is from another broker than the step's."""
    begin, end = step.at, step.rows[-1]["time"]
    distance_ns = 0 if begin <= line.at <= end else min(abs(begin - line.at), abs(end - line.at))
    return distance_ns, line.broker not in (step.source, step.target)


def _with(step: Step, lines: Iterable[LogLine]) -> Step:
    nearest = sorted(lines, key=lambda line: _distance(step, line))
    chosen = sorted(nearest[:LINES_MAX], key=lambda line: line.at)
    return replace(step, lines=tuple(chosen), more_lines=len(nearest) - len(chosen))
