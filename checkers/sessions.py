"""The rules about sessions: which session held which message when, and conflicts between them.

They find duplicate, unflagged-redelivery, double-delivery, group-split and reordered-session.

A session *holds* a delivery from its row until the first of: the invocation of its ack or nack (of
the commit or abort, for an ack in a transaction), the invocation of the unsubscribe, or the
disconnect row. The hold is *certain* only until the latest moment at which the session is proven
alive at the broker: the invocation of an operation in it that later completed ``ok``. A partitioned
client may hold deliveries of a session that its broker ended long ago; that is no anomaly. Nor is a
hold certain when the broker may have taken the message back (``checkers.timeouts``). Two holds
conflict if both are certain at one instant. A session was alive, too, when it got a message that
was sent only then: a broker must not send to it while another session certainly holds, whatever is
known of it afterwards.

Why the running maximum is enough: let d be the first delivery that begins within an earlier certain
hold of another session. Suppose the hold that ends last among the earlier ones is of d's own
session. Then that hold and the other session's overlap, too, and the later of those two begins
before d: a contradiction. So the first conflict of a group is always with the hold that ends last.

The rows that prove a session alive lie in all parts. They are asked for only where two holds would
conflict if every session lived for ever (``conflicts``): in most runs, with failures or without,
nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from checkers.alternation import GroupDeliveries
from checkers.closings import Closings
from checkers.ends import Ends, Keyed
from checkers.lifecycle import Deliveries, Lives
from checkers.order import Line, Spans
from checkers.ordinary import Ordinary
from checkers.rows import (
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    FOREVER,
    NACK_INVOKE,
    NACK_OK,
    NONE,
    SEND_INVOKE,
    Flags,
    Numbers,
    PlaceTable,
    Rows,
    first,
    joined,
    ordered,
)
from checkers.running import exceeded, highest_and_whose, segments, starts
from checkers.selective import ALL_WITH_ALL, SelectiveQueues, Waits, comparisons
from checkers.tally import InstanceTally
from checkers.timeouts import NEVER


@dataclass(frozen=True, slots=True)
class Holds:
    """The columns of ``Deliveries`` that are needed to compare deliveries within a group.

    The lives of ordinary messages have numbers below 0.
    """

    place: npt.NDArray[np.int32]
    life: Numbers
    message: Numbers
    index: Numbers
    session: Numbers
    release: Numbers
    fresh: Flags
    producer: Numbers
    sequence: Numbers
    certain: Flags
    in_turn: Flags
    sent: Numbers
    marked: Flags
    let_go: Numbers

    def at(self, some: Numbers) -> Holds:
        """Return the holds at some positions."""
        return Holds(*(getattr(self, name)[some] for name in Holds.__slots__))


def holds(deliveries: Deliveries, ordinary: Ordinary, grouped: Flags) -> Holds:
    """Return the holds of groups; ``grouped`` says whether each place is a group."""
    every = np.ones(len(ordinary.place), dtype=bool)
    whole = joined(
        [
            Holds(*(getattr(deliveries, column.name) for column in fields(Holds))),
            Holds(
                ordinary.place, -1 - np.arange(len(every)), ordinary.message, ordinary.delivered,
                ordinary.session, ordinary.acked, every, ordinary.producer, ordinary.sequence, every, every,
                ordinary.sent, ~every, ordinary.acked,
            ),
        ]
    )  # fmt: skip
    return whole if grouped.all() else whole.at(np.flatnonzero(grouped[whole.place]))


def held_until_lapse(deliveries: Deliveries, places: PlaceTable) -> Deliveries:
    """End each hold with the first delivery of its run that may come after it lapsed."""
    if (deliveries.lapse == NEVER).all():
        return deliveries
    release, run = deliveries.release.copy(), places.runs()[deliveries.place]
    for one in np.unique(run):
        mine = np.flatnonzero(run == one)
        mine = mine[np.argsort(deliveries.index[mine])]
        index = np.append(deliveries.index[mine], FOREVER)
        lapsed = index[np.searchsorted(deliveries.time[mine], deliveries.lapse[mine], "left")]
        release[mine] = np.minimum(release[mine], lapsed)
    return replace(deliveries, release=release)


def find(deliveries: Deliveries, tally: InstanceTally) -> None:
    """Add the instances of the rules about single deliveries to the tally.

    Deliveries that may have been under way are excused.
    """
    _firsts("duplicate", deliveries, tally, deliveries.duplicate)
    _firsts("unflagged-redelivery", deliveries, tally, deliveries.unflagged)
    _firsts("late-delivery", deliveries, tally, deliveries.late)
    _firsts("count-fell", deliveries, tally, deliveries.fell)
    _firsts("count-stuck", deliveries, tally, deliveries.stuck)
    _firsts("expired-delivery", deliveries, tally, deliveries.expired)
    _firsts("early-delivery", deliveries, tally, deliveries.early)


@dataclass(frozen=True, slots=True)
class _Sent:
    """The columns of ``Lives`` about the sends of held messages, a row for each hold."""

    several: Flags
    since: Numbers
    there: Numbers
    matched: Numbers
    waits: Numbers

    @classmethod
    def of(cls, some: Holds, lives: Lives, ordinary: Ordinary) -> _Sent:
        """Return the columns of some holds.

        If another session got the message first, a hold may be of another copy, which came later.
        """
        usual = some.life < 0
        life, at = some.life[~usual], -1 - some.life[usual]
        there = np.where(lives.delivered[life] == some.index[~usual], lives.there[life], lives.over[life])

        def column(of_usual: Any, of_others: npt.NDArray[Any]) -> npt.NDArray[Any]:
            result = np.empty(len(usual), dtype=of_others.dtype)
            result[usual], result[~usual] = of_usual, of_others
            return result

        return cls(
            column(False, lives.several[life]), column(ordinary.sent[at], lives.since[life]),
            column(ordinary.ok[at], np.where(there == NONE, FOREVER, there)),
            column(0, lives.matched[life]), column(ordinary.sent[at], lives.waits[life]),
        )  # fmt: skip


def find_backwards(
    some: Holds,
    lives: Lives,
    ordinary: Ordinary,
    closings: Closings,
    places: PlaceTable,
    choosers: SelectiveQueues,
    tally: InstanceTally,
) -> None:
    """Find ``reordered-session``: deliveries to a session after a later one of the same producer.

    If a group was closed, a message that was given back may come behind those that the next session
    got.
    """
    at = some.fresh & some.in_turn & (some.producer != NONE) & choosers.judged(places.named)[some.place]
    some = some if at.all() else some.at(np.flatnonzero(at))
    certain = some.certain
    compared, spans = ALL_WITH_ALL, None
    if choosers.consumers or len(closings.place) or lives.several.any() or (lives.sealed != NONE).any():
        sent = _Sent.of(some, lives, ordinary)
        stored = sent.there
        if len(closings.place):
            in_turn = ~closings.any_in(len(places.named))[some.place] | _first_of_all(some, lives)
            certain, stored = certain & in_turn, np.where(in_turn, stored, FOREVER)
        spans = Spans(sent.several, sent.since, stored)
        closed = closings.unread(some.place, np.minimum(some.index, sent.there), some.index)
        waits = Waits(some.place, sent.matched, sent.waits, some.index, closed)
        compared = comparisons(waits, places.named, choosers)
    line = Line((some.place, some.producer, some.session), some.index, some.sequence, certain, spans)
    _firsts("reordered-session", some.at(line.misplaced(compared)), tally)


def _first_of_all(some: Holds, lives: Lives) -> Flags:
    """Return which holds are the first deliveries of their messages."""
    result = some.life < 0
    others = np.flatnonzero(~result)
    result[others] = lives.delivered[some.life[others]] == some.index[others]
    return result


def of_groups(some: Holds, lives: Lives) -> GroupDeliveries:
    """Return the deliveries of groups, as ``checkers.alternation`` reads them."""
    first = _first_of_all(some, lives)
    return GroupDeliveries(some.place, some.index, some.session, first, some.marked, some.let_go)


def conflicts(
    deliveries: Deliveries,
    of_groups: Holds,
    closings: Closings,
    places: PlaceTable,
    ends: Ends,
    tally: InstanceTally | None,
    alternating: tuple[npt.NDArray[np.int32], Numbers] | None = None,
    proven: Keyed | None = None,
    *,
    stale_acks_refused: bool = True,
) -> Flags:
    """Return the places in which two holds conflict.

    The instances of ``double-delivery`` and ``group-split`` are added to ``tally``, if there is
    one. ``proven`` says until when each session was certainly alive. Without it every session is
    assumed to live for ever, so that more places are returned; then there should be no tally.
    """
    found = np.zeros(len(places.named), dtype=bool)
    again = np.flatnonzero(_among_several(deliveries))
    again = again[ordered(deliveries.life[again], deliveries.index[again])]
    twice = again[_conflicting(deliveries, again, deliveries.life[again], places, ends, proven)]
    if stale_acks_refused:
        twice = np.union1d(twice, np.flatnonzero(deliveries.settled))
    found[deliveries.place[twice]] = True
    order, segment = _side_by_side(of_groups, closings)
    split = order[_conflicting(of_groups, order, segment, places, ends, proven)]
    found[of_groups.place[split]] = True
    if tally is not None:
        marked = np.zeros(len(deliveries.index), dtype=bool)
        marked[twice] = True
        _firsts("double-delivery", deliveries, tally, marked)
        place, index = of_groups.place[split], of_groups.index[split]
        if alternating is not None:
            place = np.concatenate([place, alternating[0]])
            index = np.concatenate([index, alternating[1]])
        first_of = ordered(place, index)
        first_of = first_of[starts(place[first_of].astype(np.int64))]
        tally.add("group-split", place[first_of], index[first_of])
    return found


def _side_by_side(some: Holds, closings: Closings) -> tuple[Numbers, Numbers]:
    """Return the positions of holds in order, and the segment of each in which holds may conflict.

    A segment is a group; a message that closed the group ends one segment and begins the next.
    """
    order = ordered(some.place, some.index)
    place, index = some.place[order], some.index[order]
    if not len(closings.place):
        return order, place.astype(np.int64)
    freed = closings.freed(place, index)
    later = freed < index
    order, place, freed = order[later], place[later], freed[later]
    return order, segments(place, freed)


def _among_several(deliveries: Deliveries) -> Flags:
    """Return the deliveries of messages that were delivered several times."""
    several = np.zeros(int(deliveries.life.max(initial=-1)) + 1, dtype=bool)
    several[deliveries.life[deliveries.again]] = True
    return several[deliveries.life]


def _conflicting(
    some: Holds | Deliveries,
    order: Numbers,
    keys: npt.NDArray[Any],
    places: PlaceTable,
    ends: Ends,
    proven: Keyed | None,
) -> Flags:
    """Return which holds begin within an earlier certain hold of another session.

    ``order`` has the positions of the holds, sorted by their ``keys`` and then by their rows. A
    hold counts only if it is certain itself: for a while after the delivery was read. Or it was
    certain when the delivery was sent, if the whole span in which that can have been lies within
    the other hold.
    """
    index, session, segment = some.index[order], some.session[order], keys.astype(np.int64)
    end = some.release[order]
    if not _may_conflict(index, session, segment, end):
        return np.zeros(len(order), dtype=bool)
    if proven is not None:
        end = np.minimum(end, proven.find("proven", places.runs()[some.place[order]], session))
    until = np.where(end > index, end, NONE)
    before = np.arange(len(order)) - 1

    def within(at: Numbers) -> Flags:
        value, whose = highest_and_whose(segment, until, session, at)
        result: Flags = (value > index) & (whose != session)
        return result

    result = within(before)
    if not result.any():
        return result
    begun = ends.sessions.find("begun", places.runs()[some.place[order]], session)
    sent = some.sent[order]
    earliest = np.maximum(np.where(begun < index, begun, NONE), np.where(sent < index, sent, NONE))
    place = (segment << 33) | index
    at = np.searchsorted(place, (segment << 33) | np.maximum(earliest, 0), "left") - 1
    result &= until != NONE
    result |= within(at)
    return result


def _may_conflict(index: Numbers, session: Numbers, segment: Numbers, end: Numbers) -> bool:
    """Return whether any hold begins within an earlier one and follows a row of another session.

    Why that is enough: take the first row of a segment that begins within a hold of another
    session. If it followed a row of its own session, all rows between that hold and it would be of
    its own session, and the first of those would begin within that hold, too.
    """
    late = exceeded(index, end, segment)
    return bool(np.any(late[1:] & (session[1:] != session[:-1])))


def _firsts(name: str, some: Holds | Deliveries, tally: InstanceTally, where: Flags | None = None) -> None:
    """Add one instance for each message: the first of its flagged deliveries."""
    at = np.arange(len(some.index)) if where is None else np.flatnonzero(where)
    at = at[np.argsort(some.index[at], kind="stable")]
    _, first_of = np.unique(some.life[at], return_index=True)
    at = at[first_of]
    tally.add(name, some.place[at], some.index[at], some.message[at])


@dataclass(frozen=True, slots=True)
class Proofs:
    """The latest invocation that proves each (run, session) alive, as one part knows it."""

    run: Numbers
    session: Numbers
    asked: Numbers


def proofs(rows: Rows) -> Proofs:
    """Return the proofs in some rows that sessions were alive.

    An ack or nack proves it: of each (session, message) the first invocation counts, if any ``ok``
    came after it. So does a delivery: the send of its message counts.
    """
    at = rows.of(ACK_INVOKE, ACK_OK, NACK_INVOKE, NACK_OK)
    at = at[rows.session[at] != NONE]  # what names no session proves none alive
    nack = rows.kind[at] >= NACK_INVOKE
    order = ordered(rows.session[at], rows.id[at], nack, rows.index[at])
    at, nack = at[order], nack[order]
    one = segments(rows.session[at], rows.id[at], nack)
    size = int(one[-1]) + 1 if len(one) else 0
    invoking = np.isin(rows.kind[at], (ACK_INVOKE, NACK_INVOKE))
    asked = np.full(size, NONE, dtype=np.int64)
    asked[one[invoking][::-1]] = rows.index[at][invoking][::-1]
    answered = np.full(size, NONE, dtype=np.int64)
    answered[one[~invoking]] = rows.index[at][~invoking]
    proven = np.flatnonzero((asked != NONE) & (answered > asked))
    who = at[starts(one)[proven]]
    sends, delivers = rows.of(SEND_INVOKE), rows.of(DELIVER)
    sent = first(rows.id[sends], rows.index[sends], rows.messages)[rows.id[delivers]]
    sound = (sent != NONE) & (sent < rows.index[delivers]) & (rows.session[delivers] != NONE)
    delivers, sent = delivers[sound], sent[sound]
    who = np.concatenate([who, delivers])
    return _latest(rows.run[who], rows.session[who], np.concatenate([asked[proven], sent]))


def _latest(run: Numbers, session: Numbers, asked: Numbers) -> Proofs:
    """Return the latest proof of each session."""
    order = ordered(run, session, asked)
    one = segments(run[order], session[order])
    last = order[np.flatnonzero(np.concatenate((one[1:] != one[:-1], [True])))] if len(order) else order
    return Proofs(run[last], session[last], asked[last])


def proven(found: Sequence[Proofs], left: Keyed) -> Keyed:
    """Return the latest proof of each (run, session) from all parts, unsubscribes included."""
    width = max(1, len(left.numbers))
    left_run, left_session = left.keys // width, left.numbers[left.keys % width]
    known = left.values["left"] != NONE
    run = np.concatenate([*(p.run for p in found), left_run[known]])
    session = np.concatenate([*(p.session for p in found), left_session[known]])
    asked = np.concatenate([*(p.asked for p in found), left.values["left"][known]])
    every = np.ones(len(run), dtype=bool)
    lowest = Keyed.of(run, session, {"proven": (every, -asked)})
    return Keyed(lowest.numbers, lowest.keys, {"proven": -lowest.values["proven"]})
