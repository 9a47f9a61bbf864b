"""Refusals that certainly happened, and deliveries of what was refused too often by then.

A refusal is a nack that was answered ``ok`` (in a transaction: and its commit was), or, where the
broker gives refused messages again, an ack whose transaction was rolled back with ``ok``. Counts
need not outlive the broker's process, unless that is promised.

When a refusal took effect nobody knows: between its question and its answer. But its session held
the message from a delivery on that had been read before the question. Whatever was read after the
question was sent before that delivery, to a session that was lost since, or after the refusal. So a
redelivery counts that was read before the answer, too.
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
    """One row a certain refusal.

    ``id`` is its message; ``asking`` the position of its question, of an ack that was rolled back
    that of the ack's. ``held`` is the delivery that it answers (``NONE``: no row has it);
    ``asked`` and ``answered`` are indexes, too, in a transaction those of its end; ``by`` is the
    broker that answered, None if no row names it. ``nack``: it is a nack.
    """

    id: Numbers
    asking: Numbers
    held: Numbers
    asked: Numbers
    answered: Numbers
    by: npt.NDArray[np.object_]
    nack: Flags

    def some(self, which: Flags) -> Refusals:
        """Some of them."""
        return Refusals(*(getattr(self, name)[which] for name in Refusals.__slots__))

    def by_message(self, messages: Sequence[int]) -> dict[int, list[int]]:
        """The rows of some messages, in order of what was asked first."""
        order = np.lexsort((self.asked, self.id))
        ids = self.id[order]
        ends = (np.searchsorted(ids, (one, one + 1)) for one in messages)
        return {one: order[begin:end].tolist() for one, (begin, end) in zip(messages, ends, strict=True)}


def certain(rows: Rows, ends: Ends, of: Flags) -> Refusals:
    """The certain refusals of some messages."""
    found = _nacked(rows, ends, of)
    if not rows.transaction.absent:
        found = joined([found, _rolled_back(rows, ends, of)])
    given = given_before(rows, found.asking)
    return replace(found, held=np.where(given < 0, NONE, rows.index[given]))


def _nacked(rows: Rows, ends: Ends, of: Flags) -> Refusals:
    """Return nacks, without what they answer."""
    some = nacks(rows, of)
    some = some.some((some.answer >= 0) & (rows.session[some.at] != NONE))
    transaction, run = rows.transaction[some.at], rows.run[some.at]
    alone = transaction == NONE
    commit, asking = (ends.transactions.find(name, run, transaction) for name in ("commit", "asked"))
    question, answered = rows.index[some.at], rows.index[some.answer]
    names = np.array([*rows.broker.values, None], dtype=object)
    return Refusals(
        rows.id[some.at].astype(np.int64), some.at, np.full(len(some.at), NONE),
        np.where(alone, question, np.maximum(question, asking)),
        np.where(alone, answered, commit),
        np.where(
            alone, names[rows.broker.codes[some.answer]], ends.brokers_of("committed_by", run, transaction)
        ),
        np.ones(len(some.at), dtype=bool),
    ).some(alone | (commit > answered))  # fmt: skip


def _rolled_back(rows: Rows, ends: Ends, of: Flags) -> Refusals:
    """Return acks that were rolled back, without what they answer."""
    some = acks(rows, of)
    inside = (rows.transaction[some.at] != NONE) & (rows.session[some.at] != NONE)
    some = some.some(inside & (some.answer >= 0))
    run, transaction = rows.run[some.at], rows.transaction[some.at]
    abort, asked = (ends.transactions.find(name, run, transaction) for name in ("abort", "back"))
    return Refusals(
        rows.id[some.at].astype(np.int64), some.at, np.full(len(some.at), NONE),
        np.where(asked == NONE, abort, asked), abort, ends.brokers_of("aborted_by", run, transaction),
        np.zeros(len(some.at), dtype=bool),
    ).some(abort > rows.index[some.answer])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Redeliveries:
    """What is known of deliveries, by position: when they were sent, and to whom.

    ``possible``: the row after which it was certainly sent; ``alive``: up to which its session
    certainly lived; ``excusable``: its session was lost or left, so that it may have been under way
    for long.
    """

    at: Numbers
    possible: Numbers
    alive: Numbers
    excusable: Flags


def deadly(
    rows: Rows, promises: Promises, deaths: Deaths, refusals: Refusals, deliveries: Redeliveries
) -> Flags:
    """Which deliveries were sent when their message had been refused too often.

    A delivery is refused once, however often that was answered.
    """
    result = np.zeros(len(deliveries.at), dtype=bool)
    most = max(promises.dies_after, 1)
    if promises.dies_after < 0 or not promises.durable_acks:
        return result
    if promises.nack != "requeue":
        refusals = refusals.some(refusals.nack)
    often = np.flatnonzero(counted(refusals.id, rows.messages) >= most)
    mine = refusals.by_message(often.tolist())
    fatal = np.full(rows.messages, NONE, dtype=np.int64)
    fatal[often] = [refusals.asked[some[most - 1]] for some in mine.values()]
    ids, index, session = (one[deliveries.at] for one in (rows.id, rows.index, rows.session))
    late = np.flatnonzero((fatal[ids] != NONE) & (index > fatal[ids]))
    beside: dict[tuple[int, int], list[int]] = {}
    for n in np.flatnonzero(np.isin(ids, ids[late])).tolist():
        beside.setdefault((int(ids[n]), int(session[n])), []).append(n)
    timed = marked(rows.id[rows.of(TIMEOUT)], rows.messages)
    untimed = promises.single and promises.refuses_stale_acks and promises.ack_wait_s is None
    for n in late.tolist():
        one_holder = untimed and not timed[ids[n]]
        at = int(deliveries.at[n])
        here = [one for one in beside[int(ids[n]), int(session[n])] if index[one] <= index[n]]
        before = {
            int(refusals.asked[one] if refusals.held[one] == NONE else refusals.held[one])
            for one in mine[int(ids[n])]
            if refusals.asked[one] < index[n]
            and _came_before(rows, refusals, one, deliveries, n, here, one_holder=one_holder)
            and _known(rows, promises, deaths, refusals, one, at)
        }
        result[n] = len(before) >= most
    return result


def _came_before(
    rows: Rows,
    refusals: Refusals,
    refusal: int,
    deliveries: Redeliveries,
    delivery: int,
    here: Sequence[int],
    *,
    one_holder: bool,
) -> bool:
    """Whether a refusal took effect before a delivery was sent that was read after its question.

    ``here`` are the deliveries in that session up to it. ``one_holder``: nobody but its holder can
    give a message back.
    """

    def after(one: int, row: int) -> bool:
        known = max(deliveries.possible[one], deliveries.alive[one])
        return bool(not deliveries.excusable[one] or known >= row)

    index = rows.index[deliveries.at]
    held = int(refusals.held[refusal])
    if one_holder and held != NONE:
        mine = rows.session[refusals.asking[[refusal]]] == rows.session[deliveries.at[[delivery]]]
        return any(index[one] > held and (bool(mine[0]) or after(one, held)) for one in here)
    answered = int(refusals.answered[refusal])
    return bool(answered < index[delivery]) and after(delivery, answered)


def _known(
    rows: Rows, promises: Promises, deaths: Deaths, refusals: Refusals, refusal: int, delivery: int
) -> bool:
    """Whether the broker that made a delivery still knows of a refusal."""
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
