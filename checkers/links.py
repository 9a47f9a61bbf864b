"""The answers on each connection, which can refute that a delivery was under way.

A delivery shows when it was read, not when it was sent. But a broker that answers in order with its
deliveries answers a question before anything that it sends later. So a delivery that was read after
an answer was sent after the question was asked. The rows of a session all belong to its connection;
the column ``connection`` adds the rows of other sessions and producers. Where the column is null,
only the session's own rows count.

Answers are looked up only for deliveries that would be accused if they were not under way
(``UnderWay``). Only the span counts in which an answer would refute that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.ends import Keyed
from checkers.rows import FOREVER, NONE, Column, Flags, Numbers, Rows, name_number
from checkers.schema import OF_SESSIONS, OF_TRANSACTIONS

_BITS: Final = 33
_WITHOUT_MESSAGE: Final = (*OF_SESSIONS, *OF_TRANSACTIONS)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The deliveries that may have been under way: an answer between two rows would refute that.

    An answer counts after row ``low`` and before row ``high``, at which the delivery was read.
    ``transaction`` is ``NONE`` except for acknowledgements in one.
    """

    run: Numbers
    session: Numbers
    connection: Numbers
    transaction: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True, slots=True)
class Questions:
    """The operations that were answered ``ok``, one row for each.

    ``asked`` and ``answered`` are the indexes of question and answer, ``asked_ns`` is the moment of
    the question.
    """

    run: Numbers
    session: Numbers
    connection: Numbers
    transaction: Numbers
    asked: Numbers
    answered: Numbers
    asked_ns: Numbers


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans of indexes in which answers are looked up: by session, connection, transaction."""

    sessions: Keyed
    connections: Keyed
    transactions: Keyed

    @classmethod
    def of(cls, under_way: UnderWay) -> Spans:
        """Return the span of each session, connection and transaction of ``under_way``."""

        def by(number: Numbers) -> Keyed:
            every = number != NONE
            return Keyed.of(
                under_way.run[every], number[every],
                {"low": (every[every], under_way.low[every]), "high": (every[every], -under_way.high[every])},
            )  # fmt: skip

        return cls(by(under_way.session), by(under_way.connection), by(under_way.transaction))

    def have(self, rows: Rows, at: Numbers) -> Flags:
        """Flag the rows that lie in the span of their session, connection or transaction."""
        run, index, result = rows.run[at], rows.index[at], np.zeros(len(at), dtype=bool)
        for spans, numbers in self._spans_and_numbers(rows):
            low, high = (spans.find(name, run, numbers[at]) for name in ("low", "high"))
            result |= (low != NONE) & (index > low) & (index < -np.where(high == NONE, 0, high))
        return result

    def touch(self, rows: Rows, at: Numbers) -> Flags:
        """Flag the rows whose session, connection or transaction has a span."""
        result = np.zeros(len(at), dtype=bool)
        for spans, numbers in self._spans_and_numbers(rows):
            result |= spans.find("low", rows.run[at], numbers[at]) != NONE
        return result

    def _spans_and_numbers(self, rows: Rows) -> tuple[tuple[Keyed, Column], ...]:
        """Return each kind of span with the column that numbers it in some rows."""
        return (
            (self.sessions, rows.session),
            (self.connections, rows.connection),
            (self.transactions, rows.transaction),
        )


def questions(rows: Rows, spans: Spans, *, invoked: bool = True) -> Questions:
    """Return the operations answered ``ok`` among these rows whose answers lie in the spans.

    With ``invoked``, only those whose invocation is among the rows; without, ``asked`` and
    ``asked_ns`` of the others are ``NONE``.
    """
    at = np.flatnonzero((rows.process >= 0) & rows.type.are("ok") & ~rows.f.are("deliver", "connect"))
    at = at[spans.have(rows, at)]
    invokes = asked_at(rows, at)
    if invoked:
        at, invokes = at[invokes >= 0], invokes[invokes >= 0]
    invoked_at, invoked_ns = (
        np.where(invokes >= 0, column[invokes], NONE) for column in (rows.index, rows.time)
    )
    return Questions(
        rows.run[at], rows.session[at], rows.connection[at], rows.transaction[at],
        invoked_at, rows.index[at], invoked_ns,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Servers:
    """The brokers that served some sessions, connections and transactions, each combination once.

    ``broker`` is the number of the broker's name. The numbers are ``NONE`` where a row has none.
    """

    run: Numbers
    session: Numbers
    connection: Numbers
    transaction: Numbers
    broker: Numbers


def servers(rows: Rows, spans: Spans) -> Servers:
    """Return the brokers that answered or delivered where there are spans.

    The whole history of these sessions, connections and transactions counts, not only the spans.
    """
    at = np.flatnonzero(rows.type.are("ok") & (rows.broker.codes >= 0))
    at = at[spans.touch(rows, at)]
    names = np.array([*map(name_number, rows.broker.values)], dtype=np.int64)
    numbers = (rows.run[at], rows.session[at], rows.connection[at], rows.transaction[at])
    served = np.column_stack([*numbers, names[rows.broker.codes[at]]])
    return Servers(*np.unique(served, axis=0).T)


def asked_at(rows: Rows, answers: Numbers) -> Numbers:
    """Return the position of the invocation of each answered operation; -1: not among the rows.

    The invocation is the latest before the answer by the same process, of the same operation, about
    the same message, session or transaction.
    """
    about = np.zeros(rows.messages, dtype=bool)
    about[rows.id[answers]] = True
    candidates = about[rows.id]
    if np.isin(rows.f.codes[answers], [rows.f.code(name) for name in _WITHOUT_MESSAGE]).any():
        candidates |= rows.f.are(*_WITHOUT_MESSAGE)
    asking = np.flatnonzero(rows.type.are("invoke") & (rows.process >= 0) & candidates)
    positions = np.concatenate([asking, answers])
    keys = (
        _told_apart(rows, positions),
        rows.f.codes[positions],
        rows.process[positions],
        rows.run[positions],
    )
    order = np.lexsort((positions, *keys))
    is_question = order < len(asking)
    before = np.maximum.accumulate(np.where(is_question, np.arange(len(order)), -1))[~is_question]
    answer_order = np.flatnonzero(~is_question)
    same = before >= 0
    for key in keys:
        same &= key[order[answer_order]] == key[order[np.maximum(before, 0)]]
    result = np.full(len(answers), -1, dtype=np.int64)
    result[order[answer_order] - len(asking)] = np.where(same, positions[order[np.maximum(before, 0)]], -1)
    return result


def _told_apart(rows: Rows, at: Numbers) -> Numbers:
    """Return the number that distinguishes operations of one kind and process.

    It is the session, the transaction, or else the message.
    """
    number = rows.id[at].astype(np.int64)
    for column, operations in ((rows.session, OF_SESSIONS), (rows.transaction, OF_TRANSACTIONS)):
        are_such = np.isin(rows.f.codes[at], [rows.f.code(name) for name in operations])
        number[are_such] = column[at[are_such]]
    return number


@dataclass(frozen=True, slots=True)
class _Latest:
    """The latest question that had been answered, by (run, number) and the index of the answer.

    The number is that of a session or of a connection.
    """

    codes: Keyed
    place: Numbers
    asked: Numbers

    @classmethod
    def of(cls, operations: Questions, number: Numbers) -> _Latest:
        is_known = number != NONE
        run, number, invokes, answered = (
            operations.run[is_known],
            number[is_known],
            operations.asked[is_known],
            operations.answered[is_known],
        )
        keys = Keyed.of(run, number, {})
        codes = Keyed(keys.numbers, keys.keys, {"code": np.arange(len(keys.keys))})
        code = codes.find("code", run, number)
        order = np.lexsort((answered, code))
        code, invokes, answered = code[order], invokes[order], answered[order]
        latest = np.maximum.accumulate((code << _BITS) | invokes) & (2**_BITS - 1)
        return cls(codes, (code << _BITS) | answered, latest)

    def before(self, run: Numbers, number: Numbers, index: Numbers) -> Numbers:
        """Return the latest question answered before ``index``, by row; ``NONE``: none."""
        if not len(self.place):
            return np.full(len(run), NONE, dtype=np.int64)
        code = self.codes.find("code", run, number)
        is_known = code != NONE
        code = np.where(is_known, code, 0)
        at = np.searchsorted(self.place, (code << _BITS) | np.clip(index, 0, FOREVER), "left") - 1
        is_known &= (at >= 0) & (self.place[at] >> _BITS == code)
        return np.where(is_known, self.asked[at], NONE)


class LinkAnswers:
    """The answers to sessions and connections, which are looked up by the index of a row."""

    def __init__(self, operations: Questions) -> None:
        self._sessions = _Latest.of(operations, operations.session)
        self._connections = _Latest.of(operations, operations.connection)
        every = np.ones(len(operations.run), dtype=bool)
        self._moments = Keyed.of(operations.run, operations.asked, {"ns": (every, operations.asked_ns)})

    def before(self, run: Numbers, session: Numbers, connection: Numbers, index: Numbers) -> Numbers:
        """Return the latest question answered before ``index`` in the session or connection."""
        return np.maximum(
            self._sessions.before(run, session, index), self._connections.before(run, connection, index)
        )

    def moments(self, run: Numbers, invocations: Numbers) -> Numbers:
        """Return when these questions were asked (ns)."""
        return self._moments.find("ns", run, invocations)


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts that all parts together know about sessions.

    ``proven`` says until when sessions certainly lived, ``links`` what had been answered when.
    """

    proven: Keyed
    links: LinkAnswers
