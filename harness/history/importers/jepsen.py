"""What Jepsen recorded of a queue, as events of ours.

Two kinds of tests write such histories. Those of queues ask to ``:enqueue``, ``:dequeue`` and
``:drain``: a dequeue that is ``:ok`` is a delivery and its acknowledgement in one. Those of logs as
Kafka ``:send`` and ``:poll``, alone or in a ``:txn``: a key is a group, and a poll is deliveries
that nobody acknowledges, to a session that ends where the client changes what it reads.

A process of ``:nemesis`` is a fault of which nothing is claimed but that something was done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from checkers.intake import DRAINED, Event, IntakeError
from harness.history.importers.edn import Keyword, shown

QUEUE_OPERATIONS: Final = ("enqueue", "dequeue", "drain")
LOG_OPERATIONS: Final = ("send", "poll", "txn", "subscribe", "assign")
_SILENT: Final = ("crash", "debug-topic-partitions")
"""Operations of logs that say nothing about messages."""

OF_LOGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("double-delivery", "group-split", "redelivery"), "consumers of a log read it whole, each by itself"
    ),
    **dict.fromkeys(
        ("reordered", "reordered-realtime", "not-linearizable"),
        "polls of several consumers are answered in no order among each other",
    ),
}
"""Rules that a log does not promise to keep, each with why."""

_CRASHED_DRAIN: Final = dict.fromkeys(
    ("lost", "stuck"), "a drain of unknown outcome may have taken any number of messages"
)

Form = Mapping[Any, Any]


class Jepsen:
    """The operations of one history, in order."""

    def __init__(self) -> None:
        self.not_judged: dict[str, str] = {}
        self._logs: bool | None = None
        self._asked: dict[int, tuple[str, Any]] = {}
        self._since: dict[int, Any] = {}
        self._enqueued = 0
        self._drains: dict[int, int] = {}
        self._drained = -1
        self._sessions: dict[tuple[int, str], int] = {}
        self._session = 0

    def events(self, op: Any) -> Iterator[Event]:
        """Those of one operation. Raises IntakeError."""
        if not isinstance(op, dict):
            raise IntakeError(
                f"{shown(op):.40} is no operation: it must be a map with :type, :f, :process and :time"
            )
        type_, f = (_name(op, key) for key in ("type", "f"))
        process, time = op.get(Keyword("process")), op.get(Keyword("time"))
        for name, value in (("process", process), ("time", time)):
            if value is None:
                raise IntakeError(f"the operation has no :{name}")
        head = {"time": time, "type": type_}
        if isinstance(process, Keyword):
            yield {**head, "process": "nemesis", "f": f}
            return
        if isinstance(process, bool) or not isinstance(process, int):
            raise IntakeError(f":process is {shown(process):.40}: it must be a number, or :nemesis")
        if f in _SILENT:
            return
        logs = f in LOG_OPERATIONS
        if not logs and f not in QUEUE_OPERATIONS:
            known = ", ".join(f":{one}" for one in (*QUEUE_OPERATIONS, *LOG_OPERATIONS))
            raise IntakeError(f":f is :{f}, which is not of a queue or a log: {known}")
        if self._logs not in (None, logs):
            raise IntakeError(
                f":{f} stands among operations of another kind: a history is of a queue or of a log"
            )
        if self._logs is None:
            self._logs = logs
            self.not_judged |= OF_LOGS if logs else {}
        asked = self._asked.pop(process, None) if type_ != "invoke" else None
        if type_ == "invoke":
            if process in self._asked:
                raise IntakeError(
                    f"process {process} asks for :{f} and has no answer to :{self._asked[process][0]} yet"
                )
            self._asked[process] = f, op.get(Keyword("value"))
            self._since[process] = time
        elif asked is not None and asked[0] != f:
            raise IntakeError(f"process {process} asked for :{asked[0]}, and this answers :{f}")
        head |= {"process": process}
        yield from (self._of_log if logs else self._of_queue)(f, type_, process, head, op, asked)

    def end(self) -> None:
        """There are no more."""
        if any(f == "drain" for f, _ in self._asked.values()):
            self.not_judged |= _CRASHED_DRAIN

    @property
    def drained(self) -> bool:
        """Whether everything was taken out that had been put in."""
        return self._drained == self._enqueued and "lost" not in self.not_judged

    # --------------------------------------------------------------------------------------- queues

    def _of_queue(
        self, f: str, type_: str, process: int, head: Event, op: Form, asked: tuple[str, Any] | None
    ) -> Iterator[Event]:
        value = op.get(Keyword("value"))
        if f == "enqueue":
            self._enqueued += type_ in ("invoke", "ok")
            yield {**head, "f": "send", "message": _message(asked[1] if asked is not None else value)}
            return
        told = value if asked is None or value != asked[1] or type_ == "ok" else None
        if f == "drain":
            yield from self._drain(type_, process, head, told)
        elif type_ == "info" and told is not None:
            yield {**head, "type": "fail", "f": "receive"}
            got = {**head, "message": _message(told)}
            since = {} if asked is None else {"time_low": self._since[process]}
            yield {**got, **since, "type": "ok", "f": "deliver"}
            yield {**got, "type": "invoke", "f": "ack"}
            yield {**got, "type": "info", "f": "ack"}
        elif type_ == "ok" and told is not None:
            yield {**head, "f": "receive", "message": _message(told)}
        else:
            yield {**head, "f": "receive"}

    def _drain(self, type_: str, process: int, head: Event, told: Any) -> Iterator[Event]:
        if type_ == "invoke":
            self._drains[process] = self._enqueued
            return
        before = self._drains.pop(process, None)
        since = {} if before is None else {"time_low": self._since[process]}
        if type_ == "fail":
            return
        if type_ == "info":
            self.not_judged |= _CRASHED_DRAIN
        for one in _sequence(told, "a :drain", allow_none=True):
            yield {**head, "type": "ok", "f": "receive", "message": _message(one), **since}
        if type_ == "ok" and before == self._enqueued:
            self._drained = self._enqueued

    # ----------------------------------------------------------------------------------------- logs

    def _of_log(
        self, f: str, type_: str, process: int, head: Event, op: Form, asked: tuple[str, Any] | None
    ) -> Iterator[Event]:
        value = op.get(Keyword("value"))
        if f in ("subscribe", "assign"):
            if type_ in ("ok", "info"):
                keys = {shown(key) for key in _sequence(value, f"a :{f}", allow_none=True)}
                again = bool(op.get(Keyword("seek-to-beginning?")))
                self._forget(process, lambda key: again or key not in keys)
            return
        sends = [one for one in _steps(asked[1] if asked is not None else value) if one[0] == "send"]
        for step in sends:
            if len(step) < 3:
                raise IntakeError(f"{shown(step):.60} is no send: it must be [:send key value]")
            sent = step[2][1] if isinstance(step[2], tuple) and len(step[2]) == 2 else step[2]
            key = shown(step[1])
            yield {**head, "f": "send", "queue": "log", "group": key, "message": f"{key}/{shown(sent)}"}
        if type_ == "invoke":
            return
        rebalanced = _rebalanced(op)
        polled: set[str] = set()
        for step in _steps(value):
            if step[0] != "poll" or len(step) < 2:
                continue
            for key, got in _polled(step):
                polled.add(key)
                for one in got:
                    if key in rebalanced:
                        self._sessions.pop((process, key), None)
                    yield {
                        **head, "type": "ok", "f": "deliver", "queue": "log", "group": key,
                        "message": f"{key}/{shown(one)}", "session": self._session_of(process, key),
                    }  # fmt: skip
        if type_ != "ok":
            self._forget(process, lambda key: key in polled)
        self._forget(process, lambda key: key in rebalanced)

    def _session_of(self, process: int, key: str) -> int:
        if (process, key) not in self._sessions:
            self._session += 1
            self._sessions[process, key] = self._session
        return self._sessions[process, key]

    def _forget(self, process: int, of: Any) -> None:
        """The next that this process reads of these keys begins a session."""
        for one in [pair for pair in self._sessions if pair[0] == process and of(pair[1])]:
            del self._sessions[one]


def drained_at(time: int) -> Event:
    """The event that says that everything was received."""
    return {"time": time, "process": "harness", "type": "info", "f": "phase", "value": DRAINED}


def _name(op: Form, key: str) -> str:
    value = op.get(Keyword(key))
    if not isinstance(value, str):
        raise IntakeError(
            f"the operation has no :{key}" if value is None else f":{key} is {shown(value):.40}: no keyword"
        )
    return str(value)


def _message(value: Any) -> int | str:
    if value is None:
        raise IntakeError("the operation has no :value: it must say which message")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return shown(value)


def _sequence(value: Any, what: str, *, allow_none: bool = False) -> Iterable[Any]:
    if value is None and allow_none:
        return ()
    if not isinstance(value, tuple):
        raise IntakeError(f"the :value of {what} is {shown(value):.40}: it must be a vector")
    return value


def _steps(value: Any) -> list[tuple[Any, ...]]:
    steps = []
    for step in _sequence(value, "a :send, :poll or :txn", allow_none=True):
        if not isinstance(step, tuple) or not step or step[0] not in ("send", "poll"):
            raise IntakeError(
                f"{shown(step):.40} is no step of a transaction: it must be [:send ...] or [:poll ...]"
            )
        steps.append(step)
    return steps


def _polled(step: tuple[Any, ...]) -> Iterator[tuple[str, list[Any]]]:
    if not isinstance(step[1], dict):
        raise IntakeError(f"{shown(step):.60} is no poll: it must be [:poll {{key [[offset value] ...]}}]")
    for key, pairs in step[1].items():
        some = _sequence(pairs, "a key that was polled", allow_none=True)
        for pair in some:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise IntakeError(f"{shown(pair):.40} was polled: it must be [offset value]")
        yield shown(key), [value for _, value in some]


def _rebalanced(op: Form) -> set[str]:
    keys: set[str] = set()
    for event in _sequence(op.get(Keyword("rebalance-log")), "a :rebalance-log", allow_none=True):
        if isinstance(event, dict):
            keys |= {
                shown(key) for key in _sequence(event.get(Keyword("keys")), "a rebalance", allow_none=True)
            }
    return keys
