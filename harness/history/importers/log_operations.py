"""The import of what Jepsen recorded of a log such as Kafka.

Its operations are ``:send`` and ``:poll``, alone or in a ``:txn``. A key is a group. A poll is
deliveries that are never acknowledged, to a session that ends when the client changes what it
reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkers.intake import Event, IntakeError
from harness.history.importers.edn import Keyword, shown
from harness.history.importers.operation import Operation, elements, named

LOG_OPERATIONS: Final = ("send", "poll", "txn", "subscribe", "assign")

OF_LOGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("double-delivery", "group-split", "redelivery"), "consumers of a log read it whole, each by itself"
    ),
    **dict.fromkeys(
        ("reordered", "reordered-realtime", "not-linearizable"),
        "polls of several consumers are answered in no order among each other",
    ),
}
"""The rules that a log does not promise to keep, each with the reason."""

_STEPS: Final = "a :send, :poll or :txn"


class LogOperations:
    """The operations of one history, in order."""

    def __init__(self) -> None:
        self._requests: dict[int, Operation] = {}
        self._sessions: dict[tuple[int, str], int] = {}
        self._session = 0

    def events(self, op: Operation) -> Iterator[Event]:
        """Yield the events of one operation. Raises IntakeError."""
        request = self._requests.get(op.process)
        if op.type == "invoke":
            if request is not None:
                raise IntakeError(
                    f"process {op.process} invokes :{op.f} before its :{request.f} has completed"
                )
            self._requests[op.process] = op
        elif request is not None:
            if request.f != op.f:
                raise IntakeError(f"process {op.process} invoked :{request.f}, but this completes :{op.f}")
            del self._requests[op.process]
        if op.f in ("subscribe", "assign"):
            self._chosen(op)
            return
        yield from self._sends(op, op if request is None else request)
        if op.type != "invoke":
            yield from self._polls(op)

    def _chosen(self, op: Operation) -> None:
        if op.type in ("ok", "info"):
            keys = {shown(key) for key in elements(op.value, f"a :{op.f}")}
            from_beginning = bool(op.form.get(Keyword("seek-to-beginning?")))
            self._forget(op.process, lambda key: from_beginning or key not in keys)

    def _sends(self, op: Operation, request: Operation) -> Iterator[Event]:
        for step in _steps(request):
            if step[0] != "send":
                continue
            if len(step) < 3:
                raise IntakeError(f"{shown(step):.60} is no send: it must be [:send key value]")
            payload = step[2]
            sent = named(
                payload[1] if isinstance(payload, tuple) and len(payload) == 2 else payload, "a :send"
            )
            key = shown(step[1])
            yield {**op.head, "f": "send", "queue": "log", "group": key, "message": f"{key}/{sent}"}

    def _polls(self, op: Operation) -> Iterator[Event]:
        rebalanced = _rebalanced(op)
        polled: set[str] = set()
        for step in _steps(op):
            if step[0] != "poll" or len(step) < 2:
                continue
            for key, got in _polled(step):
                polled.add(key)
                for name in got:
                    if key in rebalanced:
                        self._sessions.pop((op.process, key), None)
                    yield {
                        **op.head, "type": "ok", "f": "deliver", "queue": "log", "group": key,
                        "message": f"{key}/{name}", "session": self._session_of(op.process, key),
                    }  # fmt: skip
        if op.type != "ok":
            self._forget(op.process, lambda key: key in polled)
        self._forget(op.process, lambda key: key in rebalanced)

    def _session_of(self, process: int, key: str) -> int:
        if (process, key) not in self._sessions:
            self._session += 1
            self._sessions[process, key] = self._session
        return self._sessions[process, key]

    def _forget(self, process: int, is_affected: Any) -> None:
        """Let this process begin a new session when it next reads one of these keys."""
        for pair_read in [pair for pair in self._sessions if pair[0] == process and is_affected(pair[1])]:
            del self._sessions[pair_read]


def _steps(op: Operation) -> list[tuple[Any, ...]]:
    if op.type in ("info", "fail") and not isinstance(op.value, tuple):
        return []  # an error takes the place of the steps
    steps = []
    for step in elements(op.value, _STEPS):
        if not isinstance(step, tuple) or not step or step[0] not in ("send", "poll"):
            raise IntakeError(
                f"{shown(step):.40} is no step of a transaction: it must be [:send ...] or [:poll ...]"
            )
        steps.append(step)
    return steps


def _polled(step: tuple[Any, ...]) -> Iterator[tuple[str, list[int | str]]]:
    if not isinstance(step[1], dict):
        raise IntakeError(f"{shown(step):.60} is no poll: it must be [:poll {{key [[offset value] ...]}}]")
    for key, pairs in step[1].items():
        got = []
        for pair in elements(pairs, "a key that was polled"):
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise IntakeError(f"{shown(pair):.40} was polled: it must be [offset value]")
            got.append(named(pair[1], "a :poll"))
        yield shown(key), got


def _rebalanced(op: Operation) -> set[str]:
    keys: set[str] = set()
    for event in elements(op.form.get(Keyword("rebalance-log")), "a :rebalance-log"):
        if isinstance(event, dict):
            keys |= {shown(key) for key in elements(event.get(Keyword("keys")), "a rebalance")}
    return keys
