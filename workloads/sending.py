"""Single sends: a message that is sent once over a connection, at no pacer's pace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.interface import WorkloadContext
from stomp_protocol.client.connection import Connection
from workloads import stamp
from workloads.payload import digest
from workloads.producer import Stream


class Sending:
    """A send that waits for its receipt.

    Args:
        context: the context of the workload.
        connection: the connection on which it is sent.
        stream: the stream of the message.
        process: the logical process that invokes it.
        ended: called with the outcome (ok, fail or info), and with the reason if it is not ok.
    """

    __slots__ = ("_columns", "_connection", "_context", "_ended", "_process", "_stream")

    def __init__(
        self,
        context: WorkloadContext,
        connection: Connection,
        stream: Stream,
        process: int,
        ended: Callable[[str, str | None], None],
    ) -> None:
        self._context = context
        self._connection = connection
        self._stream = stream
        self._process = process
        self._ended = ended
        self._columns: dict[str, Any] = {}

    def send(self, head: bytes, message: int, *, note: bytes = b"", value: str | None = None) -> None:
        """Record the invocation and send the frame.

        ``note`` becomes part of the body, ``value`` of the rows.
        """
        stream = self._stream
        sequence, stream.sequence = stream.sequence, stream.sequence + 1
        body = stream.writer.encode(message, sequence, note)
        self._columns = {
            "queue": stream.queue, "group": stream.group, "message": message,
            "producer": stream.producer.number, "sequence": sequence, "digest": digest(body),
            "headers": stamp.sent(message), "value": value,
        }  # fmt: skip
        self._row("invoke", None)
        self._connection.request(head + stamp.line(message), self, body)

    def complete(self, type: str, error: str | None) -> None:  # noqa: A002 - ReceiptWaiter's
        """See ``stomp_protocol.client.connection.ReceiptWaiter``."""
        self._row(type, error)
        counters = self._context.counters
        counters[type] = counters.get(type, 0) + 1
        self._ended(type, error)

    def _row(self, type: str, error: str | None) -> None:  # noqa: A002 - the history's own name for it
        self._context.recorder.event(
            self._process,
            type,
            "send",
            **self._columns,
            connection=self._connection.number,
            broker=None if type == "invoke" else self._connection.broker,
            error=error,
        )
