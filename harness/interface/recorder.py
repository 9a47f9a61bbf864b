"""The recorder of a test's events: the hot path.

Why tuples in a list: a row is written once and read once, thousands of them a second. Appending a
tuple is the least that Python can do, and columns are made of many rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = tuple[Any, ...]
"""A row of a history, in the order of ``checkers.schema.COLUMNS``."""


class Recorder:
    """A recorder of a test's events as rows, in the order in which they happen.

    ``checkers.schema`` has the meaning of each column. ``clock`` gives monotonic nanoseconds; its
    value at the recorder's creation is the test's time zero. ``on_control`` is called with each row
    that is not of a client.
    """

    __slots__ = (
        "_clock",
        "_next_connection",
        "_next_index",
        "_next_process",
        "_rows",
        "_start",
        "on_control",
    )

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._start = clock()
        self._rows: list[Row] = []
        self._next_index = 0
        self._next_process = 0
        self._next_connection = 1
        self.on_control: Callable[[Row], None] | None = None

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
        headers: int | None = None,
        node_id: str | None = None,
        role: str | None = None,
        time_low: int | None = None,
        time_high: int | None = None,
        error: str | None = None,
        value: str | None = None,
    ) -> int:
        """Append one row and return its index.

        Never blocks, and never raises for a full disk (that ends the run elsewhere).
        """
        index = self._next_index
        self._next_index = index + 1
        row = (
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
            headers,
            node_id,
            role,
            time_low,
            time_high,
            error,
            value,
        )
        self._rows.append(row)
        if process < 0 and self.on_control is not None:
            self.on_control(row)
        return index

    def now_ns(self) -> int:
        """Return the nanoseconds since the start of the test, on the clock that stamps the rows."""
        return self._clock() - self._start

    @property
    def zero_ns(self) -> int:
        """The value of the clock at the test's time zero."""
        return self._start

    def next_process(self) -> int:
        """Return a process number that was never used before.

        A client whose operation ended ``info`` must not invoke again under its old number.
        """
        process = self._next_process
        self._next_process = process + 1
        return process

    def next_connection(self) -> int:
        """Return a number, never used before, for a client's connection that was established."""
        connection = self._next_connection
        self._next_connection = connection + 1
        return connection

    @property
    def recorded(self) -> int:
        """The number of rows recorded so far, on disk or not."""
        return self._next_index
