"""The intake of other harnesses' events, which become rows of a history.

Why: other harnesses know the same facts by other names: what was asked, what was answered, when.
Here an event (a mapping from field to value, one line of a file of JSON lines) becomes rows with
the columns of ``checkers.schema``. An event that breaks the form of a history is refused, in words
for the person who wrote it.

An event has the fields of the columns, as many as its harness knows. Each event must have ``time``,
``process``, ``type`` and ``f``, and each event of a message must have ``message``. These differ
from the columns, for convenience:

    message       a number or any text; a text, or a number of more than 64 bits, is hashed into a
                  number, and the text is kept as ``value``. Each message is sent once, unless the
                  send before failed for certain
    digest        a number or any text, likewise
    headers       the application's own headers as an object, or a digest of them, a number or a
                  text. If a delivery has an object, only the names count that the send has
    queue, group  of a delivery or an answer that gives neither: those of the message's send. A send
                  without a queue goes to "queue"
    session       of a delivery or an answer to it: the process where none is given
    process, producer, session, transaction, connection
                  numbers, or texts throughout, numbered in the order in which they come. The
                  processes "nemesis", "monitor" and "harness" are those below 0
    producer, sequence
                  kept within groups only; a send without a producer has its process as producer,
                  and where no send has a sequence, the order in which sends are asked for counts
    receive       a delivery that acknowledges by being handed out: ``ok`` with a message is the
                  delivery, asked for since the invocation (its ``time_low``), and its ack. ``ok``
                  without a message and ``fail`` become no row. ``info`` (or no answer) may have
                  taken one message
    timeout       ``info``: the broker took a message back from a session, whose acknowledgement was
                  late (a visibility time-out)
    phase         value "drained": everything was received until nothing came any more
    nemesis       ``f`` is any name of what it did; without a ``value`` that has a label the event
                  is a fault, and only its begin is known
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from checkers import breakage, headers
from checkers.schema import (
    ALWAYS,
    COLUMNS,
    HARNESS,
    KINDS,
    MONITOR,
    NEMESIS,
    TEMPORARY,
    TOPIC,
    TYPES,
    json_object,
)

Row = dict[str, Any]
Event = Mapping[str, Any]

QUEUE: Final = "queue"
DRAINED: Final = "drained"
FIELDS: Final = tuple(name for name in COLUMNS if name != "index")

NO_FAULTS: Final = "the history tells of no faults that could explain it"

UNHEARD: Final = "receives of unknown outcome may have taken what is missing"

_OBSERVERS: Final[Mapping[Any, int]] = {
    "nemesis": NEMESIS, "monitor": MONITOR, "harness": HARNESS,
    NEMESIS: NEMESIS, MONITOR: MONITOR, HARNESS: HARNESS,
}  # fmt: skip
_OF_CLIENTS: Final[Mapping[str, str | None]] = {
    "send": "message", "ack": "message", "nack": "message", "begin": "transaction", "commit": "transaction",
    "abort": "transaction", "subscribe": "session", "unsubscribe": "session", "connect": None,
}  # fmt: skip
"""The operations that are asked and answered.

Each has the field that distinguishes two operations of one process.
"""
_OF_MESSAGES: Final = ("send", "ack", "nack")
_TOLD: Final = ("deliver", "disconnect", "receive", "state", "timeout")
_NAMED: Final = ("process", "producer", "session", "transaction", "connection")
_BITS: Final = {"int64": 63, "int32": 31}
_PHASES: Final = ("load", "heal", "recovered", "not-recovered", "drain", "browse", "end", DRAINED)


class IntakeError(ValueError):
    """An event that no history can have; the text says what is wrong and what would be right."""


_Place = tuple[str | None, str | None]
"""Queue and group."""


class _Lane(NamedTuple):
    """A producer's messages of one group, which are counted.

    Messages without a group have no producer here and are not counted.
    """

    queue: str
    group: str | None
    producer: int | None


class Intake:
    """The intake of the events of one history, in order.

    For each message that was sent it keeps one number: the lane of the message and its place there.

    ``has`` are the columns in which some row has a value.
    """

    def __init__(self) -> None:
        self.has: set[str] = {*ALWAYS, "session", "value"}
        self.rows = 0
        self.faults = False
        self._unheard = False
        self._time: int | None = None
        self._open: dict[tuple[int, str, Any], _Place] = {}
        self._receiving: dict[int, tuple[str, int]] = {}
        self._sent: dict[int, int] = {}
        self._lanes: dict[_Lane, int] = {}
        self._lane: list[_Lane] = []
        self._sequences: Counter[_Lane] = Counter()
        self._counts: bool | None = None
        self._numbers: dict[str, dict[str, int]] = {}
        self._kinds: dict[str, type] = {}
        self._header_names: dict[int, tuple[str, ...]] = {}
        self._names_alike: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._phases: set[str] = set()

    @property
    def columns(self) -> list[str]:
        """The columns that the history has, in the order of ``COLUMNS``."""
        return [name for name in COLUMNS if name in self.has]

    @property
    def not_judged(self) -> Mapping[str, str]:
        """The rules that these events say too little for, each with the reason."""
        untold = dict.fromkeys(() if self.faults else ("unavailable",), NO_FAULTS)
        if "broker" in self.has and not self.faults:
            untold["starved"] = NO_FAULTS
        if self._unheard:
            took = {"transaction": "torn-transaction", "group": "not-linearizable"}
            untold |= dict.fromkeys((rule for column, rule in took.items() if column in self.has), UNHEARD)
        return untold

    @property
    def drained(self) -> bool:
        """True if events have said that the stores were drained and read to the end."""
        return {"browse", "end"} <= self._phases

    def take(self, event: Event) -> Iterator[Row]:
        """Yield the rows of one event; raises IntakeError before the first row."""
        strange = [name for name in event if name not in FIELDS]
        if strange:
            raise IntakeError(f'unknown field "{strange[0]!s:.60}": {_near(str(strange[0]), FIELDS)}')
        fields = {name: value for name, value in event.items() if value is not None}
        for name in ("time", "process", "type", "f"):
            if name not in fields:
                raise IntakeError(f'it has no "{name}": each has time, process, type and f')
        time = _number("time", fields["time"], "int64")
        if self._time is not None and time < self._time:
            raise IntakeError(
                f"time goes back to {time} ns from {self._time} ns: events must be in order of time"
            )
        type_ = fields["type"]
        if type_ not in TYPES:
            raise IntakeError(
                f"type is {_shortened(type_)}: it must be {', '.join(TYPES[:-1])} or {TYPES[-1]}"
            )
        f = fields["f"] = _text("f", fields["f"])
        observer = _OBSERVERS.get(fields["process"]) if isinstance(fields["process"], int | str) else None
        if observer is not None and not isinstance(fields["process"], bool):
            rows = self._observed(observer, fields)
        elif f in _OF_CLIENTS or f in _TOLD:
            rows = self._of_client(f, type_, fields)
        else:
            operations = (*_OF_CLIENTS, *_TOLD)
            raise IntakeError(f"f is {_shortened(f)}: no client does that; {_near(f, operations)}")
        self._time = time
        for row in rows:
            yield self._numbered({"time": time, **row})

    def end(self, *, drained: bool = False) -> Iterator[Row]:
        """Yield the rows that the end of the events adds; ``drained``: everything was received."""
        time = self._time or 0
        for process, (queue, _) in self._receiving.items():
            yield self._numbered(
                {"time": time, "process": process, "type": "info", "f": "receive", "queue": queue}
            )
        self._receiving.clear()
        if drained and not self.drained:
            for row in self._phase(DRAINED):
                yield self._numbered({"time": time, **row})

    # -------------------------------------------------------------------------------------- clients

    def _of_client(self, f: str, type_: str, fields: Event) -> list[Row]:
        process = self._called("process", fields["process"])
        row: Row = {"process": process, "type": type_, "f": f}
        for name in ("group", "broker", "error", "node_id", "role", "subscription"):
            if name in fields:
                row[name] = _text(name, fields[name])
        for name in ("redelivered", "delivery_count", "time_low", "time_high"):
            if name in fields:
                row[name] = _plain(name, fields[name])
        for name in ("transaction", "connection", "session"):
            if name in fields:
                row[name] = self._called(name, fields[name])
        if "digest" in fields:
            row["digest"] = numbered("digest", fields["digest"])[0]
        if "headers" in fields:
            row |= self._headers(f, fields)
        if f in ("send", "ack", "nack", "deliver", "receive", "timeout"):
            return self._of_message(f, type_, row, fields)
        if f in ("subscribe", "unsubscribe", "disconnect"):
            row.setdefault("session", self._default_session(fields))
            if "queue" in fields:
                row["queue"] = _queue(fields["queue"])
        if f in ("disconnect", "state"):
            if type_ != "info":
                raise IntakeError(f"{f} is {type_}: it must be info")
            if f == "state":
                if "value" not in fields:
                    raise IntakeError('state has no "value"')
                row["value"] = _value(fields["value"])
            return [row]
        column = _OF_CLIENTS[f]
        if column is not None and column not in row:
            raise IntakeError(f'{f} has no "{column}"')
        self._pair(
            row,
            None if column is None else row[column],
            f if column is None else f"{f} of {column} {row[column]}",
        )
        return [row]

    def _of_message(self, f: str, type_: str, row: Row, fields: Event) -> list[Row]:
        if f == "receive":
            return self._receive(type_, row, fields)
        name: str | None = None
        if "message" in fields:
            row["message"], name = numbered("message", fields["message"])
        elif f != "deliver" or "error" not in fields:
            raise IntakeError(f'{f} has no "message"')
        if row.get("time_low", fields["time"]) > fields["time"]:
            raise IntakeError(f"time_low is {row['time_low']} ns, which is after {fields['time']} ns")
        if f == "deliver" and type_ != "ok":
            raise IntakeError(f"deliver is {type_}: it has no invocation and must be ok")
        if f == "timeout" and type_ != "info":
            raise IntakeError(f"timeout is {type_}: it has no invocation and must be info")
        if f in ("send", "deliver") and name is not None:
            row["value"] = name
        message = row.get("message")
        operation = f"{f} of message {fields.get('message')!s:.60}"
        sent = self._as_sent(message)
        if "queue" not in fields and "group" not in fields:
            open_place = None if type_ == "invoke" else self._open.get((row["process"], f, message))
            row["queue"], group = open_place or ((QUEUE, None) if sent is None else sent[0][:2])
            row |= {} if group is None else {"group": group}
        else:
            row["queue"] = _queue(fields.get("queue", QUEUE))
        if f == "send":
            sent = self._send(type_, row, fields, operation)
        else:
            row.setdefault("session", self._default_session(fields))
            if f not in ("deliver", "timeout"):
                self._pair(row, message, operation)
        if row.get("group") is None or sent is None:
            return [row]
        row["producer"], row["sequence"] = sent[0].producer, sent[1]
        if f != "send" and self._counts:  # a delivery may name another producer or sequence
            if "producer" in fields:
                row["producer"] = self._called("producer", fields["producer"])
            if "sequence" in fields:
                row["sequence"] = _sequence(fields["sequence"])
        return [row]

    def _headers(self, f: str, fields: Event) -> Row:
        """Return the digest of a message's headers: the given one, or one of the send's headers.

        In a delivery only the headers count whose names the send has. Empty where the event names
        no message, or the names of its send are not known.
        """
        header_values = fields["headers"]
        if not isinstance(header_values, Mapping):
            return {"headers": numbered("headers", header_values)[0]}
        if not all(isinstance(name, str) for name in header_values):
            raise IntakeError(f"headers is {_shortened(header_values)}: each name must be a text")
        if "message" not in fields:
            return {}
        message = numbered("message", fields["message"])[0]
        if f == "send":
            names = tuple(sorted(name.lower() for name in header_values))
            self._header_names[message] = self._names_alike.setdefault(names, names)
        names_sent = self._header_names.get(message)
        return {} if names_sent is None else {"headers": headers.digest(header_values, names_sent)}

    def _as_sent(self, message: int | None) -> tuple[_Lane, int] | None:
        code = None if message is None else self._sent.get(message)
        return None if code is None else (self._lane[code >> 64], code & (2**64 - 1))

    def _send(self, type_: str, row: Row, fields: Event, operation: str) -> tuple[_Lane, int] | None:
        message, group, process = row["message"], row.get("group"), row["process"]
        if type_ != "invoke":
            self._pair(row, message, operation)
            sent = self._as_sent(message)
            if type_ == "fail":
                del self._sent[message]
            return sent
        if message in self._sent:
            raise IntakeError(
                f"{operation} is invoked a second time: each message must be unique, because two equal "
                f"ones cannot be told apart"
            )
        lane, sequence = _Lane(row["queue"], group, None), 0
        if group is not None:
            counts = "sequence" in fields
            if self._counts is None:
                self._counts = counts
            if counts != self._counts:
                raise IntakeError("sequence is in some sends and not in others: each has one, or none has")
            producer = self._called("producer", fields["producer"]) if "producer" in fields else process
            lane = _Lane(row["queue"], group, producer)
            sequence = _sequence(fields["sequence"]) if counts else self._sequences[lane]
            self._sequences[lane] = sequence + 1
        self._pair(row, message, operation)
        number = self._lanes.setdefault(lane, len(self._lane))
        if number == len(self._lane):
            self._lane.append(lane)
        self._sent[message] = number << 64 | sequence
        return lane, sequence

    def _receive(self, type_: str, row: Row, fields: Event) -> list[Row]:
        process = row["process"]
        queue = _queue(fields.get("queue", QUEUE))
        if type_ == "invoke":
            if process in self._receiving:
                raise IntakeError(
                    f"receive is invoked by process {process}, whose earlier receive has not completed"
                )
            self._receiving[process] = queue, fields["time"]
            return []
        asked_queue, since = self._receiving.pop(process, (None, None))
        if type_ == "info":
            row = {"process": process, "type": "info", "f": "receive", "queue": asked_queue or queue}
            return [row | ({"error": _text("error", fields["error"])} if "error" in fields else {})]
        if type_ == "fail" or "message" not in fields:
            return []
        delivery = {name: value for name, value in fields.items() if name != "error"}
        if since is not None:
            row.setdefault("time_low", since)
        rows = self._of_message("deliver", "ok", {**row, "f": "deliver", "type": "ok"}, delivery)
        ack = {
            name: value for name, value in rows[0].items()
            if name in ("process", "queue", "group", "message", "session", "producer", "sequence", "broker")
        }  # fmt: skip
        return [*rows, {**ack, "type": "invoke", "f": "ack"}, {**ack, "type": "ok", "f": "ack"}]

    def _default_session(self, fields: Event) -> int:
        if "session" in fields:
            return self._called("session", fields["session"])
        return self._called("session", fields["process"])

    def _pair(self, row: Row, subject: Any, words: str) -> None:
        key = (row["process"], row["f"], subject)
        place = (row.get("queue"), row.get("group"))
        if row["type"] == "invoke":
            if key in self._open:
                raise IntakeError(
                    f"{words} is invoked by process {row['process']}, whose earlier one has not completed"
                )
            self._open[key] = place
        elif key not in self._open:
            raise IntakeError(
                f"{row['type']} of {words} by process {row['process']} completes what that process has not "
                "invoked"
            )
        elif row["f"] in _OF_MESSAGES and self._open[key] != place:
            raise IntakeError(
                f"{row['type']} of {words} is of {_named(*place)}, but was invoked for "
                f"{_named(*self._open[key])}"
            )
        else:
            del self._open[key]

    # ------------------------------------------------------------------------------------ observers

    def _observed(self, process: int, fields: Event) -> list[Row]:
        row: Row = {"process": process, "type": fields["type"], "f": fields["f"]}
        if process == NEMESIS:
            return self._fault(row, fields)
        for name in FIELDS:
            if name not in fields or name in row or name in ("time", "value"):
                continue
            if name in ("message", "digest", "headers"):
                row[name], _ = numbered(name, fields[name])
            elif name in _NAMED:
                row[name] = self._called(name, fields[name])
            elif name == "queue":
                row[name] = _queue(fields[name])
            else:
                row[name] = _plain(name, fields[name])
        if "value" in fields:
            row["value"] = _value(fields["value"])
        if row["f"] == "phase" and process == HARNESS:
            if row.get("value") not in _PHASES:
                raise IntakeError(
                    f"the phase is {_shortened(row.get('value'))}: it must be one of {', '.join(_PHASES)}"
                )
            wrong = breakage.of_observer(row | dict.fromkeys(set(COLUMNS) - set(row)))
            if wrong:
                raise IntakeError(wrong)
            return self._phase(str(row["value"]))
        wrong = breakage.of_observer(row | dict.fromkeys(set(COLUMNS) - set(row)))
        if not wrong and row["f"] == "browse" and "queue" in row and row["type"] != "ok":
            wrong = f"browse of a message is {row['type']}: it must be ok"
        if wrong:
            raise IntakeError(wrong)
        return [row]

    def _phase(self, value: str) -> list[Row]:
        values: tuple[str, ...] = ("drain", DRAINED, "browse", "end") if value == DRAINED else (value,)
        self._phases.update(values)
        return [{"process": HARNESS, "type": "info", "f": "phase", "value": phase} for phase in values]

    def _fault(self, row: Row, fields: Event) -> list[Row]:
        self.faults = True
        value = _value(fields["value"]) if "value" in fields else None
        object_value = json_object(value)
        if object_value is not None and "label" in object_value:
            row["value"] = value
            wrong = breakage.of_fault(row, self._labels)
            if wrong:
                raise IntakeError(wrong)
            return [row]
        kind = f"nemesis:{row['f']}"
        label = f"{kind} {self.rows}"
        label_value = msgspec.json.encode({"label": label, "shape": "", "target": ""}).decode()
        return [
            {"process": NEMESIS, "type": type_, "f": kind, "value": label_value}
            for type_ in ("invoke", "info")
        ]

    # ---------------------------------------------------------------------------------------- parts

    def _numbered(self, row: Row) -> Row:
        self.has.update(row)
        self._unheard = self._unheard or row["f"] == "receive"
        row["index"] = self.rows
        self.rows += 1
        return row

    def _called(self, field: str, value: Any) -> int:
        """Return the number that a field gives, or the number of the name that it gives."""
        kind = str if isinstance(value, str) else int
        before = self._kinds.setdefault(field, kind)
        if before is not kind:
            words = {str: "a text", int: "a number"}
            raise IntakeError(
                f"{field} is {_shortened(value)}, {words[kind]}, and was {words[before]} before: one "
                "or the other throughout"
            )
        if kind is int:
            number = _number(field, value, KINDS[field])
            if number < 0 and field == "process":
                raise IntakeError(f"process is {number}: clients are 0 and above")
            return number
        numbers = self._numbers.setdefault(field, {})
        return numbers.setdefault(_text(field, value), len(numbers))


def numbered(field: str, value: Any) -> tuple[int, str | None]:
    """Return a number for a value, and the value as text where it is no number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise IntakeError(f"{field} is {_shortened(value)}: it must be a number or a text")
    if isinstance(value, int) and -(2**63) < value < 2**63:
        return value, None
    name = _text(field, value if isinstance(value, str) else repr(value))
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little", signed=True), name


def _number(field: str, value: Any, kind: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise IntakeError(f"{field} is {_shortened(value)}: it must be a whole number")
    if not -(2 ** _BITS[kind]) < value < 2 ** _BITS[kind]:
        raise IntakeError(f"{field} is {_shortened(value)}: it does not fit into {_BITS[kind] + 1} bits")
    return value


def _named(queue: str | None, group: str | None) -> str:
    return f'queue "{queue}"' + ("" if group is None else f', group "{group}"')


def _queue(value: Any) -> str:
    name = _text("queue", value)
    if name.startswith(TOPIC):
        raise IntakeError(
            f"queue is {_shortened(name)}: a name that begins with {TOPIC} is a topic, and topics cannot "
            f"be imported"
        )
    if name.startswith(TEMPORARY):
        raise IntakeError(
            f"queue is {_shortened(name)}: a name that begins with {TEMPORARY} is a temporary queue, "
            f"which cannot be imported"
        )
    return name


def _sequence(value: Any) -> int:
    number = _number("sequence", value, "int64")
    if number < 0:
        raise IntakeError(f"sequence is {number}: it counts from 0")
    return number


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise IntakeError(f"{field} is {_shortened(value)}: it must be a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise IntakeError(
                f"{field} has one half of a surrogate pair, without the other: {value!a:.60}"
            ) from None
    return value


def _plain(field: str, value: Any) -> Any:
    kind = KINDS[field]
    if kind in _BITS:
        return _number(field, value, kind)
    if kind == "bool":
        if not isinstance(value, bool):
            raise IntakeError(f"{field} is {_shortened(value)}: it must be true or false")
        return value
    return _text(field, value)


def _value(value: Any) -> str:
    return _text("value", value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shortened(value: Any) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _near(name: str, names: tuple[str, ...]) -> str:
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"known: {', '.join(names)}"
