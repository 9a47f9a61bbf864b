"""The messages that close their group, and what a closed group permits.

A closing message frees its group when it is given out. The next message may go to another session,
and be read there before the closing message, or an earlier one, is read. So the order between what
came before a closing message and what came after it is off until the closing message was read. Two
sessions may hold messages of the group on either side of it.

A closing message that is given back and comes again frees the group again. So for the sessions that
hold messages it counts until its last delivery if it was acknowledged for certain, else for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.lifecycle import Lives
from checkers.rows import FOREVER, NONE, Flags, Numbers, ordered

_BITS: Final = 33
_MASK: Final = 2**_BITS - 1


@dataclass(frozen=True, slots=True)
class Closings:
    """The closing messages of all groups, in order of the group and of ``begun``.

    ``begun`` is the row from which on the message may have been stored. ``read`` is the highest row
    of a first delivery, among this message and all before it in its group. ``over`` is the row
    after which none of these is given out any more. All three are packed with the group.
    """

    place: npt.NDArray[np.int32]
    begun: Numbers
    read: Numbers
    over: Numbers

    @classmethod
    def of(cls, lives: Lives) -> Closings:
        """Return the closing messages among some messages."""
        at = np.flatnonzero((lives.closing != NONE) & (lives.since != NONE) & ~lives.aborted)
        at = at[ordered(lives.place[at], lives.since[at])]
        group = lives.place[at].astype(np.int64) << _BITS
        delivered = lives.delivered[at]
        read = group | np.where(delivered == NONE, FOREVER, delivered)
        over = group | lives.closing[at]
        return cls(
            lives.place[at], group | lives.since[at], np.maximum.accumulate(read), np.maximum.accumulate(over)
        )

    def any_in(self, places: int) -> Flags:
        """Flag the places that have a closing message."""
        result = np.zeros(places, dtype=bool)
        result[self.place] = True
        return result

    def unread(self, place: npt.NDArray[np.int32], begun_by: Numbers, read: Numbers) -> Flags:
        """Flag the rows of groups before which a closing message may have been given out unread.

        Such a message may have been stored before ``begun_by``, and was first read after ``read``.
        """
        return self._latest(self.read, place, begun_by) > read

    def freed(self, place: npt.NDArray[np.int32], index: Numbers) -> Numbers:
        """Return the row up to which the closing messages count that were sent before each row.

        -1 where the group had none.
        """
        return self._latest(self.over, place, index)

    def _latest(self, column: Numbers, place: npt.NDArray[np.int32], before: Numbers) -> Numbers:
        if not len(column):
            return np.full(len(place), -1, dtype=np.int64)
        group = place.astype(np.int64)
        at = np.searchsorted(self.begun, (group << _BITS) | before, "left") - 1
        entry = column[np.maximum(at, 0)]
        return np.where((at >= 0) & (entry >> _BITS == group), entry & _MASK, -1)
