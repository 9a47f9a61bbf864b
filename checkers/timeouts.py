"""Messages that a broker takes back because their acknowledgement is late.

SQS calls it a visibility time-out, JetStream AckWait, RabbitMQ ``consumer_timeout``. A broker that
promises it (``Promises.ack_wait_s``) counts from the moment at which it sent a message, and the
client reads the message later. So what was held *lapses* at the earliest moment at which that time
can be over: so long after the earliest moment at which the delivery can have been sent. That was
not before

- the message was sent for the first time, the session was asked for, or the delivery was asked for
  (``time_low``);
- a question was asked that was answered on the same connection before the delivery was read, where
  answers and deliveries come in order;
- another delivery of the message lapsed, which was read before, had not been answered, and whose
  session has no end, where it was not sent so long before that one that it may have lapsed itself.

A row ``timeout`` says that a message was taken back, by some moment before that row: what was held
of it had lapsed, for all that is known, as soon as it was read; unless an answer ``ok`` before that
row had settled it. Who tells of time-outs may know of one before the client has read what was taken
back. So a delivery had lapsed, too, if before it more was given back in its session (time-outs, and
nacks that were answered) than had been delivered there.

A *late* acknowledgement is one that was answered when what it acknowledges had lapsed. Where stale
acknowledgements may be answered ``ok``, such an ``ok`` settles nothing: SQS confirms to delete a
message by an old receipt handle, and deletes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.ends import Ends
from checkers.links import SessionFacts
from checkers.rows import (
    ACK_OK,
    DELIVER,
    NACK_OK,
    NONE,
    SEND_INVOKE,
    TIMEOUT,
    Flags,
    Numbers,
    Rows,
    counted,
    first,
    ordered,
)
from checkers.running import count_before, highest_before, lowest_after, segments
from checkers.verdict import Promises

NEVER: Final = int(np.iinfo(np.int64).max)
"""When (ns) what nobody takes back lapses; what was taken back lapses at ``NONE``, before all."""


_LOOK_BACK: Final = 8
"""How many deliveries of a message before one are asked what they prove about it."""


@dataclass(frozen=True, slots=True)
class Lapses:
    """Of some rows, in order of message, session and index.

    ``lapse``: when (ns) what a delivery gave to its session lapses. ``since``: of a delivery that
    had lapsed when it was read, since when (ns) it can have been sent, ``NEVER`` of others.
    ``over``: the delivery before, of the message in that session, had lapsed when this row was
    recorded. ``crossed``: one of the deliveries before had, so that an answer to it may have been
    taken for one to a later delivery.
    """

    lapse: Numbers
    since: Numbers
    over: Flags
    crossed: Flags

    @classmethod
    def none(cls, size: int) -> Lapses:
        """Nothing lapses."""
        never, no = np.full(size, NEVER, dtype=np.int64), np.zeros(size, dtype=bool)
        return cls(never, never, no, no)


def waiting_ns(promises: Promises) -> int | None:
    """How long (ns) a broker waits for an acknowledgement; None: for ever."""
    return None if promises.ack_wait_s is None else round(promises.ack_wait_s * 1e9)


def earliest_ns(
    rows: Rows, ends: Ends, at: Numbers, known: SessionFacts | None, *, in_order: bool
) -> Numbers:
    """Since when (ns) these deliveries can have been sent; ``NONE``: nothing says so.

    ``in_order``: answers and deliveries come in the order in which the broker gave them.
    """
    sends = rows.of(SEND_INVOKE)
    run, session = rows.run[at], rows.session[at]
    result = first(rows.id[sends], rows.time[sends], rows.messages)[rows.id[at]]
    result = np.maximum(result, ends.sessions.find("begun_ns", run, session))
    result = np.maximum(result, rows.time_low[at])
    if known is not None and in_order:
        asked = known.links.before(run, session, rows.connection[at], rows.index[at])
        result = np.maximum(result, known.links.moments(run, asked))
    return result


def lapses(
    rows: Rows, order: Numbers, release: Numbers, ends: Ends, promises: Promises, known: SessionFacts | None
) -> Lapses:
    """When what was held lapses, of rows in order of message, session and index.

    ``release``: which row answered each delivery in its session, ``NONE``: none did.
    """
    ids, session, index = rows.id[order], rows.session[order], rows.index[order]
    delivering = rows.kind[order] == DELIVER
    one = segments(ids, session)
    taken = lowest_after(one, np.where(rows.kind[order] == TIMEOUT, index, NONE))
    kind = rows.kind[order]
    answer = lowest_after(one, np.where(np.isin(kind, (ACK_OK, NACK_OK)), index, NONE))
    taken_back = (taken != NONE) & ((answer == NONE) | (taken < answer))
    given_back = count_before(one, np.isin(kind, (TIMEOUT, NACK_OK)))
    taken_back |= given_back > count_before(one, delivering)
    taken_back &= delivering & (counted(one[kind == TIMEOUT], len(order)) > 0)[one]
    lapse = np.full(len(order), NEVER, dtype=np.int64)
    since = np.full(len(order), NEVER, dtype=np.int64)
    wait = waiting_ns(promises)
    if wait is not None or taken_back.any():
        here = np.flatnonzero(delivering)
        here = here[ordered(ids[here], index[here])]
        at = order[here]
        since[here] = earliest_ns(rows, ends, at, known, in_order=promises.answers_in_order)
    if wait is not None:
        run = rows.run[at]
        alive = np.full(len(at), NONE) if known is None else known.proven.find("proven", run, session[here])
        ok = lowest_after(one, np.where(kind == ACK_OK, index, NONE))[here]
        end = np.where(ok == NONE, release[here], ok)  # what is acknowledged was not sent before that
        answered = np.searchsorted(rows.index, end, "right") - 1
        holds = _Holds(
            whole=segments(ids[here]), index=index[here], time=rows.time[at],
            held=(ends.sessions.find("ended", run, session[here]) == NONE) & ~taken_back[here],
            release=release[here], release_ns=rows.time[np.maximum(answered, 0)], alive=alive,
        )  # fmt: skip
        since[here] = _not_before(holds, since[here], wait)
        lapse[here] = since[here] + wait
    lapse[taken_back] = NONE
    latest = np.maximum.accumulate(np.where(delivering, np.arange(len(order)), -1)) if len(order) else order
    before = np.concatenate([[-1], latest[:-1]]) if len(order) else latest
    there = (before >= 0) & (one[before] == one)
    over = there & (rows.time[order] >= lapse[before])
    crossed = over | (highest_before(one, np.where(over, index, NONE)) != NONE)
    late_read = delivering & (rows.time[order] >= lapse)
    return Lapses(lapse, np.where(late_read, since, NEVER), over, crossed)


@dataclass(frozen=True, slots=True)
class _Holds:
    """Deliveries in order of message and index, as far as one says when another was sent.

    ``held``: nothing but its answer (``release``, at ``release_ns``) or a time-out can have given
    it back, as far as anybody knows; ``alive``: up to which row the session certainly lived.
    """

    whole: Numbers
    index: Numbers
    time: Numbers
    held: Flags
    release: Numbers
    release_ns: Numbers
    alive: Numbers


def _not_before(holds: _Holds, since: Numbers, wait: int) -> Numbers:
    """Raise ``since`` of each delivery by what those before it prove.

    One that cannot have been sent ``wait`` before another was read was sent after that one had
    lapsed or was answered.
    """
    rank = count_before(holds.whole, np.ones(len(holds.whole), dtype=bool))
    since = since.copy()
    for turn in range(1, int(rank.max(initial=0)) + 1):
        here = np.flatnonzero(rank == turn)
        for back in range(min(turn, _LOOK_BACK), 0, -1):
            other = here - back
            lapsed = since[other] + wait
            answered = (holds.release[other] != NONE) & (holds.release[other] < holds.index[here])
            lapsed = np.where(answered, np.minimum(lapsed, holds.release_ns[other]), lapsed)
            certain = holds.held[other] & (since[other] != NONE)
            certain &= (lapsed <= holds.time[here]) | (holds.alive[other] > holds.index[here])
            certain &= since[here] + wait > holds.time[other]
            raised = np.maximum(since[here], np.minimum(lapsed, holds.time[here]))
            since[here] = np.where(certain, raised, since[here])
    return since


def late(rows: Rows, order: Numbers, found: Lapses, promises: Promises) -> Flags:
    """The acknowledgements among these rows whose ``ok`` settles nothing."""
    if promises.refuses_stale_acks:
        return np.zeros(len(order), dtype=bool)
    result: Flags = (rows.kind[order] == ACK_OK) & found.over
    return result


def read_late(rows: Rows, found: Lapses, settled: Numbers) -> Flags:
    """The deliveries that had lapsed when they were read, and may have been sent before an ack.

    ``settled``: since which row the message of each was settled, ``NONE`` for others.
    """
    at = np.minimum(np.searchsorted(rows.index, settled), len(rows.index) - 1)
    result: Flags = (settled != NONE) & (found.since < rows.time[at])
    return result
