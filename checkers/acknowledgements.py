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

    def some(self, which: Flags) -> Operations:
        """Return the operations that ``which`` flags."""
        return Operations(self.at[which], self.answer[which], self.failed[which])

    def with_(self, others: Operations) -> Operations:
        """Return these operations and ``others`` together."""
        return joined([self, others])


def acks(rows: Rows, of: Flags) -> Operations:
    """Return the acknowledgements of the messages that ``of`` flags."""
    return _operations(rows, of, _ACKS)


def nacks(rows: Rows, of: Flags) -> Operations:
    """Return the refusals of the messages that ``of`` flags."""
    return _operations(rows, of, _NACKS)


def _operations(rows: Rows, of: Flags, kinds: tuple[int, int, int]) -> Operations:
    """Pair each invocation with its answer, the next row of that message by the same process.

    A process has one operation at a time. An ``ok`` without an invocation is an operation, too.
    """
    asking, ok, fail = kinds
    at = rows.of(*kinds)
    at = at[of[rows.id[at]]]
    at = at[ordered(rows.id[at], rows.process[at], rows.index[at])]
    kind = rows.kind[at]
    one = segments(rows.id[at], rows.process[at])
    follows = np.zeros(len(at), dtype=bool)
    follows[1:] = (one[1:] == one[:-1]) & (kind[:-1] == asking)
    answered = np.append(follows[1:], False)
    following = np.append(at[1:], -1)
    here = np.flatnonzero((kind == asking) | ((kind == ok) & ~follows))
    alone = kind[here] == ok
    answer = np.where(alone, at[here], np.where(answered[here], following[here], -1))
    told = np.where(answer >= 0, rows.kind[answer], 0)
    return Operations(at[here], np.where(told == ok, answer, -1), told == fail)


def gone_before(rows: Rows, deaths: Deaths, at: Numbers, asked: Numbers) -> Numbers:
    """Return the rows that show that acks and nacks cannot have taken effect.

    The result has the index of one row for each ack or nack, ``NONE`` where it may have taken
    effect. Such a row saw the broker's process gone before ``asked``. That is when the ack was
    invoked; in a transaction, when the end of the transaction was invoked.

    The broker at the other end of the connection is the one that an answer names: the answer to
    the session's ``subscribe``, to the ``connect`` or to the ``begin``. If there is none, the
    latest delivery of the message in that session names it.
    """
    if not deaths.rows or not len(at):
        return np.full(len(at), NONE, dtype=np.int64)
    run, session, index = rows.run[at], rows.session[at], rows.index[at]
    told = Answers.of(deaths.sessions, run, session, index)
    told = told.with_(Answers.of(deaths.connections, run, rows.connection[at], index))
    told = told.with_(Answers.of(deaths.transactions, run, rows.transaction[at], index))
    given = given_before(rows, at)
    known = (given >= 0) & (rows.broker.codes[given] >= 0)
    nothing = np.full(len(at), NONE, dtype=np.int64)
    delivery = (rows.index[given], rows.time[given], deaths.numbered(rows.broker, given))
    told = told.beside(Answers(*(np.where(known, some, nothing) for some in delivery)))
    dead = deaths.gone_since(run, session, rows.connection[at], told)
    return np.where(dead < asked, dead, NONE)


def given_before(rows: Rows, at: Numbers) -> Numbers:
    """Return the position of the latest delivery of each row's message in the row's session.

    Only deliveries before the row count; -1 where there is none.
    """
    delivers = rows.of(DELIVER)
    delivers = delivers[marked(rows.id[at], rows.messages)[rows.id[delivers]]]
    both = np.concatenate([delivers, at])
    when = np.concatenate([rows.index[delivers], rows.index[at]])
    order = ordered(rows.id[both], rows.session[both], when)
    giving = np.where(order < len(delivers), both[order], NONE)
    result = np.empty(len(both), dtype=np.int64)
    result[order] = highest_before(segments(rows.id[both[order]], rows.session[both[order]]), giving)
    result = result[len(delivers) :]
    return np.where((result == NONE) | (rows.session[at] == NONE), -1, result)
