"""The rule that a group is a FIFO queue: not-linearizable.

Enqueues and dequeues are taken from sends and pushed deliveries
(``checkers.linearizability`` has the algorithm):

An enqueue takes effect between the invocation of the send and its ``ok``. For a message that was
sent once, in a transaction, these are the invocation and the ``ok`` of the commit. An enqueue of
unknown outcome has no end, unless the process that took the send was seen to be gone before the
message was delivered (``checkers.deaths``). If its message was never delivered, it need not have
happened. A send that failed or was rolled back is no enqueue. If a message was sent more than once,
its enqueue begins with the first send that did not certainly fail. It ends with the end of the
first send that was certain.

A dequeue is a message's first delivery, at the moment at which that was recorded. A push has no
invocation and is read some time after it was made. A pushed message may be lost unread with its
connection. Still, the first deliveries of a group that a correct broker has made are recorded in
the group's order. Let x be in front of y. Within a session pushes arrive in order. A group belongs
to one session at a time, and what a session leaves unsettled goes to the next session in order.
What a session settled, it had read before it settled it, and so before the next session got
anything. So when some session is the first to read y, x had been read by the same session or an
earlier one.

So a message that was not delivered before a later one of its group cannot be under way: at the end
of a history, whole or not, such a group is no FIFO queue. These messages are left out:

- any message under a guarantee of at most once, which lets messages vanish
- a message that is acknowledged, or that may have arrived unreadably, or may have been taken by a
  receive of unknown outcome: it is not known when it was taken
- messages of a topic's subscription, which leaves out what is not for it
- a message that may have expired by its first delivery (``checkers.order``)
- a message that asked for a delay or a priority

A consumer with a selector undoes the order of some messages (``checkers.selective``). Then a class
of messages is a queue of its own, in which those messages count that cannot have passed it.

Where every message was delivered, and none of them in a transaction, the rule says the same as
``reordered-realtime`` (``checkers.order``). So a group in which that rule found nothing, and in
which nothing was left over or committed, is a FIFO queue and is not examined further.

Other rules judge messages that were delivered before they can have been enqueued (phantom,
read-uncommitted), though their send failed (aborted-delivery), or again (duplicate and others).
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
    """Add one instance for each group that is no FIFO queue to the tally.

    The instance is the first delivery that overtook a message; among several overtaken messages it
    names the one that was certainly sent first. ``grouped`` flags the places that are groups, and
    ``lossless`` those of which each message must be delivered. ``overtaken`` flags those in which
    ``checkers.order`` found a message that was overtaken. ``compare`` says which messages must keep
    an order.
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
    turns = joined([Turns.of(lives, at, lives.begun), Turns.ordinary(ordinary, open_)])
    early, late = _overtakings(turns, compare(turns))
    tally.add(
        NAME, turns.place[early], turns.delivered[early], turns.message[early], keys=turns.message[late]
    )


def _overtakings(turns: Turns, compared: Sequence[Comparison]) -> tuple[Numbers, Numbers]:
    """Return one pair (early, late) of each group that has one, as places in ``turns``.

    ``early`` was delivered too early, ``late`` is the message that it overtook.
    """
    pairs = [_overtakings_of(turns, comparison) for comparison in compared if comparison.until is None]
    early, late = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = ordered(turns.place[early], turns.delivered[early], turns.stored[late], turns.message[late])
    first_of = order[starts(turns.place[early[order]])]
    return early[first_of], late[first_of]


def _overtakings_of(turns: Turns, comparison: Comparison) -> tuple[Numbers, Numbers]:
    """Return the pairs of one comparison.

    Where some messages may be only the late or only the early one of a pair, each message is passed
    twice. Its copy as the late one was never dequeued; the enqueue of its copy as the early one
    never returned.
    """
    if comparison.at is None:
        return overtakings(_values(turns, turns.stored, turns.delivered))
    compared = turns.at(comparison.at)
    never = np.full(len(comparison.at), FOREVER, dtype=np.int64)
    late = _values(compared, np.where(comparison.late, compared.stored, FOREVER), never)
    early = _values(compared, never, np.where(comparison.early, compared.delivered, FOREVER))
    columns = {name: np.concatenate([getattr(late, name), getattr(early, name)]) for name in Values.__slots__}
    first, then = overtakings(Values(**columns))
    return comparison.at[first % max(1, len(comparison.at))], comparison.at[then % max(1, len(comparison.at))]


def _values(turns: Turns, stored: Numbers, delivered: Numbers) -> Values:
    return Values(
        queue=turns.place.astype(np.int64), name=turns.message, enqueue_invoke=turns.begun,
        enqueue_return=stored, dequeue_invoke=turns.delivered, dequeue_return=delivered,
    )  # fmt: skip
