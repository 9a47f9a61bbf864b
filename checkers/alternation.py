"""Groups whose first deliveries alternate between sessions: group-split.

A group is one session's until that ends, or a message that closes the group is given out. Where
acknowledgements are missing nothing proves what a session still holds. But a group that goes back
and forth has not changed its owner each time. It is split if it returns five times to sessions that
had it, one change after the other, and nothing explains one of them: between two sessions those are
six changes, more than a handful.

What explains a change, and every change before it: a redelivery in the group, since what was given
back goes to another session; a delivery that says it is one; the end of a session of the queue, or
a lost session that the client noticed later; a closing message; a consumer with a selector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.closings import Closings
from checkers.ends import Ends
from checkers.rows import Flags, Numbers, PlaceTable, ordered
from checkers.running import starts
from checkers.selective import SelectiveQueues

HANDFUL: Final = 5
"""How often a group returns to a session that had it when it is split."""


@dataclass(frozen=True, slots=True)
class GroupDeliveries:
    """The deliveries of groups, and which are the ``first`` of their messages.

    ``marked``: a delivery says that it is not.
    """

    place: npt.NDArray[np.int32]
    index: Numbers
    session: Numbers
    first: Flags
    marked: Flags

    def at(self, some: Numbers) -> GroupDeliveries:
        """Some of them."""
        return GroupDeliveries(
            self.place[some], self.index[some], self.session[some], self.first[some], self.marked[some]
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """What may explain a change of session."""

    places: PlaceTable
    ends: Ends
    closings: Closings
    choosers: SelectiveQueues


def alternating(every: GroupDeliveries, beside: Changes) -> tuple[npt.NDArray[np.int32], Numbers]:
    """Return the groups that alternate, and of each the delivery that exceeds the handful."""
    some = every.at(ordered(every.place, every.index))
    firsts = some.at(np.flatnonzero(some.first))
    changed = _changed(firsts)
    often = np.bincount(firsts.place[changed], minlength=len(beside.places.named)) > HANDFUL
    some = some.at(np.flatnonzero(often[some.place]))
    at = np.flatnonzero(some.first)
    firsts = some.at(at)
    if not len(at):
        return firsts.place, firsts.index
    changed = _changed(firsts)
    explained = np.ones(len(at), dtype=bool)
    same = firsts.place[1:] == firsts.place[:-1]
    explained[1:] = ~same | (at[1:] - at[:-1] > 1) | firsts.marked[1:] | firsts.marked[:-1]
    explained[1:] |= _explained(firsts, changed, beside)
    run = np.cumsum(explained)
    order = ordered(run, firsts.session, firsts.index)
    had = np.zeros(len(at), dtype=bool)
    had[order[1:]] = (run[order[1:]] == run[order[:-1]]) & (
        firsts.session[order[1:]] == firsts.session[order[:-1]]
    )
    returns = np.cumsum(changed & ~explained & had)
    since = np.maximum.accumulate(np.where(explained, returns, 0))
    late = np.flatnonzero(returns - since >= HANDFUL)
    late = late[starts(firsts.place[late].astype(np.int64))]
    return firsts.place[late], firsts.index[late]


def _changed(firsts: GroupDeliveries) -> Flags:
    result = np.zeros(len(firsts.place), dtype=bool)
    result[1:] = (firsts.place[1:] == firsts.place[:-1]) & (firsts.session[1:] != firsts.session[:-1])
    return result


def _explained(firsts: GroupDeliveries, changed: Flags, beside: Changes) -> Flags:
    """Return before which first deliveries, but the very first, something explains a change."""
    place, before, after = firsts.place[1:], firsts.index[:-1], firsts.index[1:]
    result: Flags = beside.closings.freed(place, after) >= before
    lost = beside.ends.sessions.find("lost", beside.places.runs()[place], firsts.session[:-1])
    left = changed[1:] & (lost > after)
    if left.any():
        order = ordered(firsts.place, firsts.session, firsts.index)
        following = np.append(order[1:], -1)
        returns = np.zeros(len(order), dtype=bool)
        returns[order] = (
            (following >= 0)
            & (firsts.place[following] == firsts.place[order])
            & (firsts.session[following] == firsts.session[order])
        )
        result |= left & ~returns[:-1]
    for code in np.unique(place).tolist():
        run, queue, _ = beside.places.named[code]
        here = np.flatnonzero(place == code)
        for ended in (beside.ends.endings.get((run, one)) for one in {queue, None}):
            if ended is not None:
                result[here] |= np.searchsorted(ended, after[here]) > np.searchsorted(ended, before[here])
        choosers = beside.choosers.of(run, queue)
        if choosers is not None:
            result[here] |= choosers.all.meet(before[here], after[here])
    return result
