"""Recorders with a life, and the one in memory."""

from __future__ import annotations

import abc
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from checkers.schema import COLUMNS
from harness.interface import InfrastructureError, Recorder
from harness.interface.recorder import Row


class HistoryRecorder(Recorder, abc.ABC):
    """Entered when the test begins, finished when it has ended, however it ended.

    ``on_failure`` is called once if rows cannot be kept.
    """

    __slots__ = ("on_failure",)

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.on_failure: Callable[[Exception], None] | None = None

    @abc.abstractmethod
    async def __aenter__(self) -> Self: ...

    @abc.abstractmethod
    async def __aexit__(self, *_: object) -> None: ...

    @abc.abstractmethod
    async def finish(self) -> list[Path]:
        """Make the history ready for the checkers; the files of it that are on the disk now."""


class MemoryRecorder(HistoryRecorder):
    """Keeps the rows, for a simulated test: it has no disk, threads or real time of its own.

    Entering it begins with time zero, when the clock runs. ``store`` writes what a StreamRecorder
    would have written, when the test is over.
    """

    __slots__ = ()

    @property
    def rows(self) -> list[Row]:
        """Everything recorded, in order."""
        return self._rows

    async def __aenter__(self) -> Self:
        self._start = self._clock()
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def finish(self) -> list[Path]:
        """Nothing is on disk yet, see ``store``."""
        return []

    def digest(self) -> str:
        """SHA-256 of the rows: equal digests are equal histories."""
        return hashlib.sha256(msgspec.msgpack.encode(self._rows)).hexdigest()

    def dicts(self) -> list[dict[str, Any]]:
        """The rows as ``checkers.reference`` takes them."""
        return [dict(zip(COLUMNS, row, strict=True)) for row in self._rows]

    def store(self, store: Path) -> list[Path]:
        """Write the history into a store directory, as Parquet for the checkers.

        Raises InfrastructureError if there is no space; then nothing of it is left there, because
        rows that are cut off anywhere but at their end are no history.
        """
        from harness.history import parquet, recorder  # noqa: PLC0415 - Arrow, which a search does without

        batches = (
            recorder.to_batch(self._rows[start : start + recorder.BATCH_ROWS])
            for start in range(0, len(self._rows), recorder.BATCH_ROWS)
        )
        try:
            return parquet.write(store, batches, parquet.files_for(16 * len(self._rows)))
        except OSError as error:
            shutil.rmtree(store / parquet.DIRECTORY, ignore_errors=True)
            raise InfrastructureError(f"cannot write {store / parquet.DIRECTORY}: {error}") from error
