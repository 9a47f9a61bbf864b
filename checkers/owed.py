"""Which messages are owed at the end, and in nobody's hands: what a loss is made of.

A message is owed from its certain send until an ack of it happened or may have. Most messages have
one ack that was asked alone and did not fail; only those that have not are looked at row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checkers.ends import Ends
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
    PlaceTable,
    Rows,
    counted,
    marked,
    ordered,
)
from checkers.running import lowest_after, segments
from checkers.verdict import Promises


@dataclass(frozen=True, slots=True)
class OwedMessages:
    """``missing``: owed, and every delivery of it was given back.

    ``dead``: refused, or given back, so often that the broker may have given it up.
    """

    missing: Flags
    dead: Flags


def owed(
    rows: Rows, ends: Ends, places: PlaceTable, sent: Numbers, certain: Flags, promises: Promises
) -> OwedMessages:
    """Of each message; ``sent`` is its first send, and ``certain`` are those whose send is."""
    missing = certain & ~_released(rows, ends, promises)
    dead = np.zeros(rows.messages, dtype=bool)
    if missing.any():
        missing &= ~_held(rows, ends, missing, promises)
    if missing.any():
        dead = _may_be_dead(rows, ends, places, sent, missing, promises)
    return OwedMessages(missing, dead)


def _released(rows: Rows, ends: Ends, promises: Promises) -> Flags:
    """Acks asked (and, in transactions, perhaps committed) outnumber failed, or one was ``ok``."""
    size = rows.messages
    consuming = promises.nack == "consume"

    def ids(ack: int, nack: int) -> npt.NDArray[np.int32]:
        at = rows.of(ack, nack) if consuming else rows.of(ack)
        if not rows.transaction.absent:
            at = at[(rows.transaction[at] == NONE) | _may_be_committed(rows, ends, at)]
        return rows.id[at]

    asked = counted(ids(ACK_INVOKE, NACK_INVOKE), size)
    failed = counted(ids(ACK_FAIL, NACK_FAIL), size)
    return (asked > failed) | marked(ids(ACK_OK, NACK_OK), size)


def _may_be_committed(rows: Rows, ends: Ends, at: Numbers) -> Flags:
    run, transaction = rows.run[at], rows.transaction[at]
    asked, ok, refused = (
        ends.transactions.find(name, run, transaction) for name in ("asked", "commit", "refused")
    )
    result: Flags = ((asked != NONE) | (ok != NONE)) & (refused == NONE)
    return result


def _held(rows: Rows, ends: Ends, of: Flags, promises: Promises) -> Flags:
    """Messages of which some delivery was not certainly given back."""
    at = rows.of(DELIVER)
    at = at[of[rows.id[at]]]
    session = rows.session[at]
    nobody = session == NONE
    over = ends.sessions.find("over", rows.run[at], session) != NONE
    held = marked(rows.id[at[nobody]], rows.messages)
    open_ = np.zeros(rows.messages, dtype=bool)
    open_[rows.id[at[~nobody & ~over]]] = True
    if not open_.any():
        return held
    at = rows.of(DELIVER, ACK_INVOKE, ACK_FAIL, NACK_INVOKE, NACK_OK)
    at = at[open_[rows.id[at]] & (rows.session[at] != NONE)]
    order = at[ordered(rows.id[at], rows.session[at], rows.index[at])]
    kind, index, transaction, run = (
        rows.kind[order],
        rows.index[order],
        rows.transaction[order],
        rows.run[order],
    )
    alone = transaction == NONE
    one = segments(rows.id[order], rows.session[order])
    back = _answered_later(one, index, alone & (kind == ACK_INVOKE), alone & (kind == ACK_FAIL))
    undone = ends.transactions.find("abort", run, transaction) != NONE
    undone |= ends.transactions.find("refused", run, transaction) != NONE
    asked = (kind == ACK_INVOKE) | (kind == NACK_INVOKE)
    if promises.nack != "consume":
        back |= _answered_later(one, index, alone & (kind == NACK_INVOKE), alone & (kind == NACK_OK))
        undone |= (kind == NACK_INVOKE) & (ends.transactions.find("commit", run, transaction) != NONE)
    back |= lowest_after(one, np.where(asked & ~alone & undone, index, NONE)) != NONE
    back |= ends.sessions.find("over", run, rows.session[order]) != NONE
    held[rows.id[order[(kind == DELIVER) & ~back]]] = True
    return held


def _answered_later(one: Numbers, index: Numbers, asked: Flags, answered: Flags) -> Flags:
    """Rows after which something was asked in their segment, and answered after that."""
    last = np.full(int(one[-1]) + 1 if len(one) else 0, NONE, dtype=np.int64)
    np.maximum.at(last, one[answered], index[answered])
    next_asked = lowest_after(one, np.where(asked, index, NONE))
    result: Flags = (next_asked != NONE) & (next_asked < last[one])
    return result


def _may_be_dead(
    rows: Rows, ends: Ends, places: PlaceTable, sent: Numbers, of: Flags, promises: Promises
) -> Flags:
    """Refused often enough: nacks, and acks whose roll-back was asked for.

    Where all that is given back counts, also by the end of each session that may have held it.
    """
    nacks, acks = rows.of(NACK_INVOKE), rows.of(ACK_INVOKE)
    nacks, acks = nacks[of[rows.id[nacks]]], acks[of[rows.id[acks]]]
    acks = acks[ends.transactions.find("back", rows.run[acks], rows.transaction[acks]) != NONE]
    refused = counted(rows.id[nacks], rows.messages)
    dead = (refused > 0) & (promises.nack == "dead-letter")
    attempts = refused + counted(rows.id[acks], rows.messages)
    if promises.attempts == "given back":
        place = rows.place[rows.first_row]
        for code in np.unique(place[of]):
            run, queue, _ = places.named[code]
            here = of & (place == code)
            attempts[here] += ends.held(run, queue, sent[here])
    result: Flags = dead | ((promises.delivery_attempts >= 0) & (attempts >= promises.delivery_attempts))
    return result
