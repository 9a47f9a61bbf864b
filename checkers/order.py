"""Whether messages came in order: reordered and reordered-realtime.

Why the *late* message is named and not the early one: of 1, 2, 3, 0 only 0 is out of place.

Only a message whose send is certain can be late. One of unknown outcome may still be on its way, in
the buffers of a connection that its client has given up, when the producer's next message goes over
another: no broker can know their order. But it was stored by the time at which the process that
took it was seen to be gone (``checkers.deaths``), and what was sent after that comes after it.

What asked for a delay or a priority has no turn to keep, and is left out. So is what may have
expired by its first delivery: sent in its turn to a session whose connection was slow, it did not
go to the next session with what came behind it, and was read last.

A message is late if some message before it (by first delivery, in its group) should have come after
it: for ``reordered`` one of its producer with a higher sequence, for ``reordered-realtime`` any
whose send was invoked after its own was ok. Both are running maxima over one order, so O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checkers.lifecycle import Lives
from checkers.ordinary import Ordinary
from checkers.rows import FOREVER, NONE, Flags, Numbers, joined, ordered
from checkers.running import exceeded, falls
from checkers.tally import InstanceTally


@dataclass(frozen=True, slots=True)
class Turns:
    """One row a message that has a turn to keep; ``FOREVER`` for what nobody knows or never was.

    Since ``begun`` it can be in its queue, from ``stored`` on it certainly is. ``certain``: its
    send is.
    """

    place: npt.NDArray[np.int32]
    message: Numbers
    begun: Numbers
    stored: Numbers
    delivered: Numbers
    producer: Numbers
    sequence: Numbers
    certain: Flags

    @classmethod
    def of(cls, lives: Lives, at: Numbers, begun: Numbers) -> Turns:
        """Of some lives."""
        stored = np.where(lives.ok == NONE, lives.sealed, lives.ok)[at]
        delivered = lives.delivered[at]
        return cls(
            lives.place[at], lives.message[at], begun[at], np.where(stored == NONE, FOREVER, stored),
            np.where(delivered == NONE, FOREVER, delivered), lives.producer[at], lives.sequence[at],
            lives.ok[at] != NONE,
        )  # fmt: skip

    @classmethod
    def ordinary(cls, some: Ordinary, places: Flags) -> Turns:
        """Of ordinary messages of some places."""
        every = np.ones(len(some.place), dtype=bool)
        whole = cls(
            some.place, some.message, some.sent, some.ok, some.delivered, some.producer, some.sequence, every
        )
        return whole if places.all() else whole.at(np.flatnonzero(places[some.place]))

    def at(self, some: Numbers) -> Turns:
        """Some of them."""
        return Turns(*(getattr(self, name)[some] for name in Turns.__slots__))

    def overtaken(self) -> Numbers:
        """Those before which one came that was to be sent only when they had been stored."""
        by_group = ordered(self.place, self.delivered)
        return by_group[exceeded(self.stored[by_group], self.begun[by_group], self.place[by_group])]


def turns(lives: Lives, ordinary: Ordinary, grouped: Flags) -> Turns:
    """Of delivered messages of groups; ``grouped`` says of each place whether it is one."""
    at = np.flatnonzero(
        (lives.sent != NONE)
        & (lives.delivered != NONE)
        & (lives.message != NONE)
        & grouped[lives.place]
        & lives.in_turn
        & lives.timely
    )
    return joined([Turns.of(lives, at, lives.sent), Turns.ordinary(ordinary, grouped)])


def find(some: Turns, overtaken: Numbers, tally: InstanceTally) -> None:
    """Of groups; ungrouped messages promise no order."""
    tally.add("reordered-realtime", some.place[overtaken], some.delivered[overtaken], some.message[overtaken])
    by_producer = ordered(some.place, some.producer, some.delivered)
    late = by_producer[falls(some.sequence[by_producer], some.place[by_producer], some.producer[by_producer])]
    late = late[some.certain[late]]
    tally.add("reordered", some.place[late], some.delivered[late], some.message[late])
