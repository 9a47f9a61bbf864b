"""The import of what Jepsen recorded of a queue: ``:enqueue``, ``:dequeue`` and ``:drain``.

A dequeue that is ``:ok`` is a delivery together with its acknowledgement, or several if its value
is a vector. If one dequeue has a vector, any dequeue of unknown outcome may have taken any number.
The value of an operation that is ``:info`` or ``:fail`` is an error, never a message.

A drain is many dequeues. Its client reports them in its value, or writes them as operations of
their own while the drain is open. Each is then asked and answered (``:dequeue`` twice), or only
answered, with the drain asked for once more in between; the value of such a drain is
``:exhausted``. Other clients mark dequeues as ``:drain? true``, of which the last finds nothing.

jepsen.independent tests many queues at once: the value of each operation is ``[key value]``. Jepsen
prints such a tuple as it prints a vector, so the first operation that proves one or the other
decides: an enqueue, or a dequeue or drain that is asked for with a value of two elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.intake import Event, IntakeError
from harness.history.importers.edn import Keyword, shown
from harness.history.importers.operation import Operation, elements, kind_of, named

QUEUE_OPERATIONS: Final = ("enqueue", "dequeue", "drain")

_EXHAUSTED: Final = "exhausted"
_DRAINS: Final = Keyword("drain?")
_UNKNOWN_DRAIN: Final = dict.fromkeys(
    ("lost", "stuck"), "a drain of unknown outcome may have taken any number of messages"
)
_UNKNOWN_QUEUE: Final = dict.fromkeys(
    ("lost", "stuck"), "a dequeue of unknown outcome may have taken a message of any queue"
)
_UNKNOWN_BATCH: Final = dict.fromkeys(
    ("lost", "stuck"), "a dequeue of unknown outcome may have taken several messages, as others did"
)
_Pair = tuple[Any, Any]
"""A key (None: no key) and a value."""


@dataclass(slots=True)
class _Open:
    """An operation that has no answer yet.

    For a drain it also has its dequeue that has no answer yet, and whether it asked for any. It has
    the messages that its dequeues got, and the number of operations when it began.
    """

    op: Operation
    number: int
    dequeue: Operation | None = None
    asks: bool = False
    got: list[_Pair] = field(default_factory=list)


class QueueOperations:
    """The operations of one history, in order."""

    def __init__(self) -> None:
        self.not_judged: dict[str, str] = {}
        self._keyed: bool | None = None
        self._kinds: set[str] = set()
        self._open: dict[int, _Open] = {}
        self._number = 0
        self._enqueued: dict[Any, int] = {}
        self._drained: dict[Any, int] = {}
        self._batches = False
        self._unheard = False

    @property
    def drained(self) -> bool:
        """True if every queue was drained after the last message was put in."""
        everywhere = self._drained.get(None, -1)
        return (
            "lost" not in self.not_judged
            and bool(self._drained)
            and all(max(self._drained.get(key, -1), everywhere) > at for key, at in self._enqueued.items())
        )

    def end(self) -> None:
        """Note that there are no more operations."""
        for open_ in self._open.values():
            if open_.op.f == "drain":
                self._unheard_drain(open_)
            elif open_.op.f == "dequeue":
                self._unheard_dequeue(open_.op)
        if self._batches and self._unheard:
            self.not_judged |= _UNKNOWN_BATCH

    def events(self, op: Operation) -> Iterator[Event]:
        """Yield the events of one operation. Raises IntakeError."""
        self._number += 1
        self._decide(op)
        open_ = self._open.get(op.process)
        if open_ is not None and open_.op.f == "drain" and op.f == "dequeue":
            yield from self._dequeue_of_drain(op, open_)
        elif op.type == "invoke":
            yield from self._requested(op, open_)
        elif open_ is not None and open_.op.f != op.f:
            raise IntakeError(f"process {op.process} invoked :{open_.op.f}, but this completes :{op.f}")
        else:
            self._open.pop(op.process, None)
            yield from self._answered(op, open_)

    def _requested(self, op: Operation, open_: _Open | None) -> Iterator[Event]:
        if open_ is not None:
            if op.f == open_.op.f == "drain":
                return  # the drain's next dequeue, as some clients write it
            raise IntakeError(f"process {op.process} invokes :{op.f} before its :{open_.op.f} has completed")
        self._open[op.process] = _Open(op, self._number)
        if op.f == "enqueue":
            yield self._enqueue(op, op)
        elif op.f == "dequeue":
            yield {**op.head, "f": "receive", **self._queue_of(op)}

    def _answered(self, op: Operation, open_: _Open | None) -> Iterator[Event]:
        request = op if open_ is None else open_.op
        if op.f == "enqueue":
            yield self._enqueue(op, request)
        elif op.f == "dequeue":
            got = self._received(op, request)
            if not got and open_ is not None and op.form.get(_DRAINS) and _found_nothing(op):
                self._empty(request, open_.number)
            yield from self._dequeue(op, request, got)
        else:
            yield from self._drain(op, open_)

    # ---------------------------------------------------------------------------------- enqueueing

    def _enqueue(self, op: Operation, request: Operation) -> Event:
        key, value = self._pair(request.value, request)
        name = named(value, "an :enqueue")
        if op.type in ("invoke", "ok"):
            self._kinds.add(kind_of(value) or "")
            self._enqueued[key] = self._number
        return {**op.head, "f": "send", **_message(key, name)}

    # ---------------------------------------------------------------------------------- dequeueing

    def _dequeue(self, op: Operation, request: Operation, got: list[_Pair]) -> Iterator[Event]:
        if op.type == "info":
            self._unheard_dequeue(request)
        if not got:
            yield {**op.head, "f": "receive", **self._queue_of(request)}
        yield from self._deliveries(op, request, got)

    def _deliveries(self, op: Operation, request: Operation, got: list[_Pair]) -> Iterator[Event]:
        since = {} if request is op else {"time_low": request.time}
        for key, value in got:
            name = named(value, f"a :{op.f}")
            yield {**op.head, "type": "ok", "f": "receive", **_message(key, name), **since}

    def _dequeue_of_drain(self, op: Operation, drain: _Open) -> Iterator[Event]:
        if op.type == "invoke":
            if drain.dequeue is not None:
                raise IntakeError(
                    f"process {op.process} invokes :dequeue before its earlier :dequeue has completed"
                )
            drain.dequeue, drain.asks = op, True
            yield {**op.head, "f": "receive", **self._queue_of(op, drain.op)}
            return
        request, drain.dequeue = drain.dequeue or drain.op, None
        got = self._received(op, request)
        drain.got += got
        yield from self._dequeue(op, request, got)

    # ------------------------------------------------------------------------------------ draining

    def _drain(self, op: Operation, drain: _Open | None) -> Iterator[Event]:
        if drain is None:
            drain = _Open(op, -1)
        if op.type == "info":
            self._unheard_drain(drain)
            return
        if drain.dequeue is not None:
            yield from self._dequeue(Operation(op.time, op.process, "info", "dequeue", {}), drain.dequeue, [])
        if op.type != "ok":
            return
        counted = Counter(_names(drain.got))
        got = self._received(op, drain.op)
        more = [pair for pair, name in zip(got, _names(got), strict=True) if not _taken(counted, name)]
        yield from self._deliveries(op, drain.op, more)
        self._empty(drain.op, drain.number)

    def _empty(self, request: Operation, number: int) -> None:
        """Note that nothing was left of what had been enqueued before this operation's number."""
        key, _ = self._pair(request.value, request)
        self._drained[key] = max(self._drained.get(key, -1), number)

    def _unheard_drain(self, drain: _Open) -> None:
        """Note that a drain has no known outcome; what its own dequeues say is known."""
        if not drain.asks:
            self.not_judged |= _UNKNOWN_DRAIN
        elif drain.dequeue is not None:
            self._unheard_dequeue(drain.dequeue)

    def _unheard_dequeue(self, request: Operation) -> None:
        self._unheard = True
        if self._keyed and self._pair(request.value, request)[0] is None:
            self.not_judged |= _UNKNOWN_QUEUE

    # -------------------------------------------------------------------------------------- values

    def _decide(self, op: Operation) -> None:
        """Decide from the first operation that proves it whether values are ``[key value]``."""
        if self._keyed is not None or op.value is None:
            return
        if op.f == "enqueue" or op.type == "invoke":
            self._keyed = _is_pair(op.value)
        elif op.type == "ok" and isinstance(op.value, tuple) and op.value:
            self._keyed = False  # the question had no key

    def _pair(self, value: Any, op: Operation) -> _Pair:
        """Split a value into key and value; the key is None in an operation for no single key."""
        if not self._keyed:
            return None, value
        if _is_pair(value):
            if kind_of(value[0]) is None:
                raise IntakeError(
                    f"the :value of :{op.f} is {shown(value):.60}: a key must be a number, a text or a "
                    "keyword"
                )
            return value[0], value[1]
        if op.f == "enqueue":
            raise IntakeError(
                f"the :value of :enqueue is {shown(value):.60}: it must be [key value], as in the operations "
                "before"
            )
        return None, value

    def _queue_of(self, op: Operation, other: Operation | None = None) -> dict[str, str]:
        key, _ = self._pair(op.value, op)
        if key is None and other is not None:
            key, _ = self._pair(other.value, other)
        return {} if key is None else {"queue": shown(key)}

    def _received(self, op: Operation, request: Operation) -> list[_Pair]:
        """Return the messages that an answer says were received, each with its key."""
        value = op.value
        if op.type != "ok" or _is_nothing(value):
            return []
        if not self._keyed:
            return [(None, message) for message in self._messages(value, op, many=op.f == "drain")]
        meant, _ = self._pair(request.value, request)
        if meant is None and isinstance(value, tuple) and all(_is_pair(message) for message in value):
            self._batches |= op.f == "dequeue"
            return [pair for message in value for pair in self._of_key(message, op, many=False)]
        if not _is_pair(value):
            raise IntakeError(
                f"the :value of :{op.f} is {shown(value):.60}: it must be [key value], as in the operations "
                "before"
            )
        if meant is None and value[0] not in self._enqueued:
            raise IntakeError(
                f"the :value of :{op.f} is {shown(value):.60}: nothing was enqueued for key "
                f"{shown(value[0]):.40}"
            )
        if meant is not None and value[0] != meant:
            raise IntakeError(
                f"process {op.process} invoked :{op.f} for key {shown(meant):.40}, but this completes it "
                f"for key "
                f"{shown(value[0]):.40}"
            )
        return self._of_key(value, op, many=op.f == "drain")

    def _of_key(self, pair: tuple[Any, ...], op: Operation, *, many: bool) -> list[_Pair]:
        key, value = self._pair(pair, op)
        return [(key, message) for message in self._messages(value, op, many=many)]

    def _messages(self, value: Any, op: Operation, *, many: bool) -> list[Any]:
        """Return the messages of one queue in a value: none, those of a vector, or a single one.

        If ``many`` is true, the value must be a vector.
        """
        if _is_nothing(value):
            return []
        self._batches |= op.f == "dequeue" and isinstance(value, tuple)
        messages = list(elements(value, f"a :{op.f}")) if many or isinstance(value, tuple) else [value]
        for message in messages:
            kind = kind_of(message)
            if kind is not None and kind not in self._kinds and (self._kinds or isinstance(message, Keyword)):
                raise IntakeError(
                    f"the :value of a :{op.f} has {shown(message):.60}, {kind}, and no :enqueue before had "
                    f"{kind}: it must have messages, or be nil where there was none"
                )
        return messages


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, Keyword) and value == _EXHAUSTED)


def _found_nothing(op: Operation) -> bool:
    """Return whether a dequeue without a message says that there was none, not that it failed."""
    return op.type == "ok" or (op.type == "fail" and op.value is not None and _is_nothing(op.value))


def _is_pair(value: Any) -> bool:
    """Return whether a value may be a tuple of jepsen.independent."""
    return type(value) is tuple and len(value) == 2


def _names(pairs: list[_Pair]) -> list[tuple[str, str]]:
    return [(shown(key), shown(value)) for key, value in pairs]


def _taken(counted: Counter[tuple[str, str]], name: tuple[str, str]) -> bool:
    """Return whether a dequeue of a drain got that message already; each counts once."""
    counted[name] -= 1
    return counted[name] >= 0


def _message(key: Any, name: int | str) -> dict[str, Any]:
    """Return the message and its queue; messages of different keys may have the same names."""
    return {"message": name} if key is None else {"message": f"{shown(key)}/{name}", "queue": shown(key)}
