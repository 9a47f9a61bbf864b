"""Whether a group is a FIFO queue: not-linearizable.

What is an enqueue, and what a dequeue, in a history of sends and pushed deliveries
(``checkers.linearizability`` has the algorithm):

An enqueue takes effect between the send's invocation (of a message sent once, in a transaction, the
commit's) and its ``ok`` (the commit's). One of unknown outcome has no end, but where the process
that took it was seen to be gone before the message was delivered (``checkers.deaths``); if its
message was never delivered it need not have happened. One that failed or was rolled back did not.
Of a message that was sent more than once it takes effect between the begin of the first send that
did not certainly fail and the end of the first that was certain.

A dequeue is a message's first delivery, at the moment at which that was recorded. A push has no
invocation, is read some time after it was made, and what was pushed may be lost with its connection
unread. Still, the first deliveries of a group that a correct broker has made are recorded in its
order. Let x be in front of y. Within a session pushes arrive in order. A group belongs to one
session at a time, and what that leaves unsettled goes to the next in order; what it settled it had
read before it settled it, and so before the next got anything. So where y was read first by some
session, x had been read by the same or by one before it.

So what was never delivered before something behind it was cannot be under way: at the end of a
history, whole or not, such a group is no FIFO queue. But a guarantee of at most once lets messages
vanish; of one that is acknowledged, or may be what arrived unreadably or what was received and
never heard of, nobody knows when it was taken; and a subscription of a topic leaves out what is not
for it. Nothing is asked of those, nor of what may have expired by its first delivery
(``checkers.order``), nor of what asked for a delay or a priority. A consumer with a selector undoes
the order of some messages (``checkers.selective``): a class of messages is a queue of its own then,
in which those count that cannot have passed it.

Where every message was delivered, and none of it in a transaction, that is just what
``reordered-realtime`` says (``checkers.order``): a group in which nothing was overtaken so, nor was
left over or committed, is a FIFO queue, and no more is asked of it.

Left to other rules: what was delivered before it can have been enqueued (phantom,
read-uncommitted), though its send failed (aborted-delivery), or again (duplicate and others).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from checkers.lifecycle import Lives
from checkers.linearizability import Values, overtakings
from checkers.order import Turns
from checkers.ordinary import Ordinary
from checkers.rows import FOREVER, NONE, Flags, Numbers, joined, ordered
from checkers.running import starts
from checkers.selective import Comparison
from checkers.tally import InstanceTally

NAME: Final = "not-linearizable"


def find(
    lives: Lives,
    ordinary: Ordinary,
    grouped: Flags,
    lossless: Flags,
    overtaken: Flags,
    compare: Callable[[Turns], Sequence[Comparison]],
    tally: InstanceTally,
) -> None:
    """One instance a group: the delivery that overtook first, of what was sent for certain first.

    ``grouped`` says of each place whether it is a group, ``lossless`` whether each of its messages
    must come to somebody, ``overtaken`` whether one was by what ``checkers.order`` knows;
    ``compare`` which messages must keep an order.
    """
    never = lives.delivered == NONE
    possible = grouped[lives.place] & ~lives.aborted & lives.in_turn & lives.timely
    counts = possible & (lives.begun != NONE) & (lives.delivered > lives.begun)
    readable = lossless.copy()
    readable[lives.place[~never & (lives.message == NONE)]] = False
    counts |= possible & lives.untaken & readable[lives.place]
    open_ = overtaken.copy()
    open_[lives.place[counts & (never | (lives.begun != lives.since))]] = True
    at = np.flatnonzero(counts & open_[lives.place])
    mine = joined([Turns.of(lives, at, lives.begun), Turns.ordinary(ordinary, open_)])
    early, late = _overtakings(mine, compare(mine))
    tally.add(NAME, mine.place[early], mine.delivered[early], mine.message[early], keys=mine.message[late])


def _overtakings(mine: Turns, compared: Sequence[Comparison]) -> tuple[Numbers, Numbers]:
    """Return one pair (early, late) of each group that has any."""
    found = [_overtakings_of(mine, one) for one in compared if one.until is None]
    early, late = (np.concatenate(some) for some in zip(*found, strict=True))
    order = ordered(mine.place[early], mine.delivered[early], mine.stored[late], mine.message[late])
    first_of = order[starts(mine.place[early[order]])]
    return early[first_of], late[first_of]


def _overtakings_of(mine: Turns, one: Comparison) -> tuple[Numbers, Numbers]:
    """Return the pairs of one comparison.

    Where some messages are only late ones or only early ones, each is given twice: as late it was
    never dequeued, as early nothing says that its enqueue returned.
    """
    if one.at is None:
        return overtakings(_values(mine, mine.stored, mine.delivered))
    some = mine.at(one.at)
    never = np.full(len(one.at), FOREVER, dtype=np.int64)
    late = _values(some, np.where(one.late, some.stored, FOREVER), never)
    early = _values(some, never, np.where(one.early, some.delivered, FOREVER))
    both = {name: np.concatenate([getattr(late, name), getattr(early, name)]) for name in Values.__slots__}
    first, then = overtakings(Values(**both))
    return one.at[first % max(1, len(one.at))], one.at[then % max(1, len(one.at))]


def _values(some: Turns, stored: Numbers, delivered: Numbers) -> Values:
    return Values(
        queue=some.place.astype(np.int64), name=some.message, enqueue_invoke=some.begun,
        enqueue_return=stored, dequeue_invoke=some.delivered, dequeue_return=delivered,
    )  # fmt: skip
