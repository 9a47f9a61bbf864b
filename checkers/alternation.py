"""Groups whose first deliveries alternate between sessions: group-split.

A group belongs to one session until the session ends, or a message that closes the group is given
out. Where acknowledgements are missing, nothing proves what a session still holds. But a group that
goes back and forth has not changed its owner each time. It is split if it returns five times to
sessions that had it, one change after the other, and nothing explains one of the changes. Between
two sessions those are six changes, more than a handful.

A change, and every change before it, is explained by

- a redelivery in the group, since what was given back goes to another session
- a delivery that is marked as a redelivery
- the end of a session of the queue, or a lost session that the client noticed later
- a closing message
- a consumer with a selector.

Groups may not be promised to stay with their session. Then a change does not count if the session
that the group left had certainly let go of all that it had got of the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.closings import Closings
from checkers.ends import Ends
from checkers.rows import Flags, Numbers, PlaceTable, ordered
from checkers.running import highest_before, segments, starts
from checkers.selective import SelectiveQueues

HANDFUL: Final = 5
"""The number of returns to sessions that had the group at which the group is split."""


@dataclass(frozen=True, slots=True)
class GroupDeliveries:
    """The deliveries of groups, one row for each.

    ``first`` flags the first delivery of each message, ``marked`` the deliveries that are marked
    as redeliveries. ``let_go`` says since when the session certainly did not hold the message any
    more (``checkers.lifecycle``).
    """

    place: npt.NDArray[np.int32]
    index: Numbers
    session: Numbers
    first: Flags
    marked: Flags
    let_go: Numbers

    def at(self, positions: Numbers) -> GroupDeliveries:
        """Return the deliveries at the given places in this table."""
        return GroupDeliveries(
            self.place[positions], self.index[positions], self.session[positions],
            self.first[positions], self.marked[positions], self.let_go[positions],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changes:
    """The facts that may explain why a group changed its session."""

    places: PlaceTable
    ends: Ends
    closings: Closings
    choosers: SelectiveQueues
    sticky: bool = True
    """True if a group is promised to stay with its session though that holds nothing of it."""


def alternating(every: GroupDeliveries, context: Changes) -> tuple[npt.NDArray[np.int32], Numbers]:
    """Return the groups that alternate, and the index of the delivery that shows it for each."""
    often = _change_often(every, len(context.places.named))
    deliveries = every.at(np.flatnonzero(often[every.place]))
    deliveries = deliveries.at(ordered(deliveries.place, deliveries.index))
    at = np.flatnonzero(deliveries.first)
    firsts = deliveries.at(at)
    changed = _changed(firsts)
    explained = np.ones(len(at), dtype=bool)
    same = firsts.place[1:] == firsts.place[:-1]
    explained[1:] = ~same | (at[1:] - at[:-1] > 1) | firsts.marked[1:] | firsts.marked[:-1]
    explained[1:] |= _explained(firsts, context)
    run = np.cumsum(explained)
    order = ordered(run, firsts.session, firsts.index)
    had = np.zeros(len(at), dtype=bool)
    had[order[1:]] = (run[order[1:]] == run[order[:-1]]) & (
        firsts.session[order[1:]] == firsts.session[order[:-1]]
    )
    counts = changed & had
    if not context.sticky:
        counts[1:] &= _holding(deliveries)[at[:-1]] >= firsts.index[1:]
    returns = np.cumsum(counts)
    since = np.maximum.accumulate(np.where(explained, returns, 0))
    late = np.flatnonzero(returns - since >= HANDFUL)
    late = late[starts(firsts.place[late].astype(np.int64))]
    return firsts.place[late], firsts.index[late]


def _change_often(every: GroupDeliveries, places: int) -> Flags:
    """Return by place whether a group changes its session more than a handful of times.

    Few groups do, and only their deliveries are then sorted.
    """
    at = np.flatnonzero(every.first)
    at = at[ordered(every.place[at], every.index[at])]
    place, session = every.place[at], every.session[at]
    changed = (session[1:] != session[:-1]) & (place[1:] == place[:-1])
    result: Flags = np.bincount(place[1:][changed], minlength=places) > HANDFUL
    return result


def _holding(deliveries: GroupDeliveries) -> Numbers:
    """Return since when the session of each delivery has let go of it and all before it.

    *All before it* are the earlier deliveries of the same group to the same session.
    """
    order = ordered(deliveries.place, deliveries.session, deliveries.index)
    let_go = deliveries.let_go[order]
    result = np.empty(len(order), dtype=np.int64)
    session_part = segments(deliveries.place[order], deliveries.session[order])
    result[order] = np.maximum(let_go, highest_before(session_part, let_go))
    return result


def _changed(firsts: GroupDeliveries) -> Flags:
    """Flag the first deliveries that went to another session than the one before."""
    result = np.zeros(len(firsts.place), dtype=bool)
    result[1:] = firsts.session[1:] != firsts.session[:-1]
    return result


def _explained(firsts: GroupDeliveries, context: Changes) -> Flags:
    """Flag the first deliveries before which something explains a change of session.

    The result has a flag for each first delivery but the very first.
    """
    place, before, after = firsts.place[1:], firsts.index[:-1], firsts.index[1:]
    result: Flags = context.closings.freed(place, after) >= before
    lost = context.ends.sessions.find("lost", context.places.runs()[place], firsts.session[:-1])
    is_lost_later = lost > after
    if is_lost_later.any():
        order = ordered(firsts.place, firsts.session, firsts.index)
        following = np.append(order[1:], -1)
        returns = np.zeros(len(order), dtype=bool)
        returns[order] = (firsts.place[following] == firsts.place[order]) & (
            firsts.session[following] == firsts.session[order]
        )
        result |= is_lost_later & ~returns[:-1]
    for code in np.unique(place).tolist():
        run, queue, _ = context.places.named[code]
        place_positions = np.flatnonzero(place == code)
        for ended in (context.ends.endings.get((run, queue_name)) for queue_name in {queue, None}):
            if ended is not None:
                result[place_positions] |= np.searchsorted(ended, after[place_positions]) > np.searchsorted(
                    ended, before[place_positions]
                )
        choosers = context.choosers.of(run, queue)
        if choosers is not None:
            result[place_positions] |= choosers.all.meet(before[place_positions], after[place_positions])
    return result
