"""The import of what Jepsen recorded of a queue or of a log.

Two kinds of tests write such histories: those of queues (``queue_operations``), and those of logs
such as Kafka (``log_operations``). A process of ``:nemesis`` is a fault, of which nothing is
claimed but that something was done.

The order of a history is that of its file: clients write ``:time`` themselves and sometimes an
older one, or none. So each operation has its own time or, if that is not after the operation
before, one nanosecond more than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from checkers.intake import Event, IntakeError
from harness.history.importers.edn import Keyword, shown
from harness.history.importers.log_operations import LOG_OPERATIONS, OF_LOGS, LogOperations
from harness.history.importers.operation import Operation
from harness.history.importers.queue_operations import QUEUE_OPERATIONS, QueueOperations

_SILENT: Final = ("crash", "debug-topic-partitions")
"""The operations of logs that say nothing about messages."""


class Jepsen:
    """The operations of one history, in order."""

    def __init__(self) -> None:
        self._of: QueueOperations | LogOperations | None = None
        self._time: int | None = None

    @property
    def not_judged(self) -> dict[str, str]:
        """The rules of which the history says too little, each with the reason."""
        if isinstance(self._of, LogOperations):
            return dict(OF_LOGS)
        return {} if self._of is None else self._of.not_judged

    @property
    def drained(self) -> bool:
        """True if everything that had been put in was taken out."""
        return isinstance(self._of, QueueOperations) and self._of.drained

    def events(self, form: Any) -> Iterator[Event]:
        """Yield the events of one operation. Raises IntakeError."""
        if not isinstance(form, dict):
            raise IntakeError(
                f"{shown(form):.40} is no operation: it must be a map with :type, :f and :process"
            )
        type_, f = (_name(form, key) for key in ("type", "f"))
        process = form.get(Keyword("process"))
        if process is None:
            raise IntakeError("the operation has no :process")
        time = self._time = self._moment(form.get(Keyword("time")))
        if isinstance(process, Keyword):
            yield {"time": time, "type": type_, "process": "nemesis", "f": f}
            return
        if isinstance(process, bool) or not isinstance(process, int) or process < 0:
            raise IntakeError(f":process is {shown(process):.40}: it must be a number from 0, or :nemesis")
        if f not in _SILENT:
            yield from self._operations(f).events(Operation(time, process, type_, f, form))

    def end(self) -> None:
        """Note that there are no more operations."""
        if isinstance(self._of, QueueOperations):
            self._of.end()

    def _moment(self, recorded: Any) -> int:
        if recorded is not None and (isinstance(recorded, bool) or not isinstance(recorded, int)):
            raise IntakeError(f":time is {shown(recorded):.40}: it must be a whole number of nanoseconds")
        soonest = recorded or 0 if self._time is None else self._time + 1
        return soonest if recorded is None else max(recorded, soonest)

    def _operations(self, f: str) -> QueueOperations | LogOperations:
        logs = f in LOG_OPERATIONS
        if not logs and f not in QUEUE_OPERATIONS:
            accepted = ", ".join(f":{name}" for name in (*QUEUE_OPERATIONS, *LOG_OPERATIONS))
            raise IntakeError(f":f is :{f}, but an operation of a queue or log is one of {accepted}")
        if self._of is None:
            self._of = LogOperations() if logs else QueueOperations()
        if isinstance(self._of, LogOperations) != logs:
            raise IntakeError(
                f":{f} is mixed with operations of the other kind: a history is of a queue or of a log"
            )
        return self._of


def _name(form: dict[Any, Any], key: str) -> str:
    value = form.get(Keyword(key))
    if not isinstance(value, str):
        raise IntakeError(
            f"the operation has no :{key}" if value is None else f":{key} is {shown(value):.40}: no keyword"
        )
    return str(value)
