"""Conflicts of sessions over messages: who held what, and when.

duplicate, unflagged-redelivery, double-delivery, group-split, reordered-session.

A session *holds* a delivery from its row until the first of: the invocation of its ack or nack (of
the commit or abort, for an ack in a transaction), of the unsubscribe, or the disconnect row. The
hold is *certain* only until the latest moment at which the session is proven alive at the broker:
the invocation of an operation in it that later completed ``ok``. A partitioned client may hold
deliveries of a session that its broker ended long ago; that is no anomaly. Two holds conflict if
both are certain at one instant. A session was alive, too, when it got something that was sent only
then: whatever is known of it afterwards, a broker that sends to it while another certainly holds
errs.

Why the running maximum is enough: let d be the first delivery that begins within an earlier certain
hold of another session. If the hold that ends last among the earlier ones is of d's own session,
that hold and the other session's overlap too, and the later of those two begins before d: a
contradiction. So the first conflict of a group is always with the hold that ends last.

What proves a session alive is spread over all parts, and is asked for only where two holds would
conflict if every session lived for ever (``conflicts``): in most runs, failures or not, nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from checkers.ends import Ends, Keyed
from checkers.lifecycle import Deliveries
from checkers.rows import (
    ACK_INVOKE,
    ACK_OK,
    DELIVER,
    NACK_INVOKE,
    NACK_OK,
    NONE,
    SEND_INVOKE,
    Flags,
    Numbers,
    PlaceTable,
    Rows,
    first,
    ordered,
)
from checkers.running import highest_and_whose, highest_before, segments, starts
from checkers.tally import InstanceTally


def find(deliveries: Deliveries, tally: InstanceTally) -> None:
    """The rules about single deliveries; what may have been under way is excused."""
    _firsts("duplicate", deliveries, deliveries.duplicate, tally)
    _firsts("unflagged-redelivery", deliveries, deliveries.unflagged, tally)
    _firsts("late-delivery", deliveries, deliveries.late, tally)
    _firsts("count-fell", deliveries, deliveries.fell, tally)
    _firsts("expired-delivery", deliveries, deliveries.expired, tally)
    _firsts("early-delivery", deliveries, deliveries.early, tally)


def find_backwards(deliveries: Deliveries, grouped: Flags, tally: InstanceTally) -> None:
    """In a session after one of the same producer with a higher sequence."""
    at = deliveries.fresh & grouped[deliveries.place] & deliveries.in_turn & (deliveries.producer != NONE)
    at = np.flatnonzero(at)
    if not len(at):
        return
    by = (deliveries.place[at], deliveries.producer[at], deliveries.session[at], deliveries.index[at])
    at = at[ordered(*by)]
    sequence = deliveries.sequence[at]
    one = segments(deliveries.place[at], deliveries.producer[at], deliveries.session[at])
    highest = highest_before(one, sequence)
    late = np.zeros(len(deliveries.index), dtype=bool)
    late[at] = (highest != NONE) & (sequence != NONE) & (highest > sequence) & deliveries.certain[at]
    _firsts("reordered-session", deliveries, late, tally)


def conflicts(
    deliveries: Deliveries,
    places: PlaceTable,
    ends: Ends,
    tally: InstanceTally | None,
    proven: Keyed | None = None,
    *,
    stale_acks_refused: bool = True,
) -> Flags:
    """The places in which two holds conflict.

    ``double-delivery`` and ``group-split`` are told to ``tally``.

    Without ``proven`` (``proven`` of each session: until when it was certainly alive) every session
    is taken to live for ever: a superset of the places, and nothing to tell.
    """
    end = deliveries.release
    runs = places.runs()[deliveries.place]
    if proven is not None:
        end = np.minimum(end, proven.find("proven", runs, deliveries.session))
    until = np.where(end > deliveries.index, end, NONE)
    found = np.zeros(len(places.named), dtype=bool)
    again = np.flatnonzero(_among_several(deliveries))
    order = again[ordered(deliveries.life[again], deliveries.index[again])]
    twice = order[_conflicting(deliveries, ends, runs, until, order, deliveries.life[order])]
    if stale_acks_refused:
        twice = np.union1d(twice, np.flatnonzero(deliveries.settled))
    found[deliveries.place[twice]] = True
    grouped = places.grouped()
    held = np.flatnonzero(grouped[deliveries.place])
    order = held[ordered(deliveries.place[held], deliveries.index[held])]
    split = order[_conflicting(deliveries, ends, runs, until, order, deliveries.place[order])]
    found[deliveries.place[split]] = True
    if tally is not None:
        marked = np.zeros(len(deliveries.index), dtype=bool)
        marked[twice] = True
        _firsts("double-delivery", deliveries, marked, tally)
        _, first_of = np.unique(deliveries.place[split], return_index=True)
        split = split[first_of]
        tally.add("group-split", deliveries.place[split], deliveries.index[split])
    return found


def _among_several(deliveries: Deliveries) -> Flags:
    """Deliveries of messages that have others."""
    several = np.zeros(int(deliveries.life.max(initial=-1)) + 1, dtype=bool)
    several[deliveries.life[deliveries.again]] = True
    return several[deliveries.life]


def _conflicting(
    deliveries: Deliveries, ends: Ends, runs: Numbers, until: Numbers, order: Numbers, keys: npt.NDArray[Any]
) -> Flags:
    """Of the rows in ``order``.

    Begun within an earlier hold of another session, and held then for certain.

    Held for certain: for a while after they were read; or at the moment at which they were sent,
    where the whole span in which that can have been lies within the other hold.
    """
    if not len(order):
        return np.zeros(0, dtype=bool)
    index, session, segment = deliveries.index[order], deliveries.session[order], segments(keys)
    before = np.arange(len(order)) - 1

    def within(at: Numbers) -> Flags:
        value, whose = highest_and_whose(segment, until[order], session, at)
        result: Flags = (value != NONE) & (value > index) & (whose != session)
        return result

    result = within(before)
    if not result.any():
        return result
    begun = ends.sessions.find("begun", runs[order], session)
    sent = deliveries.sent[order]
    earliest = np.maximum(np.where(begun < index, begun, NONE), np.where(sent < index, sent, NONE))
    place = (segment << 33) | index
    at = np.searchsorted(place, (segment << 33) | np.maximum(earliest, 0), "left") - 1
    result &= until[order] != NONE
    result |= (earliest != NONE) & within(at)
    return result


def _firsts(name: str, deliveries: Deliveries, where: Flags, tally: InstanceTally) -> None:
    """One instance a message: its first."""
    at = np.flatnonzero(where)
    if not len(at):
        return
    at = at[np.argsort(deliveries.index[at], kind="stable")]
    _, first_of = np.unique(deliveries.life[at], return_index=True)
    at = at[first_of]
    tally.add(name, deliveries.place[at], deliveries.index[at], deliveries.message[at])


@dataclass(frozen=True, slots=True)
class Proofs:
    """Of each (run, session) the latest answered question that one part knows."""

    run: Numbers
    session: Numbers
    asked: Numbers


def proofs(rows: Rows) -> Proofs:
    """The proofs in these rows that sessions lived.

    By acks and nacks: of each (session, message) the first invocation, if any ``ok`` came after it;
    by deliveries: the send of what was delivered.
    """
    at = rows.of(ACK_INVOKE, ACK_OK, NACK_INVOKE, NACK_OK)
    at = at[rows.session[at] != NONE]
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
    sound &= rows.message[delivers] != NONE
    delivers, sent = delivers[sound], sent[sound]
    who = np.concatenate([who, delivers])
    return _latest(rows.run[who], rows.session[who], np.concatenate([asked[proven], sent]))


def _latest(run: Numbers, session: Numbers, asked: Numbers) -> Proofs:
    """The latest of each session."""
    order = ordered(run, session, asked)
    one = segments(run[order], session[order])
    last = order[np.flatnonzero(np.concatenate((one[1:] != one[:-1], [True])))] if len(order) else order
    return Proofs(run[last], session[last], asked[last])


def proven(found: list[Proofs], left: Keyed) -> Keyed:
    """All proofs of all parts, unsubscribes included, as ``proven`` by (run, session)."""
    width = max(1, len(left.numbers))
    left_run, left_session = (
        left.keys // width,
        left.numbers[left.keys % width] if len(left.numbers) else left.keys,
    )
    known = left.values["left"] != NONE
    run = np.concatenate([*(p.run for p in found), left_run[known]])
    session = np.concatenate([*(p.session for p in found), left_session[known]])
    asked = np.concatenate([*(p.asked for p in found), left.values["left"][known]])
    every = np.ones(len(run), dtype=bool)
    lowest = Keyed.of(run, session, {"proven": (every, -asked)})
    return Keyed(lowest.numbers, lowest.keys, {"proven": -lowest.values["proven"]})
