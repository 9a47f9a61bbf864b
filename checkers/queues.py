"""The rule ``not-linearizable`` for whole queues: messages without a group come in FIFO order.

The rule applies only where brokers promise that (``Promises.fifo``). A group belongs to one
consumer at a time, but a queue does not. So the delivery that was recorded first need not have been
sent first. Messages that are pushed to two sessions at once are read in any order. If one session
ends, the messages that it had not read go to the other, behind those that the other has. So only
two kinds of queues are judged, as far as the history proves which sessions can have had which
messages:

pulled      each first delivery was asked for (``time_low`` of its row says when) and taken between
            invocation and answer: an interval, for which ``checkers.linearizability`` holds as it
            is. A receive whose answer was never heard may have taken any one message, and given it
            back later. So as many messages may be late as there are such receives; if one more is
            late, no run of a queue explains it
pushed      x's send was certain before y's was begun, and y was read before x. Only one session can
            have been sent x before that: each other session of the queue was asked for after y was
            read, or was certainly over before x can have been in the queue. Deliveries to a session
            arrive in order; so no session had been sent x, and x was in front of y when y was sent

A session is certainly over when its unsubscribe was answered or the process that served it was seen
gone; a connection that its client lost proves nothing. A session without a subscribe in the rows
may always have been there. A message that never came is late, too, under the conditions of
``checkers.fifo``. Queues that brokers of several nodes hold are left out, because a forwarded
message may arrive at any time. Where consumers had selectors, a message did not overtake one that a
consumer may have left behind because of its selector (``checkers.selective``).

The messages of a queue lie in all parts. So each part returns the messages that count (``told``),
and they are judged together (``find``), as one row of numbers each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.consumers import Consumer
from checkers.deaths import Deaths
from checkers.fifo import NAME
from checkers.instance import Instance
from checkers.lifecycle import Lives
from checkers.linearizability import Values, overtakings
from checkers.rows import (
    DELIVER,
    FOREVER,
    NONE,
    SEND_OK,
    Flags,
    Numbers,
    Place,
    PlaceTable,
    Rows,
    first,
    joined,
)
from checkers.schema import TEMPORARY, TOPIC
from checkers.selective import Choosers, SelectiveQueues

Queue = tuple[int, str]
"""A queue of a run: (run, queue)."""
_ALWAYS: Final = -1
"""A number below every index."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of queues, a row each; ``NONE`` for what never happened.

    A message came into its queue between rows ``begun`` and ``stored``. ``delivered`` is its first
    delivery, to ``session``, at ``time`` (ns); the client had asked for that delivery at ``asked``
    (ns). ``matched`` has the selectors of the queue that match the message, as bits.
    """

    place: npt.NDArray[np.int32]
    message: Numbers
    begun: Numbers
    stored: Numbers
    delivered: Numbers
    session: Numbers
    asked: Numbers
    time: Numbers
    matched: Numbers


@dataclass(frozen=True, slots=True)
class Told:
    """The facts of one slice about queues.

    ``brokers`` are the brokers that took or delivered messages of a queue; ``unreadable`` the
    queues with a delivery whose body could not be read, ``nameless`` those with a delivery that
    names no session.
    """

    messages: Messages
    places: Sequence[Place]
    brokers: Mapping[Queue, frozenset[str]]
    unreadable: frozenset[Queue]
    nameless: frozenset[Queue]


def without_groups(table: pa.Table) -> pa.Table:
    """Return the rows without a group of a table, except those of topics and temporary queues."""
    queue = table["queue"].cast(pa.string())
    table = table.filter(pc.invert(pc.or_(pc.starts_with(queue, TOPIC), pc.starts_with(queue, TEMPORARY))))
    return table.filter(pc.is_null(table["group"])) if "group" in table.column_names else table


def told(rows: Rows, places: PlaceTable, lives: Lives, asked: Numbers) -> Told:
    """Return the facts that whole messages without a group tell.

    ``asked`` has the ``time_low`` of each row.
    """
    delivers, oks = rows.of(DELIVER), rows.of(SEND_OK)
    at = first(rows.id[delivers], delivers, rows.messages)
    got = at != NONE
    row = np.where(got, at, 0)
    known = ~lives.aborted & (lives.begun != NONE) & lives.in_turn
    ended = places.deleted()[lives.place]
    some = np.flatnonzero(known & np.where(got, lives.delivered > lives.begun, lives.untaken & ~ended))

    def of_delivery(column: Numbers) -> Numbers:
        return np.where(got, column[row], NONE)[some]

    session = rows.session[np.arange(len(rows.index))]
    named = places.named

    def queues(of: Numbers) -> frozenset[Queue]:
        return frozenset((named[n][0], str(named[n][1])) for n in np.unique(rows.place[of]).tolist())

    brokers: dict[Queue, set[str]] = defaultdict(set)
    taking = np.concatenate([delivers, oks])
    taking = taking[rows.broker.codes[taking] >= 0]
    pairs = np.unique(np.column_stack([rows.place[taking], rows.broker.codes[taking]]), axis=0)
    for place, code in pairs.tolist():
        run, queue, _ = named[place]
        brokers[run, str(queue)].add(rows.broker.values[code])
    return Told(
        Messages(
            place=lives.place[some], message=lives.message[some], begun=lives.begun[some],
            stored=lives.there[some], delivered=np.where(got, lives.delivered, NONE)[some],
            session=of_delivery(session), asked=of_delivery(asked), time=of_delivery(rows.time),
            matched=lives.matched[some],
        ),
        named,
        {queue: frozenset(names) for queue, names in brokers.items()},
        queues(delivers[rows.message[delivers] == NONE]),
        queues(delivers[session[delivers] == NONE]),
    )  # fmt: skip


# ----------------------------------------------------------------------------------------- sessions


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of one queue; each may have got messages from row ``begun`` to row ``over``."""

    number: Numbers
    begun: Numbers
    over: Numbers

    def since(self, number: Numbers) -> Numbers:
        """Return the first row of each of some sessions; ``_ALWAYS`` for one that is not known."""
        order = np.argsort(self.number)
        at = np.minimum(np.searchsorted(self.number, number, sorter=order), len(order) - 1)
        known = self.number[order[at]] == number
        return np.where(known, self.begun[order[at]], _ALWAYS)

    def alone(self, since: Numbers) -> tuple[Numbers, Numbers]:
        """Return the only session that can have got messages there since some rows, and until when.

        The session is ``NONE`` if there is none, or if one may always have been there. The second
        result is the row from which another session may have got the messages.
        """
        order = np.argsort(self.over, kind="stable")
        over, begun, number = self.over[order], self.begun[order], self.number[order]
        best = np.full(len(order) + 1, FOREVER, dtype=np.int64)
        who = np.full(len(order) + 1, NONE, dtype=np.int64)
        other = np.full(len(order) + 1, FOREVER, dtype=np.int64)
        for n in range(len(order) - 1, -1, -1):
            if begun[n] < best[n + 1]:
                best[n], who[n], other[n] = begun[n], number[n], best[n + 1]
            else:
                best[n], who[n], other[n] = best[n + 1], who[n + 1], min(other[n + 1], int(begun[n]))
        at = np.searchsorted(over, since, "right")
        return np.where(best[at] == _ALWAYS, NONE, who[at]), other[at]


@dataclass(frozen=True, slots=True)
class Consumers:
    """The consumers of each (run, queue): (session, first row, last row).

    A consumer whose queue is ``None`` may be of any queue of its run.
    """

    sessions: Mapping[tuple[int, str | None], Sequence[tuple[int, int, int]]] = field(default_factory=dict)

    def of(self, queue: Queue, others: Iterable[int]) -> Sessions:
        """Return the sessions of a queue; ``others`` are sessions that got messages of it.

        If a session subscribed several times, the first subscribe counts.
        """
        spans = dict.fromkeys(others, (_ALWAYS, FOREVER))
        requests = [*self.sessions.get(queue, ()), *self.sessions.get((queue[0], None), ())]
        requests.sort(key=itemgetter(1), reverse=True)
        spans |= {number: (begun, over) for number, begun, over in requests}
        table = np.array([(number, *span) for number, span in spans.items()], dtype=np.int64)
        return Sessions(table[:, 0], table[:, 1], table[:, 2])


def group_by_queue(consumers: Iterable[Consumer]) -> Consumers:
    """Return the consumers of each queue."""
    sessions: dict[tuple[int, str | None], list[tuple[int, int, int]]] = defaultdict(list)
    for consumer in consumers:
        span = consumer.session, consumer.begun, consumer.over
        sessions[consumer.run, consumer.queue].append(span)
    return Consumers(sessions)


# ------------------------------------------------------------------------------------------- queues


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about queues that messages do not tell.

    ``unheard`` is the number of receives of each queue whose answer was never heard.
    """

    consumers: Consumers
    deaths: Deaths
    unheard: Mapping[Queue, int]
    choosers: SelectiveQueues
    lossless: bool


def find(given: Sequence[Told], known: Known) -> list[Instance]:
    """Return one instance for each queue that is not FIFO.

    The instance names the first delivery that overtook, and of the messages that it overtook the
    one that was sent first.
    """
    if not given:
        return []
    messages, named = _together(given)
    brokers: dict[Queue, set[str]] = defaultdict(set)
    for one in given:
        for queue, names in one.brokers.items():
            brokers[queue] |= names
    unreadable = frozenset().union(*(one.unreadable for one in given))
    nameless = frozenset().union(*(one.nameless for one in given))
    order = np.argsort(messages.place, kind="stable")
    found = []
    for some in np.split(order, np.flatnonzero(np.diff(messages.place[order])) + 1):
        if not len(some):
            continue
        run, name, _ = named[messages.place[some[0]]]
        queue = (run, str(name))
        choosers = known.choosers.of(run, name)
        unclear = choosers is not None and choosers.too_many
        if unclear or not _of_one_node(run, brokers[queue], known.deaths):
            continue
        mine = _chosen(messages, some)
        got = mine.delivered != NONE
        if not (known.lossless and queue not in unreadable):
            mine = _chosen(mine, np.flatnonzero(got))
            got = mine.delivered != NONE
        if not len(got):
            continue
        unheard = known.unheard.get(queue, 0)
        compared = _compared(mine, choosers)
        if (mine.asked[got] != NONE).all():
            pair = _pulled(mine, compared, unheard)
        elif queue not in nameless and not unheard:
            consumers = known.consumers.of(queue, np.unique(mine.session[got]).tolist())
            pair = _pushed(mine, compared, consumers)
        else:
            pair = None
        if pair is not None:
            early, late = pair
            found.append(
                Instance(
                    NAME, queue[1], None, int(mine.message[early]), int(mine.delivered[early]),
                    str(mine.message[late]), run,
                )
            )  # fmt: skip
    return found


def _together(given: Sequence[Told]) -> tuple[Messages, list[Place]]:
    """Return the messages of all slices together, with their places numbered anew."""
    codes: dict[Place, int] = {}
    tables = []
    for one in given:
        numbers = [codes.setdefault(place, len(codes)) for place in one.places]
        renumbered = np.array(numbers, dtype=np.int32)
        tables.append(replace(one.messages, place=renumbered[one.messages.place]))
    return joined(tables), list(codes)


def _chosen(messages: Messages, at: Numbers) -> Messages:
    return Messages(**{name: getattr(messages, name)[at] for name in Messages.__slots__})


def _of_one_node(run: int, brokers: Iterable[str], deaths: Deaths) -> bool:
    one, *others = sorted(brokers) or [""]
    return all(deaths.of_one_node(run, one, other) for other in others)


def _compared(mine: Messages, choosers: Choosers | None) -> Sequence[tuple[Flags, Flags]]:
    """Return pairs of flags: the late messages, and the early ones that must not overtake them."""
    got = mine.delivered != NONE
    if choosers is None:
        return [(np.ones(len(got), dtype=bool), got)]
    found = []
    present = np.unique(mine.matched).tolist()
    for of in present:
        early = got.copy()
        for wanted in present:
            here = np.flatnonzero(mine.matched == wanted)
            early[here] &= ~choosers.passers(of, wanted).meet(mine.begun[here], mine.delivered[here])
        found.append((mine.matched == of, early))
    return found


Compared = Sequence[tuple[Flags, Flags]]


def _pulled(mine: Messages, compared: Compared, unheard: int) -> tuple[int, int] | None:
    got = mine.delivered != NONE
    moments = np.unique(np.concatenate([mine.asked[got], mine.time[got]]))

    def at(column: Numbers) -> Numbers:
        return np.where(got, np.searchsorted(moments, column), FOREVER)

    one_queue = np.zeros(len(got), dtype=np.int64)
    every = [
        _twice(mine, late, at(mine.asked), np.where(early, at(mine.time), FOREVER), one_queue, one_queue)
        for late, early in compared
    ]
    if unheard and sum(_late(values) for values in every) <= unheard:
        return None
    return _first(every, mine, at(mine.time))


def _late(values: Values) -> int:
    """Return how many messages were overtaken."""
    order = np.argsort(values.enqueue_invoke, kind="stable")
    soonest = np.minimum.accumulate(np.append(values.dequeue_return[order], FOREVER)[::-1])[::-1]
    certain = values.enqueue_return != FOREVER
    at = np.searchsorted(values.enqueue_invoke[order], values.enqueue_return[certain], "right")
    return int(np.count_nonzero(soonest[at] < values.dequeue_invoke[certain]))


def _pushed(mine: Messages, compared: Compared, sessions: Sessions) -> tuple[int, int] | None:
    """Return the first overtaking pair of a queue whose messages are pushed, or None.

    The sessions are judged one by one. As a late message, each message belongs to the only session
    that could get it; as an overtaker, to the session that read it.
    """
    alone, until = sessions.alone(mine.begun)
    delivered = np.where(mine.delivered == NONE, FOREVER, mine.delivered)
    _, codes = np.unique(np.concatenate([alone, mine.session]), return_inverse=True)
    size = len(mine.message)
    asked, in_time = np.minimum(delivered, until), mine.delivered > sessions.since(mine.session)
    every = []
    for late, early in compared:
        taken = np.where(early & in_time, delivered, FOREVER)
        every.append(_twice(mine, late, asked, taken, codes[:size], codes[size:]))
    return _first(every, mine, delivered)


def _twice(
    mine: Messages, late: Flags, asked: Numbers, taken: Numbers, late_in: Numbers, early_in: Numbers
) -> Values:
    """Return each message twice: once as one that may be late, once as one that may have overtaken.

    ``late_in`` and ``early_in`` number the queues in which they are compared.
    """
    never = np.full(len(asked), FOREVER, dtype=np.int64)
    before = _values(mine, asked, never, late_in)
    before = replace(before, enqueue_return=np.where(late, before.enqueue_return, FOREVER))
    behind = replace(_values(mine, taken, taken, early_in), enqueue_return=never)
    both = {name: np.concatenate([getattr(before, name), getattr(behind, name)]) for name in Values.__slots__}
    return Values(**both)


def _values(mine: Messages, asked: Numbers, taken: Numbers, queue: Numbers) -> Values:
    stored = np.where(mine.stored == NONE, FOREVER, mine.stored)
    return Values(
        queue=queue.astype(np.int64), name=mine.message, enqueue_invoke=mine.begun, enqueue_return=stored,
        dequeue_invoke=asked, dequeue_return=taken,
    )  # fmt: skip


def _first(every: Sequence[Values], mine: Messages, read: Numbers) -> tuple[int, int] | None:
    """Return the pair whose overtaker was read first, and the first message that it overtook."""
    found = [np.array(overtakings(values), dtype=np.int64) % len(mine.message) for values in every]
    early, late = np.concatenate(found, axis=1)
    if not len(early):
        return None
    one = np.lexsort((mine.message[late], mine.stored[late], mine.message[early], read[early]))[0]
    return int(early[one]), int(late[one])
