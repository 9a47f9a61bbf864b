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

import numpy as np

from checkers.lifecycle import Lives
from checkers.rows import NONE, Flags, ordered
from checkers.running import highest_before, segments
from checkers.tally import InstanceTally


def find(lives: Lives, grouped: Flags, tally: InstanceTally) -> None:
    """``grouped`` says of each place whether it is a group: ungrouped messages promise no order."""
    at = np.flatnonzero(
        (lives.sent != NONE)
        & (lives.delivered != NONE)
        & (lives.message != NONE)
        & grouped[lives.place]
        & lives.in_turn
        & lives.timely
    )
    if not len(at):
        return
    by_group = at[ordered(lives.place[at], lives.delivered[at])]
    latest = highest_before(segments(lives.place[by_group]), lives.sent[by_group])
    ok = np.where(lives.ok == NONE, lives.sealed, lives.ok)[by_group]
    late = by_group[(latest != NONE) & (ok != NONE) & (latest > ok)]
    tally.add("reordered-realtime", lives.place[late], lives.delivered[late], lives.message[late])

    by_producer = at[ordered(lives.place[at], lives.producer[at], lives.delivered[at])]
    sequence = lives.sequence[by_producer]
    highest = highest_before(segments(lives.place[by_producer], lives.producer[by_producer]), sequence)
    late = by_producer[
        (highest != NONE) & (sequence != NONE) & (lives.ok[by_producer] != NONE) & (highest > sequence)
    ]
    tally.add("reordered", lives.place[late], lives.delivered[late], lives.message[late])
