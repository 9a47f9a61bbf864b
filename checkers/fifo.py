"""Whether a group is a FIFO queue: not-linearizable.

What is an enqueue, and what a dequeue, in a history of sends and pushed deliveries
(``checkers.linearizability`` has the algorithm):

An enqueue takes effect between the send's invocation (of a message sent once, in a transaction, the
commit's) and its ``ok`` (the commit's). One of unknown outcome has no end, but where the process
that took it was seen to be gone before the message was delivered (``checkers.deaths``); if its
message was never delivered it need not have happened. One that failed or was rolled back did not.

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
never heard of, nobody knows when it was taken; and a subscription of a topic, or a consumer with a
selector, leaves out what is not for it. Nothing is asked of those, nor of what may have expired by
its first delivery (``checkers.order``), nor of what asked for a delay or a priority.

Where every message was delivered, and none of it in a transaction, that is just what
``reordered-realtime`` says (``checkers.order``): a group in which nothing was overtaken so, nor was
left over or committed, is a FIFO queue, and no more is asked of it.

Left to other rules: what was delivered before it can have been enqueued (phantom,
read-uncommitted), though its send failed (aborted-delivery), or again (duplicate and others).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.lifecycle import Lives
from checkers.linearizability import Values, overtakings
from checkers.order import Turns
from checkers.ordinary import Ordinary
from checkers.rows import NONE, Flags, joined
from checkers.tally import InstanceTally

NAME: Final = "not-linearizable"


def find(
    lives: Lives, ordinary: Ordinary, grouped: Flags, lossless: Flags, overtaken: Flags, tally: InstanceTally
) -> None:
    """One instance a group: the delivery that overtook first, of what was sent for certain first.

    ``grouped`` says of each place whether it is a group, ``lossless`` whether each of its messages
    must come to somebody, ``overtaken`` whether one was by what ``checkers.order`` knows.
    """
    never = lives.delivered == NONE
    possible = grouped[lives.place] & (lives.message != NONE) & ~lives.aborted & lives.in_turn & lives.timely
    counts = possible & (lives.begun != NONE) & (lives.delivered > lives.begun)
    readable = lossless.copy()
    readable[lives.place[~never & (lives.message == NONE)]] = False
    counts |= possible & lives.untaken & readable[lives.place]
    open_ = overtaken.copy()
    open_[lives.place[counts & (never | (lives.begun != lives.sent))]] = True
    at = np.flatnonzero(counts & open_[lives.place])
    mine = joined([Turns.of(lives, at, lives.begun), Turns.ordinary(ordinary, grouped & open_)])
    values = Values(
        queue=mine.place.astype(np.int64), name=mine.message, enqueue_invoke=mine.begun,
        enqueue_return=mine.stored, dequeue_invoke=mine.delivered, dequeue_return=mine.delivered,
    )  # fmt: skip
    early, late = overtakings(values)
    tally.add(NAME, mine.place[early], mine.delivered[early], mine.message[early], keys=mine.message[late])
