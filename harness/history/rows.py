"""Recorders that are opened and finished, and the one that keeps its rows in memory."""

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
    """A recorder that is entered when the test begins and finished whenever and however it ends.

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
        """Make the history ready for the checkers; return its files that are on the disk now."""


class MemoryRecorder(HistoryRecorder):
    """A recorder that keeps its rows in memory, for a test in the simulation.

    A simulated test has no disk, threads or real time of its own. Entering the recorder sets time
    zero, when the clock runs. ``store`` writes what a StreamRecorder would have written, when the
    test is over.
    """

    __slots__ = ()

    @property
    def rows(self) -> list[Row]:
        """All recorded rows, in order."""
        return self._rows

    async def __aenter__(self) -> Self:
        self._start = self._clock()
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def finish(self) -> list[Path]:
        """Return no files: nothing is on disk yet, see ``store``."""
        return []

    def digest(self) -> str:
        """Return the SHA-256 of the rows: equal digests are equal histories."""
        return hashlib.sha256(msgspec.msgpack.encode(self._rows)).hexdigest()

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as ``checkers.reference`` takes them."""
        return [dict(zip(COLUMNS, row, strict=True)) for row in self._rows]

    def store(self, store: Path) -> list[Path]:
        """Write the history into a store directory, as Parquet for the checkers.

        Raises InfrastructureError if there is no space. Then no part of the history is left there:
        rows with a gap other than at their end are no history.
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
