"""Acknowledgements and refusals as operations: each question with its answer."""

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
    """Acks or nacks, one row each.

    ``at`` is the position of the question; ``answer`` that of an ``ok`` (-1: none); ``failed``: the
    answer was ``fail``.
    """

    at: Numbers
    answer: Numbers
    failed: Flags

    def some(self, which: Flags) -> Operations:
        """Some of them."""
        return Operations(self.at[which], self.answer[which], self.failed[which])

    def with_(self, others: Operations) -> Operations:
        """These and others."""
        return joined([self, others])


def acks(rows: Rows, of: Flags) -> Operations:
    """The acks of some messages."""
    return _operations(rows, of, _ACKS)


def nacks(rows: Rows, of: Flags) -> Operations:
    """The nacks of some messages."""
    return _operations(rows, of, _NACKS)


def _operations(rows: Rows, of: Flags, kinds: tuple[int, int, int]) -> Operations:
    """By the process that asked: it has one operation at a time.

    What was answered ``ok`` was asked, whether or not a row says so.
    """
    asking, ok, fail = kinds
    at = rows.of(*kinds)
    at = at[of[rows.id[at]]]
    at = at[ordered(rows.id[at], rows.process[at], rows.index[at])]
    kind = rows.kind[at]
    one = segments(rows.id[at], rows.process[at])
    follows = np.zeros(len(at), dtype=bool)
    follows[1:] = (one[1:] == one[:-1]) & (kind[:-1] == asking)
    answered = np.append(follows[1:], False) & (kind == asking)
    following = np.append(at[1:], -1)
    here = np.flatnonzero((kind == asking) | ((kind == ok) & ~follows))
    alone = kind[here] == ok
    answer = np.where(alone, at[here], np.where(answered[here], following[here], -1))
    told = np.where(answer >= 0, rows.kind[answer], 0)
    return Operations(at[here], np.where(told == ok, answer, -1), told == fail)


def gone_before(rows: Rows, deaths: Deaths, at: Numbers, asked: Numbers) -> Numbers:
    """The rows that show that acks and nacks cannot have taken effect; ``NONE``: they may have.

    The process at the other end of their connection had been seen gone before they, or the commit
    that they waited for, were asked for (``asked``). Which broker that was say the answers to the
    session's ``subscribe`` and to the ``connect``, and the latest delivery of the message in that
    session.
    """
    if not deaths.rows or not len(at):
        return np.full(len(at), NONE, dtype=np.int64)
    run, session, index = rows.run[at], rows.session[at], rows.index[at]
    told = Answers.of(deaths.sessions, run, session, index)
    told = told.with_(Answers.of(deaths.connections, run, rows.connection[at], index))
    given = given_before(rows, at)
    known = (given >= 0) & (rows.broker.codes[given] >= 0)
    nothing = np.full(len(at), NONE, dtype=np.int64)
    delivery = (rows.index[given], rows.time[given], deaths.numbered(rows.broker, given))
    told = told.with_(Answers(*(np.where(known, some, nothing) for some in delivery)))
    dead = deaths.first_after(run, told)
    return deaths.unanswered(run, session, rows.connection[at], np.where(dead < asked, dead, NONE))


def given_before(rows: Rows, at: Numbers) -> Numbers:
    """The position of the latest delivery of the message in the session of each row; -1: none."""
    delivers = rows.of(DELIVER)
    delivers = delivers[marked(rows.id[at], rows.messages)[rows.id[delivers]]]
    both = np.concatenate([delivers, at])
    order = ordered(rows.id[both], rows.session[both], rows.index[both])
    giving = np.where(order < len(delivers), both[order], NONE)
    result = np.empty(len(both), dtype=np.int64)
    result[order] = highest_before(segments(rows.id[both[order]], rows.session[both[order]]), giving)
    result = result[len(delivers) :]
    return np.where((result == NONE) | (rows.session[at] == NONE), -1, result)
