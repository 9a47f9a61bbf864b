"""The rule ``priority-inversion``, an info: messages of higher priority come first.

An inversion: a broker *chose* a message of lower priority although one of higher priority was in
the queue. Both are of one producer and one queue, without a group, and went to one session. Brokers
send messages ahead, read them from disk page by page, or put them into few classes; so they come in
another order than that of priorities, and no broker promises how far. So the finding tells how
often and how far, and makes no test invalid.

A message that was read first need not have been chosen first: a session that prefetches reads a
message long after it was chosen. Found are only messages that were certainly chosen while the other
was in the queue. A message was certainly chosen after the latest of

    its send
    the invocation of its session's subscribe
    an invocation on its connection that was answered before it was read, where answers and
    deliveries share one order (``checkers.links``)

The other message was certainly in the queue if it was sent before that: once, outside of
transactions, without a delay, answered ``ok`` by the broker that delivered it. No other session
held it meanwhile, as its first delivery says that it is the first; where brokers do not always mark
redeliveries, nothing is found. In its own session it was read later, and deliveries to a session
arrive in order.

Messages without a group lie in all parts. So parts are asked twice: which queues have priorities
at all (``ranked``), and which first deliveries they had (``first_deliveries``).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.asked import ORDINARY, asked_by, priority_of
from checkers.attempts import Attempts
from checkers.ends import Ends
from checkers.instance import Instance
from checkers.lifecycle import as_sent
from checkers.links import LinkAnswers, UnderWay
from checkers.rows import (
    DELIVER,
    NONE,
    SEND_INVOKE,
    SEND_OK,
    Numbers,
    PlaceTable,
    Rows,
    counted,
    first,
    highest,
    ordered,
    texts_of,
)
from checkers.running import lowest_after, segments, starts
from checkers.schema import TOPIC

NAME: Final = "priority-inversion"
_LEAST, _MOST = 0, 9
"""The lowest and highest priority of JMS; a priority outside of these counts as the nearest one."""

_LAST: Final = 2**64
"""A number above every message id."""
Queue = tuple[int, str]
"""A queue of a run: (run, queue)."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The first deliveries of messages without a group, a row each.

    ``queue`` is a number among the queues in question. ``sent`` is the first send, ``stored`` the
    row since which the message was certainly deliverable (``NONE`` if no row tells).
    """

    queue: Numbers
    producer: Numbers
    session: Numbers
    connection: Numbers
    message: Numbers
    priority: Numbers
    sent: Numbers
    stored: Numbers
    delivered: Numbers

    def at(self, positions: Numbers) -> Delivered:
        """Return the deliveries at some positions."""
        return Delivered(*(getattr(self, name)[positions] for name in Delivered.__slots__))


@dataclass(frozen=True, slots=True)
class Inversion:
    """A message that was read at row ``index`` and overtaken by messages of lower priority.

    ``overtakers`` is their number, ``by`` the id of the one that was certainly chosen last.
    """

    run: int
    queue: str
    message: int
    index: int
    by: int
    overtakers: int

    def instance(self) -> Instance:
        """Return the instance, which the late delivery shows."""
        return Instance(NAME, self.queue, None, self.message, self.index, str(self.by), self.run)


# ------------------------------------------------------------------------------------- of one part


def ranked(rows: Rows, places: PlaceTable) -> frozenset[Queue]:
    """Return the queues with a message without a group whose priority is not the default."""
    sends = rows.of(SEND_INVOKE, SEND_OK)
    sends = sends[rows.value.codes[sends] >= 0]
    urgent = np.array([_asks(value) for value in rows.value.values] + [False], dtype=bool)
    place_numbers = np.unique(rows.place[sends[urgent[rows.value.codes[sends]]]]).tolist()
    named = (places.named[place] for place in place_numbers)
    return frozenset(
        (run, queue)
        for run, queue, group in named
        if group is None and queue is not None and not queue.startswith(TOPIC)
    )


def _asks(value: str | None) -> bool:
    return priority_of(value) not in (None, ORDINARY)


def rows_of_queues(table: pa.Table, queues: Collection[Queue]) -> pa.Table:
    """Return the rows without a group of queues with the wanted names, in every run."""
    names = pa.array(sorted({queue for _, queue in queues}), pa.string())
    table = table.filter(pc.is_in(table["queue"].cast(pa.string()), names))
    return table.filter(pa.array(texts_of(table, "group").codes < 0))


def first_deliveries(
    rows: Rows, places: PlaceTable, queues: Sequence[Queue], attempts: Attempts | None
) -> Delivered:
    """Return the first deliveries of some queues from whole messages.

    The queues are numbered in the given order.
    """
    size = rows.messages
    sends, oks, delivers = rows.of(SEND_INVOKE), rows.of(SEND_OK), rows.of(DELIVER)
    options = asked_by(rows, attempts)
    at = first(rows.id[delivers], delivers, size)
    taker = first(rows.id[oks], rows.broker.codes[oks].astype(np.int64), size)
    numbers = {queue: number for number, queue in enumerate(queues)}
    number = np.array(
        [numbers.get((run, str(queue)), NONE) for run, queue, _ in places.named], dtype=np.int64
    )
    producer = as_sent(rows, rows.producer, sends)
    sent = first(rows.id[sends], rows.index[sends], size)
    chosen = np.flatnonzero((at != NONE) & (producer != NONE))
    chosen = chosen[number[rows.place[at[chosen]]] != NONE]
    row = at[chosen]
    fresh = (rows.redelivered[row] == 0) & (rows.session[row] != NONE) & (sent[chosen] < rows.index[row])
    chosen, row = chosen[fresh], row[fresh]
    transacted = highest(rows.id[sends], rows.transaction[sends], size)[chosen] != NONE
    certain = (counted(rows.id[sends], size)[chosen] == 1) & ~transacted & (options.early[chosen] == NONE)
    certain &= (taker[chosen] >= 0) & (taker[chosen] == rows.broker.codes[row])
    priority = options.priority[chosen]
    return Delivered(
        queue=number[rows.place[row]], producer=producer[chosen], session=rows.session[row],
        connection=rows.connection[row], message=rows.message[row],
        priority=np.clip(np.where(priority == NONE, ORDINARY, priority), _LEAST, _MOST),
        sent=sent[chosen],
        stored=np.where(certain, first(rows.id[oks], rows.index[oks], size)[chosen], NONE),
        delivered=rows.index[row],
    )  # fmt: skip


# ------------------------------------------------------------------------------------ of all parts


def candidates(deliveries: Delivered) -> Delivered:
    """Return the deliveries of sessions that may have an inversion.

    In such a session a message of higher priority was read later although it was in the queue
    before. The deliveries are sorted by queue, producer and session, and then as they were read.
    """
    deliveries = deliveries.at(
        ordered(deliveries.queue, deliveries.producer, deliveries.session, deliveries.delivered)
    )
    session_part = _sessions(deliveries)
    is_late = np.zeros(len(session_part), dtype=bool)
    for priority in np.unique(deliveries.priority).tolist():
        soonest = lowest_after(
            session_part, np.where(deliveries.priority > priority, deliveries.stored, NONE)
        )
        is_late |= (deliveries.priority == priority) & (soonest != NONE) & (soonest < deliveries.delivered)
    has_late = np.zeros(int(session_part.max(initial=-1)) + 1, dtype=bool)
    has_late[session_part[is_late]] = True
    return deliveries.at(np.flatnonzero(has_late[session_part]))


def _sessions(deliveries: Delivered) -> Numbers:
    return segments(deliveries.queue, deliveries.producer, deliveries.session)


def spans_in_question(deliveries: Delivered, queues: Sequence[Queue]) -> UnderWay:
    """Return the spans whose answers tell when each message was chosen."""
    stored = np.where(deliveries.stored == NONE, deliveries.delivered, deliveries.stored)
    return UnderWay(
        _runs(deliveries, queues), deliveries.session, deliveries.connection, np.full_like(stored, NONE),
        stored, deliveries.delivered,
    )  # fmt: skip


def _runs(deliveries: Delivered, queues: Sequence[Queue]) -> npt.NDArray[np.int64]:
    return np.array([run for run, _ in queues], dtype=np.int64)[deliveries.queue]


def inversions(
    deliveries: Delivered, queues: Sequence[Queue], ends: Ends, links: LinkAnswers | None
) -> list[Inversion]:
    """Return all inversions; ``deliveries`` must come from ``candidates``."""
    runs = _runs(deliveries, queues)
    begun = ends.sessions.find("begun", runs, deliveries.session)
    chosen = np.maximum(deliveries.sent, np.where(begun < deliveries.delivered, begun, NONE))
    if links is not None:
        chosen = np.maximum(
            chosen, links.before(runs, deliveries.session, deliveries.connection, deliveries.delivered)
        )
    result = []
    for session_rows in np.split(np.arange(len(runs)), starts(_sessions(deliveries))[1:]):
        before: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for n in session_rows.tolist():
            priority, stored, message = (
                int(column[n]) for column in (deliveries.priority, deliveries.stored, deliveries.message)
            )
            late = [
                (chose, bisect_right(chose, (stored, _LAST)))
                for low, chose in before.items()
                if low < priority
            ]
            count = sum(len(chose) - at for chose, at in late)
            if stored != NONE and count:
                run, queue = queues[int(deliveries.queue[n])]
                _, by = max(chose[-1] for chose, at in late if at < len(chose))
                result.append(Inversion(run, queue, message, int(deliveries.delivered[n]), by, count))
            insort(before[priority], (int(chosen[n]), message))
    return sorted(result, key=lambda one: (one.run, one.index))
