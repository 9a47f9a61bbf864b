"""Who takes the events of a test."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """Takes the events of a test in the order they happen.

    ``checkers.schema`` has the meaning of each column.
    """

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
        """Append one row and return its index.

        Never blocks, never raises for a full disk (that ends the run elsewhere).
        """
        ...

    def now_ns(self) -> int:
        """Nanoseconds since the start of the test on the clock that stamps the rows."""
        ...

    def next_process(self) -> int:
        """A process number never used before.

        One whose operation ended ``info`` must not invoke again under its old number.
        """
        ...

    def next_connection(self) -> int:
        """A number for a client's connection that has come about, never used before."""
        ...
