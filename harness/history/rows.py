"""Events become rows: the hot path of recording, alike for a history on disk and one in memory.

Why tuples in a list: a row is written once and read once, thousands of them a second; appending a
tuple is the least that Python can do, and columns are made of many rows at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from checkers.schema import COLUMNS
from harness.interface import InfrastructureError

Row = tuple[Any, ...]
"""One row of a history, in the order of ``checkers.schema.SCHEMA``."""


class RowRecorder:
    """See ``harness.interface.Recorder``.

    ``clock`` gives monotonic nanoseconds; its value now is the test's time zero.
    """

    __slots__ = ("_clock", "_next_connection", "_next_index", "_next_process", "_rows", "_start")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._start = clock()
        self._rows: list[Row] = []
        self._next_index = 0
        self._next_process = 0
        self._next_connection = 1

    def event(
        self,
        process: int,
        type: str,  # noqa: A002 - the history's own name for it
        f: str,
        *,
        queue: str | None = None,
        group: str | None = None,
        message: int | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        transaction: int | None = None,
        session: int | None = None,
        connection: int | None = None,
        subscription: str | None = None,
        broker: str | None = None,
        redelivered: bool | None = None,
        delivery_count: int | None = None,
        digest: int | None = None,
        node_id: str | None = None,
        role: str | None = None,
        time_low: int | None = None,
        time_high: int | None = None,
        error: str | None = None,
        value: str | None = None,
    ) -> int:
        """Append one row and return its index; never blocks and never raises for a full disk."""
        index = self._next_index
        self._next_index = index + 1
        self._rows.append(
            (
                index,
                self._clock() - self._start,
                process,
                type,
                f,
                queue,
                group,
                message,
                producer,
                sequence,
                transaction,
                session,
                connection,
                subscription,
                broker,
                redelivered,
                delivery_count,
                digest,
                node_id,
                role,
                time_low,
                time_high,
                error,
                value,
            )
        )
        return index

    def now_ns(self) -> int:
        """Nanoseconds since the start of the test, on the clock that stamps the rows."""
        return self._clock() - self._start

    @property
    def zero_ns(self) -> int:
        """What the clock showed at the test's time zero."""
        return self._start

    def next_process(self) -> int:
        """A client process number never used before in this history."""
        process = self._next_process
        self._next_process = process + 1
        return process

    def next_connection(self) -> int:
        """A connection number never used before in this history."""
        connection = self._next_connection
        self._next_connection = connection + 1
        return connection

    @property
    def recorded(self) -> int:
        """Rows recorded so far, on disk or not."""
        return self._next_index


class MemoryRecorder(RowRecorder):
    """Keeps the rows, for a test that has no disk, threads or real time of its own.

    In the simulation.

    Begin with ``restart`` when the clock runs. ``store`` writes what a StreamRecorder would have
    written, when the test is over.
    """

    __slots__ = ("on_failure",)

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.on_failure: Callable[[InfrastructureError], None] | None = None

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

        Raises InfrastructureError if there is no space.
        """
        from harness.history import parquet, recorder  # noqa: PLC0415 - Arrow, which a search does without

        batches = (
            recorder.to_batch(self._rows[start : start + recorder.BATCH_ROWS])
            for start in range(0, len(self._rows), recorder.BATCH_ROWS)
        )
        try:
            return parquet.write(store, batches, parquet.files_for(16 * len(self._rows)))
        except OSError as error:
            raise InfrastructureError(f"cannot write {store / parquet.DIRECTORY}: {error}") from error
