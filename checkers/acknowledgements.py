"""Acknowledgements and refusals as operations: each invocation with its answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.deaths import Answers, Deaths
from checkers.rows import (
    ACK_FAIL,
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    NACK_FAIL,
    NACK_INVOKE,
    NACK_OK,
    NONE,
    Flags,
    Numbers,
    Rows,
    joined,
    marked,
    ordered,
)
from checkers.running import highest_before, segments

_ACKS = (ACK_INVOKE, ACK_OK, ACK_FAIL)
_NACKS = (NACK_INVOKE, NACK_OK, NACK_FAIL)


@dataclass(frozen=True, slots=True)
class Operations:
    """Acknowledgements or refusals, one row for each.

    ``at`` is the position of the invocation, ``answer`` the position of its ``ok`` (-1: none).
    ``failed`` says that the answer was ``fail``.
    """

    at: Numbers
    answer: Numbers
    failed: Flags

    def some(self, flags: Flags) -> Operations:
        """Return the operations that are flagged."""
        return Operations(self.at[flags], self.answer[flags], self.failed[flags])

    def with_(self, more: Operations) -> Operations:
        """Return these operations and more together."""
        return joined([self, more])


def acks(rows: Rows, flagged: Flags) -> Operations:
    """Return the acknowledgements of the messages that ``flagged`` flags."""
    return _operations(rows, flagged, _ACKS)


def nacks(rows: Rows, flagged: Flags) -> Operations:
    """Return the refusals of the messages that ``flagged`` flags."""
    return _operations(rows, flagged, _NACKS)


def _operations(rows: Rows, flagged: Flags, kinds: tuple[int, int, int]) -> Operations:
    """Pair each invocation with its answer, the next row of that message by the same process.

    A process has one operation at a time. An ``ok`` without an invocation is an operation, too.
    """
    asking, ok, fail = kinds
    at = rows.of(*kinds)
    at = at[flagged[rows.id[at]]]
    at = at[ordered(rows.id[at], rows.process[at], rows.index[at])]
    kind = rows.kind[at]
    process_part = segments(rows.id[at], rows.process[at])
    follows = np.zeros(len(at), dtype=bool)
    follows[1:] = (process_part[1:] == process_part[:-1]) & (kind[:-1] == asking)
    answered = np.append(follows[1:], False)
    following = np.append(at[1:], -1)
    operations = np.flatnonzero((kind == asking) | ((kind == ok) & ~follows))
    has_no_invoke = kind[operations] == ok
    answer = np.where(
        has_no_invoke, at[operations], np.where(answered[operations], following[operations], -1)
    )
    answer_kind = np.where(answer >= 0, rows.kind[answer], 0)
    return Operations(at[operations], np.where(answer_kind == ok, answer, -1), answer_kind == fail)


def gone_before(rows: Rows, deaths: Deaths, at: Numbers, invoked: Numbers) -> Numbers:
    """Return the rows that show that acks and nacks cannot have taken effect.

    The result has the index of one row for each ack or nack, ``NONE`` where it may have taken
    effect. Such a row saw the broker's process gone before ``invoked``. That is when the ack was
    invoked; in a transaction, when the end of the transaction was invoked.

    The broker at the other end of the connection is the one that an answer names: the answer to
    the session's ``subscribe``, to the ``connect`` or to the ``begin``. If there is none, the
    latest delivery of the message in that session names it.
    """
    if not deaths.rows or not len(at):
        return np.full(len(at), NONE, dtype=np.int64)
    run, session, index = rows.run[at], rows.session[at], rows.index[at]
    answers = Answers.of(deaths.sessions, run, session, index)
    answers = answers.with_(Answers.of(deaths.connections, run, rows.connection[at], index))
    answers = answers.with_(Answers.of(deaths.transactions, run, rows.transaction[at], index))
    delivered = given_before(rows, at)
    is_named = (delivered >= 0) & (rows.broker.codes[delivered] >= 0)
    nothing = np.full(len(at), NONE, dtype=np.int64)
    delivery = (rows.index[delivered], rows.time[delivered], deaths.numbered(rows.broker, delivered))
    answers = answers.or_deliveries(Answers(*(np.where(is_named, values, nothing) for values in delivery)))
    dead = deaths.gone_since(run, session, rows.connection[at], rows.transaction[at], answers)
    return np.where(dead < invoked, dead, NONE)


def given_before(rows: Rows, at: Numbers) -> Numbers:
    """Return the position of the latest delivery of each row's message in the row's session.

    Only deliveries before the row count; -1 where there is none.
    """
    delivers = rows.of(DELIVER)
    delivers = delivers[marked(rows.id[at], rows.messages)[rows.id[delivers]]]
    all_rows = np.concatenate([delivers, at])
    moments = np.concatenate([rows.index[delivers], rows.index[at]])
    order = ordered(rows.id[all_rows], rows.session[all_rows], moments)
    giving = np.where(order < len(delivers), all_rows[order], NONE)
    result = np.empty(len(all_rows), dtype=np.int64)
    result[order] = highest_before(segments(rows.id[all_rows[order]], rows.session[all_rows[order]]), giving)
    result = result[len(delivers) :]
    return np.where((result == NONE) | (rows.session[at] == NONE), -1, result)
