"""The log of a search: the outcome of each run that ended, a line of JSON for each.

Why a log: a search has tens of thousands of runs, of which most are worth a few numbers. The
process that begins the runs writes the log as they end, so a search that was killed continues where
it was. An unfinished last line is a run that did not end.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from harness.explore.plans import SearchPlan, drawn
from harness.explore.runs import ExploredRun
from harness.interface import InfrastructureError, UsageError

FILE: Final = "runs.jsonl"


class Log:
    """The open log of one search, written by one process."""

    def __init__(self, store: Path, plan: SearchPlan) -> None:
        """Open the log, or begin one.

        Raises UsageError if it is not of this search, or if another process writes it.
        """
        self.path = store / FILE
        try:
            self._file = self.path.open("a+b")
        except OSError as error:
            raise InfrastructureError(f"cannot write {self.path}: {error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{store}: this search is still running; wait for its end or stop it") from None
        self._plan = plan

    def read(self) -> Iterator[ExploredRun]:
        """Yield the runs in the log; cut off an unfinished line that a killed process left.

        Raises UsageError that names the line for a line that is not a run of this search.
        """
        self._file.seek(0)
        complete_bytes = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            complete_bytes += len(line)
            yield self._record(line, number)
        self._file.truncate(complete_bytes)

    def _record(self, line: bytes, number: int) -> ExploredRun:
        mend = "remove that line, and the run is drawn again with --resume"
        try:
            record = msgspec.json.decode(line, type=ExploredRun)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{self.path}: line {number} is not a run of a search ({error}): {mend}"
            ) from None
        if number == 1 and drawn(self._plan, record.number) != (record.spec, record.schedule):
            raise UsageError(
                f"{self.path} belongs to another search than {self._plan.file()} in the same directory"
            )
        return record

    def add(self, record: ExploredRun) -> None:
        """Add a run that has ended; raise InfrastructureError if it cannot be written."""
        try:
            self._file.write(msgspec.json.encode(record) + b"\n")
            self._file.flush()
        except OSError as error:
            raise InfrastructureError(f"cannot write {self.path}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
