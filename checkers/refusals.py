"""Refusals that certainly happened, and deliveries of messages that had been refused too often.

A refusal is a nack that was answered ``ok`` (in a transaction: and its commit was). Where the
broker delivers refused messages again, it is also an ack whose transaction was rolled back with
``ok``. Counts need not outlive the broker's process, unless that is promised.

A refusal took effect between its invocation and its answer; no row tells when. But its session held
the message since a delivery that had been read before the invocation. A delivery that was read
after the invocation was sent after the refusal, or before that first delivery to a session that was
lost since. So a redelivery counts that was read before the answer, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from checkers.acknowledgements import acks, given_before, nacks
from checkers.deaths import Deaths
from checkers.ends import Ends
from checkers.rows import (
    NONE,
    TIMEOUT,
    Flags,
    Numbers,
    Rows,
    counted,
    joined,
    marked,
)
from checkers.verdict import Promises


@dataclass(frozen=True, slots=True)
class Refusals:
    """The certain refusals, a row each.

    ``id`` is the message; ``asking`` the position of the invocation of the nack, or of the ack that
    was rolled back. ``held`` is the index of the delivery that was refused (``NONE`` if no row has
    it). ``asked`` and ``answered`` are the indexes of invocation and answer, in a transaction those
    of its end. ``by`` is the broker that answered, None if no row names it. ``nack``: the refusal
    is a nack.
    """

    id: Numbers
    asking: Numbers
    held: Numbers
    asked: Numbers
    answered: Numbers
    by: npt.NDArray[np.object_]
    nack: Flags

    def some(self, flags: Flags) -> Refusals:
        """Return the refusals that are flagged."""
        return Refusals(*(getattr(self, name)[flags] for name in Refusals.__slots__))

    def by_message(self, messages: Sequence[int]) -> dict[int, list[int]]:
        """Return the positions of the refusals of some messages, sorted by ``asked``."""
        order = np.lexsort((self.asked, self.id))
        ids = self.id[order]
        ends = (np.searchsorted(ids, (message, message + 1)) for message in messages)
        return {
            message: order[begin:end].tolist() for message, (begin, end) in zip(messages, ends, strict=True)
        }


def certain(rows: Rows, ends: Ends, flagged: Flags) -> Refusals:
    """Return the certain refusals of some messages."""
    refusals = _nacked(rows, ends, flagged)
    if not rows.transaction.absent:
        refusals = joined([refusals, _rolled_back(rows, ends, flagged)])
    deliveries = given_before(rows, refusals.asking)
    return replace(refusals, held=np.where(deliveries < 0, NONE, rows.index[deliveries]))


def _nacked(rows: Rows, ends: Ends, flagged: Flags) -> Refusals:
    """Return the certain nacks of some messages, without the deliveries that they refused."""
    nacked = nacks(rows, flagged)
    nacked = nacked.some((nacked.answer >= 0) & (rows.session[nacked.at] != NONE))
    transaction, run = rows.transaction[nacked.at], rows.run[nacked.at]
    is_single = transaction == NONE
    commit, asking = (ends.transactions.find(name, run, transaction) for name in ("commit", "asked"))
    question, answered = rows.index[nacked.at], rows.index[nacked.answer]
    names = np.array([*rows.broker.values, None], dtype=object)
    return Refusals(
        rows.id[nacked.at].astype(np.int64), nacked.at, np.full(len(nacked.at), NONE),
        np.where(is_single, question, np.maximum(question, asking)),
        np.where(is_single, answered, commit),
        np.where(
            is_single, names[rows.broker.codes[nacked.answer]],
            ends.brokers_of("committed_by", run, transaction),
        ),
        np.ones(len(nacked.at), dtype=bool),
    ).some(is_single | (commit > answered))  # fmt: skip


def _rolled_back(rows: Rows, ends: Ends, flagged: Flags) -> Refusals:
    """Return the acks that were certainly rolled back, without the deliveries that they were of."""
    acked = acks(rows, flagged)
    inside = (rows.transaction[acked.at] != NONE) & (rows.session[acked.at] != NONE)
    acked = acked.some(inside & (acked.answer >= 0))
    run, transaction = rows.run[acked.at], rows.transaction[acked.at]
    abort, abort_asked = (ends.transactions.find(name, run, transaction) for name in ("abort", "back"))
    return Refusals(
        rows.id[acked.at].astype(np.int64), acked.at, np.full(len(acked.at), NONE),
        np.where(abort_asked == NONE, abort, abort_asked), abort,
        ends.brokers_of("aborted_by", run, transaction),
        np.zeros(len(acked.at), dtype=bool),
    ).some(abort > rows.index[acked.answer])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Redeliveries:
    """The deliveries at some positions (``at``), and when each was sent.

    ``possible``: the row after which the delivery was certainly sent; ``alive``: the row up to
    which its session was certainly alive; ``excusable``: its session was lost or left, so that the
    delivery may have been under way for long.
    """

    at: Numbers
    possible: Numbers
    alive: Numbers
    excusable: Flags


def deadly(
    rows: Rows, promises: Promises, deaths: Deaths, refusals: Refusals, deliveries: Redeliveries
) -> Flags:
    """Return which deliveries were sent when their message had been refused too often.

    A delivery is refused only once, however often a refusal of it was answered.
    """
    result = np.zeros(len(deliveries.at), dtype=bool)
    most = max(promises.dies_after, 1)
    if promises.dies_after < 0 or not promises.durable_acks:
        return result
    if promises.nack != "requeue":
        refusals = refusals.some(refusals.nack)
    often = np.flatnonzero(counted(refusals.id, rows.messages) >= most)
    by_id = refusals.by_message(often.tolist())
    fatal = np.full(rows.messages, NONE, dtype=np.int64)
    fatal[often] = [refusals.asked[positions[most - 1]] for positions in by_id.values()]
    ids, index, session = (position[deliveries.at] for position in (rows.id, rows.index, rows.session))
    late = np.flatnonzero((fatal[ids] != NONE) & (index > fatal[ids]))
    same_session: dict[tuple[int, int], list[int]] = {}
    for n in np.flatnonzero(np.isin(ids, ids[late])).tolist():
        same_session.setdefault((int(ids[n]), int(session[n])), []).append(n)
    timed = marked(rows.id[rows.of(TIMEOUT)], rows.messages)
    untimed = promises.single and promises.refuses_stale_acks and promises.ack_wait_s is None
    for n in late.tolist():
        one_holder = untimed and not timed[ids[n]]
        at = int(deliveries.at[n])
        up_to_it = [
            position for position in same_session[int(ids[n]), int(session[n])] if index[position] <= index[n]
        ]
        before = {
            int(refusals.asked[position] if refusals.held[position] == NONE else refusals.held[position])
            for position in by_id[int(ids[n])]
            if refusals.asked[position] < index[n]
            and _came_before(rows, refusals, position, deliveries, n, up_to_it, one_holder=one_holder)
            and _certainly_knew(rows, promises, deaths, refusals, position, at)
        }
        result[n] = len(before) >= most
    return result


def _came_before(
    rows: Rows,
    refusals: Refusals,
    refusal: int,
    deliveries: Redeliveries,
    delivery: int,
    up_to_it: Sequence[int],
    *,
    one_holder: bool,
) -> bool:
    """Return whether a refusal took effect before a delivery was sent.

    The delivery was read after the invocation of the refusal. ``up_to_it`` are the deliveries of
    its session up to it. ``one_holder``: only the session that holds a message can give it back.
    """

    def after(position: int, row: int) -> bool:
        certainly_until = max(deliveries.possible[position], deliveries.alive[position])
        return bool(not deliveries.excusable[position] or certainly_until >= row)

    index = rows.index[deliveries.at]
    held_row = int(refusals.held[refusal])
    if one_holder and held_row != NONE:
        is_same_session = rows.session[refusals.asking[[refusal]]] == rows.session[deliveries.at[[delivery]]]
        return any(
            index[position] > held_row and (bool(is_same_session[0]) or after(position, held_row))
            for position in up_to_it
        )
    answered = int(refusals.answered[refusal])
    return bool(answered < index[delivery]) and after(delivery, answered)


def _certainly_knew(
    rows: Rows, promises: Promises, deaths: Deaths, refusals: Refusals, refusal: int, delivery: int
) -> bool:
    """Return whether the broker that sent a delivery certainly knew of a refusal."""
    run = int(rows.run[delivery])
    by, broker = refusals.by[refusal], rows.broker.at(delivery)
    if promises.durable_counts:
        return by == broker or (by is not None and broker is not None and deaths.of_one_node(run, by, broker))
    asking = refusals.asking[[refusal]]
    if refusals.held[refusal] != NONE and rows.session[asking] == rows.session[np.array([delivery])]:
        return True
    since = int(refusals.asked[refusal])
    return by == broker and deaths.one_process(
        run, by, since, int(rows.index[delivery]), int(rows.time[delivery])
    )
