"""The messages that are owed at the end of a test and that no session holds.

A message is owed from its certain send until an ack of it happened or may have happened. Most
messages have an ack that was answered ``ok``; only the others are examined row by row.

An ack of unknown outcome leaves a message in doubt. If a store still has the message, that may be
wrong whatever the outcome of the ack (``OwedMessages.idle``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checkers.acknowledgements import Operations, acks, gone_before, nacks
from checkers.deaths import Deaths
from checkers.ends import Ends
from checkers.links import UnderWay
from checkers.rows import (
    ACK_OK,
    DELIVER,
    FOREVER,
    NACK_OK,
    NONE,
    Flags,
    Numbers,
    PlaceTable,
    Rows,
    counted,
    joined,
    marked,
    ordered,
)
from checkers.running import lowest_after, segments, starts
from checkers.timeouts import Lapses, waiting_ns
from checkers.verdict import Promises


@dataclass(frozen=True, slots=True, kw_only=True)
class Custody:
    """The facts that tell which sessions hold a message at the end.

    ``drained_from`` has the row with which the drain of each run began, ``drained_ns`` the time of
    that row, ``last_ns`` the time of the run's last row. ``lapsed`` has the deliveries that the
    broker may have taken back.
    """

    ends: Ends
    deaths: Deaths
    promises: Promises
    drained_from: Mapping[int, int]
    drained_ns: Mapping[int, int]
    last_ns: Mapping[int, int]
    lapsed: Lapses


@dataclass(frozen=True, slots=True)
class OwedMessages:
    """The messages that are owed, or may be, as flags of each message.

    ``unsettled``: the send is certain and no ack is. ``missing``: the message is owed, and every
    delivery of it was given back. ``doubtful``: a store has the message and every delivery of it
    was given back, but an ack of unknown outcome may have settled it. ``idle``: the message is
    doubtful, and when the drain began no session held it and no ack of it could be under way.
    ``dead``: the message was refused, or given back, so often that it may be a dead letter.

    ``late`` has the operations that were invoked after their broker process had been seen gone; an
    answer in a later row would refute that.
    """

    unsettled: Flags
    missing: Flags
    doubtful: Flags
    idle: Flags
    dead: Flags
    late: UnderWay


def owed(
    rows: Rows, custody: Custody, places: PlaceTable, sent: Numbers, certain: Flags, stored: Flags
) -> OwedMessages:
    """Return which messages are owed.

    ``sent`` is the first send of each message, ``certain`` says whether its send is certain,
    ``stored`` whether it is in a store. Doubts are examined only of stored messages.
    """
    settled, pending, late = _released(rows, custody, certain)
    unsettled = certain & ~settled
    doubtful = marked(rows.id[pending.at], rows.messages)
    missing = unsettled & ~doubtful
    doubtful &= stored
    dead = idle = np.zeros(rows.messages, dtype=bool)
    if (missing | doubtful).any():
        held = _messages_in_hand(rows, custody, places, missing | doubtful)
        missing, doubtful = missing & ~held, doubtful & ~held
    looked_at = missing | (unsettled & stored)
    if looked_at.any():
        dead, late_too = _may_be_dead(rows, custody, places, sent, looked_at)
        late = joined([late, late_too])
    if doubtful.any():
        idle = doubtful & ~_busy(rows, custody, doubtful, pending.at)
    return OwedMessages(unsettled, missing, doubtful, idle, dead, late)


def died_untaken(
    place: npt.NDArray[np.int32], sent: Numbers, of: Flags, places: PlaceTable, ends: Ends, promises: Promises
) -> Flags:
    """Return which messages may be dead letters without having been read.

    Sessions that ended may have been sent them. ``of`` are the messages in question.
    """
    if promises.delivery_attempts < 0:
        return np.zeros(len(place), dtype=bool)
    if promises.attempts != "given back":
        return of & (promises.delivery_attempts == 0)
    result = np.zeros(len(place), dtype=bool)
    for code in np.unique(place[of]):
        run, queue, _ = places.named[code]
        here = of & (place == code)
        result[here] = ends.held(run, queue, sent[here]) >= promises.delivery_attempts
    return result


def died_unread(
    place: npt.NDArray[np.int32],
    sent: Numbers,
    unread: Numbers,
    places: PlaceTable,
    ends: Ends,
    promises: Promises,
) -> Flags:
    """Return which messages may have died before their first delivery was read.

    ``unread`` is how often time-outs may have taken each back by then, ``NONE`` for a message that
    cannot have died (``checkers.lifecycle``).
    """
    result = np.zeros(len(place), dtype=bool)
    of = unread != NONE
    for code in np.unique(place[of]):
        run, queue, _ = places.named[code]
        here = place == code
        result[here] = ends.held(run, queue, sent[here]) + unread[here] >= promises.delivery_attempts
    return result


def _released(rows: Rows, custody: Custody, certain: Flags) -> tuple[Flags, Operations, UnderWay]:
    """Return the messages that were certainly settled, and the acks that may have settled others.

    An ack is certain when it was answered ``ok`` and, in a transaction, its commit was. The third
    result has the acks that were invoked after their broker process had been seen gone.
    """
    ends, deaths = custody.ends, custody.deaths
    consuming = custody.promises.nack == "consume"
    oks = rows.of(ACK_OK, NACK_OK) if consuming else rows.of(ACK_OK)
    oks = oks[~custody.lapsed.are_late(oks)]
    if not rows.transaction.absent:
        run, transaction = rows.run[oks], rows.transaction[oks]
        commit, refused = (ends.transactions.find(name, run, transaction) for name in ("commit", "refused"))
        oks = oks[(transaction == NONE) | ((commit != NONE) & (refused == NONE))]
    settled = marked(rows.id[oks], rows.messages)
    open_ = certain & ~settled
    asked = acks(rows, open_)
    if consuming:
        asked = asked.with_(nacks(rows, open_))
    asked = asked.some(~asked.failed)
    run, transaction = rows.run[asked.at], rows.transaction[asked.at]
    commit, ok, void = (
        ends.transactions.find(name, run, transaction) for name in ("asked", "commit", "void")
    )
    possible = (transaction == NONE) | (((commit != NONE) | (ok != NONE)) & (void == NONE))
    asked, commit, ok = asked.some(possible), commit[possible], ok[possible]
    run, transaction = run[possible], transaction[possible]
    session, connection = rows.session[asked.at], rows.connection[asked.at]
    dead = deaths.gone_before_commit(ends, run, transaction, session, connection)
    question = rows.index[asked.at]
    question = np.where(ok == NONE, np.maximum(question, commit), question)
    answered = (asked.answer >= 0) & ((transaction == NONE) | (ok != NONE))
    alone = ~answered & (dead == NONE)
    dead[alone] = gone_before(rows, deaths, asked.at[alone], question[alone])
    return settled, asked.some(dead == NONE), _too_late(rows, asked.at, dead)


def _too_late(rows: Rows, at: Numbers, dead: Numbers) -> UnderWay:
    """Return the operations that were invoked too late, with the row that saw their process gone.

    After that row nothing may have been answered to the client that invoked them.
    """
    late = np.flatnonzero(dead != NONE)
    at = at[late]
    forever = np.full(len(at), FOREVER, dtype=np.int64)
    numbers = rows.run[at], rows.session[at], rows.connection[at], rows.transaction[at]
    return UnderWay(*numbers, dead[late], forever)


def _busy(rows: Rows, custody: Custody, of: Flags, acked: Numbers) -> Flags:
    """Return the messages with a session that lasted into the drain and had got or acked them.

    ``acked`` are the positions of acks. A transaction may outlast its session's subscription, but
    not its connection.
    """
    delivers = rows.of(DELIVER)
    at = np.concatenate([delivers[of[rows.id[delivers]]], acked[of[rows.id[acked]]]])
    run, session = rows.run[at], rows.session[at]
    over, lost = (custody.ends.sessions.find(name, run, session) for name in ("over", "lost"))
    end = np.where(rows.transaction[at] == NONE, over, lost)
    drain = np.zeros(len(at), dtype=np.int64)
    for one in np.unique(run).tolist():
        drain[run == one] = custody.drained_from.get(one, NONE)
    busy = (end == NONE) | (end >= drain)
    return marked(rows.id[at[busy]], rows.messages)


def _messages_in_hand(rows: Rows, custody: Custody, places: PlaceTable, of: Flags) -> Flags:
    """Return the messages with a delivery that a session may still hold.

    The delivery was not certainly given back. Nor did the broker certainly take it back before the
    drain began, because its acknowledgement was late. The end of a session of a temporary queue
    gives nothing back, because the queue ends, too.
    """
    ends, promises = custody.ends, custody.promises
    delivers, acking, refusing = rows.of(DELIVER), acks(rows, of), nacks(rows, of)
    delivers = delivers[of[rows.id[delivers]]]
    at = np.concatenate([delivers, acking.at, refusing.at])
    nothing = np.zeros(len(delivers), dtype=bool)
    consuming = promises.nack == "consume"
    undoing = np.concatenate([nothing, acking.failed, (refusing.answer >= 0) & (not consuming)])
    order = ordered(rows.id[at], rows.session[at], rows.index[at])
    at, undoing = at[order], undoing[order]
    index, run, session, transaction = rows.index[at], rows.run[at], rows.session[at], rows.transaction[at]
    abort, refused, commit = (
        ends.transactions.find(name, run, transaction) for name in ("abort", "refused", "commit")
    )
    undone = (abort != NONE) | (refused != NONE)
    if not consuming:
        undone |= (order >= len(delivers) + len(acking.at)) & (commit != NONE)
    giving = np.where(transaction == NONE, undoing, undone)
    back = lowest_after(segments(rows.id[at], session), np.where(giving, index, NONE)) != NONE
    back |= ~places.temporaries()[rows.place[at]] & (ends.sessions.find("over", run, session) != NONE)
    back |= custody.lapsed.certain_of(at)
    wait = waiting_ns(promises)
    if wait is not None:
        back |= rows.time[at] + wait <= _moments(custody.drained_ns, run)
    held = at[(order < len(delivers)) & ~(back & (session != NONE))]
    return marked(rows.id[held], rows.messages)


def _moments(known: Mapping[int, int], run: Numbers) -> Numbers:
    """Return the known time (ns) of the run of each row; ``NONE`` if it has none."""
    result = np.full(len(run), NONE, dtype=np.int64)
    for one in np.unique(run).tolist():
        result[run == one] = known.get(one, NONE)
    return result


def _may_be_dead(
    rows: Rows, custody: Custody, places: PlaceTable, sent: Numbers, of: Flags
) -> tuple[Flags, UnderWay]:
    """Return the messages that may have been refused often enough to be dead letters.

    A refusal may have happened by a nack that was not answered ``fail``. It may also have happened
    by an ack that did not fail, in a transaction whose abort was not answered ``fail`` or whose
    commit failed. Where whatever is given back counts, each session that may have held the message
    counts: its broker may have ended a session that its client did not end. The second result has
    the refusals that were invoked too late for their process.
    """
    promises, transactions = custody.promises, custody.ends.transactions
    refusing, asked = nacks(rows, of), acks(rows, of)
    nacked, acked = refusing.at[~refusing.failed], asked.at[~asked.failed]
    late = gone_before(rows, custody.deaths, nacked, rows.index[nacked])
    too_late = [_too_late(rows, nacked, late)]
    nacked = nacked[late == NONE]
    run, transaction = rows.run[acked], rows.transaction[acked]
    back, kept, failed, answered = (
        transactions.find(name, run, transaction) for name in ("back", "kept", "refused", "abort")
    )
    undone = ((back != NONE) & (kept == NONE)) | (answered != NONE) | (failed != NONE)
    doubtful = (failed == NONE) & (answered == NONE)  # an end that was answered reached a broker
    acked, back = acked[undone], np.where(doubtful, back, NONE)[undone]
    late = gone_before(rows, custody.deaths, acked, np.maximum(back, rows.index[acked]))
    too_late.append(_too_late(rows, acked, late))
    acked = acked[late == NONE]
    refused = counted(rows.id[nacked], rows.messages)
    dead = (refused > 0) & (promises.nack == "dead-letter")
    attempts = refused + counted(rows.id[acked], rows.messages)
    if promises.attempts == "given back":
        attempts = attempts + _open_deliveries(rows, custody, of)
        at = rows.of(DELIVER)
        at = at[of[rows.id[at]]]
        at = at[custody.lapsed.lapse_of(at) <= _moments(custody.last_ns, rows.run[at])]
        attempts += counted(rows.id[at], rows.messages)
        place = rows.place[rows.first_row]
        for code in np.unique(place[of]):
            whose, queue, _ = places.named[code]
            here = of & (place == code)
            attempts[here] += custody.ends.held(whose, queue, sent[here])
    dead |= (promises.delivery_attempts >= 0) & (attempts >= promises.delivery_attempts)
    return dead, joined(too_late)


def _open_deliveries(rows: Rows, custody: Custody, of: Flags) -> Numbers:
    """Return how many sessions that have not ended had each message.

    Each delivery without a session counts as a session of its own.
    """
    at = rows.of(DELIVER)
    at = at[of[rows.id[at]]]
    session = rows.session[at]
    open_ = custody.ends.sessions.find("ended", rows.run[at], session) == NONE
    nameless = counted(rows.id[at[session == NONE]], rows.messages)
    at = at[open_ & (session != NONE)]
    order = at[ordered(rows.id[at], rows.session[at])]
    first_of = order[starts(segments(rows.id[order], rows.session[order]))]
    result: Numbers = nameless + counted(rows.id[first_of], rows.messages)
    return result
