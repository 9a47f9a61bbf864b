"""Temporary queues: their owners, their ends, and the messages that they are owed.

A queue whose name begins with ``TEMPORARY`` belongs to an owner: the connection on which it was
first subscribed to. It lives as long as that connection, and the messages that wait there end with
it.

    owed        while it surely lives, every message, as to any queue: those that were sent after
                the answer to its first ``subscribe`` and taken by the broker that gave that answer,
                or by one of another node, which forwards them (another broker of the owner's node
                took over, and knows nothing of the queue). Messages are missed only
                if the queue lives until the drain has ended: an owner that is there when the
                ``drain`` begins stays until no more messages come, and then leaves in order. So
                a queue is owed nothing if a ``drop`` or an ``unsubscribe`` of it was invoked, or a
                session lost, before the drain began. Nor is it if a ``drop`` was not answered
                ``ok``: its connection may have been lost long before its client saw that
    in hand     messages that the owner had got and not acknowledged when a session ended are not
                given back, because their queue has ended. Messages refused before that are
    its end     messages that were sent ``ok`` before the invocation of a ``drop`` that was answered
                ``ok`` are gone from that answer on: no store has them. So are messages that its
                broker had taken before the invocation of a fault that ended the broker's process,
                and the connection with it
    another's   no message of it may be delivered on another connection than its owner's
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.deaths import Deaths, brokers_gone
from checkers.rows import (
    BROWSE,
    DELIVER,
    NONE,
    SEND_OK,
    Flags,
    Numbers,
    Rows,
    Texts,
    first,
    lowest,
    numbers_of,
    texts_of,
)
from checkers.schema import HARNESS, NEMESIS, TEMPORARY, json_object

_NEVER: Final = int(np.iinfo(np.int64).max)
"""A number above every index."""

_ENDING: Final = ("drop", "unsubscribe")


@dataclass(slots=True)
class TemporaryQueueHistory:
    """The operations on one temporary queue, by the indexes of their rows.

    ``owner`` is the connection that first subscribed, ``begun`` the row and the broker of the first
    answer to a subscribe, ``open`` the unanswered invocations by operation, process and session.
    """

    owner: int | None = None
    begun: tuple[int, str | None] | None = None
    open: dict[tuple[str, int, int | None], int] = field(default_factory=dict)
    ends: list[tuple[int, int, str, str]] = field(default_factory=list)
    """The ends of the queue: invocation, answer, operation and outcome of each."""

    def take(self, row: Mapping[str, Any]) -> None:
        """Add a row of the queue; rows must come in order."""
        f, type_, index = row["f"], row["type"], row["index"]
        key = f, row["process"], row.get("session")
        if f == "subscribe":
            if self.owner is None:
                self.owner = row.get("connection")
            if type_ == "ok" and self.begun is None:
                self.begun = index, row.get("broker")
        elif f == "disconnect":
            self.ends.append((index, index, f, "ok"))
        elif type_ == "invoke":
            if key in self.open:  # it stays unanswered, and may have happened
                self.ends.append((self.open[key], _NEVER, f, "open"))
            self.open[key] = index
        else:
            invoked = self.open.pop(key, None)
            if invoked is not None:
                self.ends.append((invoked, index, f, type_))

    @property
    def effective_ends(self) -> list[tuple[int, int, str, str]]:
        """The ends that may have happened: invocation, answer, operation and outcome of each."""
        ends = [*self.ends, *((invoked, _NEVER, f, "open") for (f, *_), invoked in self.open.items())]
        return [end for end in ends if end[3] != "fail"]

    def since(self, drain: int) -> int:
        """Return the index after which sent messages are owed; the drain began at ``drain``."""
        effective = self.effective_ends
        if self.begun is None or any(invoked < drain or type_ != "ok" for invoked, _, _, type_ in effective):
            return _NEVER
        return self.begun[0]

    def meant_since(self, read: Numbers) -> Numbers:
        """Return the row after which messages were sent to the queue, if it lived to each read."""
        if self.begun is None:
            return np.full(len(read), _NEVER, dtype=np.int64)
        end = min((invoked for invoked, *_ in self.effective_ends), default=_NEVER)
        return np.where(read < end, self.begun[0], _NEVER)

    def end(self) -> tuple[int, int]:
        """Return the invocation and the answer of the first ``drop`` that was answered ``ok``."""
        drops = [
            (invoked, answered) for invoked, answered, f, type_ in self.ends if (f, type_) == ("drop", "ok")
        ]
        return min(drops, default=(NONE, NONE))

    def killed(self, kills: Sequence[tuple[int, int, str]]) -> tuple[int, int]:
        """Return the invocation of the first fault that ended the owner's broker, and its end."""
        if self.begun is None:
            return NONE, NONE
        since, broker = self.begun
        broker_kills = [
            (invoked, seen_gone) for invoked, seen_gone, whose in kills if whose == broker and invoked > since
        ]
        return min(broker_kills, default=(NONE, NONE))


@dataclass(frozen=True, slots=True)
class Temporaries:
    """The facts about all temporary queues from the control rows; ``numbers`` numbers them.

    ``since``: the index after which sent messages are owed. ``broker`` answered the first
    subscribe, which was of connection ``owner`` (``NONE`` if not known). ``asked`` and ``gone``:
    the invocation and the answer of the drop that was answered ``ok`` (``NONE`` if there is none).
    ``hit`` and ``dead``: the invocation of the fault that ended its broker, and the row that saw
    that.
    """

    numbers: Mapping[tuple[int, str], int] = field(default_factory=dict)
    since: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    broker: Sequence[str | None] = ()
    owner: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    asked: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gone: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    hit: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    dead: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    histories: Sequence[TemporaryQueueHistory] = ()

    def number(self, places: Sequence[tuple[int, str | None, str | None]]) -> Numbers:
        """Return the number of each place's temporary queue.

        It is ``NONE`` if the place is no temporary queue, or no control row names it.
        """
        numbers_found = [self.numbers.get((run, queue or ""), NONE) for run, queue, _ in places]
        return np.array(numbers_found, dtype=np.int64)

    def owed(self, rows: Rows, number: Numbers, sent: Numbers, deaths: Deaths) -> Flags:
        """Return whether each message is owed, by the number of its queue and its first send."""
        result = np.zeros(rows.messages, dtype=bool)
        at = np.flatnonzero(number != NONE)
        responsible = self._at_home(rows, number) | self._forwarded(rows, number, deaths)
        result[at] = (sent[at] > self.since[number[at]]) & responsible[at]
        return result

    def _forwarded(self, rows: Rows, number: Numbers, deaths: Deaths) -> Flags:
        """Return whether a broker of another node than the owner's took each message."""
        result = np.zeros(rows.messages, dtype=bool)
        taker = _takers(rows)
        runs = [run for run, _ in self.numbers]
        at = np.flatnonzero((number != NONE) & (taker >= 0))
        for queue, code in np.unique(np.column_stack([number[at], taker[at]]), axis=0).tolist():
            node = deaths.node_ids.get((runs[queue], str(rows.broker.values[code])))
            home = deaths.node_ids.get((runs[queue], str(self.broker[queue])))
            if None not in (node, home) and node != home:
                result[at[(number[at] == queue) & (taker[at] == code)]] = True
        return result

    def _at_home(self, rows: Rows, number: Numbers) -> Flags:
        """Return whether the broker of the queue's owner answered the send of each message."""
        result = np.zeros(rows.messages, dtype=bool)
        at = np.flatnonzero(number != NONE)
        answered = _takers(rows)
        codes = {None: -1, **{value: code for code, value in enumerate(rows.broker.values)}}
        home = np.array([codes.get(name, len(codes)) for name in self.broker], dtype=np.int64)
        result[at] = answered[at] == home[number[at]]
        return result

    def outlived(self, rows: Rows, number: Numbers, ok: Numbers) -> Numbers | None:
        """Return the first row of a main store that has each message though its queue is gone.

        Return None if there is no row of a main store.
        """
        at = rows.of(BROWSE)
        at = at[number[rows.id[at]] != NONE]
        at = at[rows.value.codes[at] == rows.value.code("main")]
        if not len(at):
            return None
        queue_number, sent = number[rows.id[at]], ok[rows.id[at]]
        dropped = (sent < self.asked[queue_number]) & (self.gone[queue_number] < rows.index[at])
        killed = (sent < self.hit[queue_number]) & (self.dead[queue_number] < rows.index[at])
        killed &= self._at_home(rows, number)[rows.id[at]]
        wrong = at[(sent != NONE) & (dropped | killed)]
        return lowest(rows.id[wrong], rows.index[wrong], rows.messages) if len(wrong) else None

    def strayed(self, rows: Rows, number: Numbers) -> Numbers | None:
        """Return the first delivery of each message on another connection than its owner's.

        Return None if there is no such delivery at all.
        """
        at = rows.of(DELIVER)
        at = at[(number[rows.id[at]] != NONE) & (rows.message[at] != NONE)]
        owner, connection = self.owner[number[rows.id[at]]], rows.connection[at]
        wrong = at[(owner != NONE) & (connection != NONE) & (owner != connection)]
        return lowest(rows.id[wrong], rows.index[wrong], rows.messages) if len(wrong) else None


def _takers(rows: Rows) -> Numbers:
    """Return the code of the broker that answered the first ``ok`` send of each message."""
    answers = rows.of(SEND_OK)
    return first(rows.id[answers], rows.broker.codes[answers].astype(np.int64), rows.messages)


def read(control: pa.Table) -> Temporaries:
    """Return the facts about temporary queues from all control rows.

    The table has columns of ``checkers.schema``, and may have ``run``.
    """
    queue, f = texts_of(control, "queue"), texts_of(control, "f")
    is_relevant = of_temporaries(queue) & f.are("subscribe", "disconnect", *_ENDING)
    if not is_relevant.any():
        return Temporaries()
    drains = _drains(control)
    queues: dict[tuple[int, str], TemporaryQueueHistory] = {}
    rows = control.filter(pa.array(is_relevant)).to_pylist()
    for row in sorted(rows, key=lambda item: item["index"]):
        queues.setdefault((row.get("run") or 0, row["queue"]), TemporaryQueueHistory()).take(row)
    ends = [item.end() for item in queues.values()]
    kills = _kills(control)
    deaths = [item.killed(kills.get(run, ())) for (run, _), item in queues.items()]
    return Temporaries(
        {key: n for n, key in enumerate(queues)},
        _numbers(item.since(drains.get(run, _NEVER)) for (run, _), item in queues.items()),
        [None if item.begun is None else item.begun[1] for item in queues.values()],
        _numbers(NONE if item.owner is None else item.owner for item in queues.values()),
        _numbers(invoked for invoked, _ in ends),
        _numbers(over for _, over in ends),
        _numbers(hit for hit, _ in deaths),
        _numbers(dead for _, dead in deaths),
        list(queues.values()),
    )


def of_temporaries(queue: Texts) -> Flags:
    """Return which rows are of a temporary queue."""
    return np.array([*(name.startswith(TEMPORARY) for name in queue.values), False], dtype=bool)[queue.codes]


def _drains(control: pa.Table) -> dict[int, int]:
    """Return, by run, the row at which the drain began."""
    harness = numbers_of(control, "process") == HARNESS
    begins = harness & texts_of(control, "f").are("phase") & texts_of(control, "value").are("drain")
    drains: dict[int, int] = {}
    for row in control.filter(pa.array(begins)).to_pylist():
        run = row.get("run") or 0
        drains[run] = min(row["index"], drains.get(run, row["index"]))
    return drains


def _kills(control: pa.Table) -> dict[int, list[tuple[int, int, str]]]:
    """Return, by run, the faults that were seen to end a process.

    Of each the invocation, the row that saw the process gone, and the broker.
    """
    kills: dict[int, list[tuple[int, int, str]]] = {}
    invoked: dict[tuple[int, str, str], int] = {}
    rows = control.filter(pa.array(numbers_of(control, "process") == NEMESIS)).to_pylist()
    for row in sorted(rows, key=lambda broker: broker["index"]):
        run = row.get("run") or 0
        fault = (run, row["f"], str((json_object(row["value"]) or {}).get("label", "")))
        if row["type"] == "invoke":
            invoked[fault] = row["index"]
        elif fault in invoked:
            hit = invoked.pop(fault)
            kills.setdefault(run, []).extend((hit, row["index"], broker) for broker in brokers_gone(row))
    return kills


def _numbers(values: Iterable[int]) -> Numbers:
    return np.array(list(values), dtype=np.int64)
