"""Copies of one message for several subscriptions of its topic.

Where sends are atomic, a message that one subscription got was given to the others, too. Take a
send of unknown outcome, outside of transactions. If one subscription shows its copy and another
does not, the other copy is ``lost``, kind not copied. The other subscription must have existed from
before the send to the end of the test, and its selector must match. Its broker must be of the node
that showed the copy, because a message that is forwarded to other nodes may arrive at any time.
Copies of messages that were sent in transactions are judged by ``checkers.transactions``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.deaths import Deaths
from checkers.lifecycle import Lives
from checkers.rows import (
    ACK_INVOKE,
    BROWSE,
    DELIVER,
    NACK_INVOKE,
    NONE,
    SEND_INVOKE,
    Flags,
    Numbers,
    Place,
    PlaceTable,
    Rows,
    lowest,
)
from checkers.skipped import Audience
from checkers.subscriptions import Subscriptions, split

_NOWHERE: Final = -1
"""The node of a subscription whose brokers are of several nodes."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """The copies of messages; the copies of one message have one ``number``.

    The number is ``NONE`` for a message of no subscription. ``shown`` is the first row that shows
    any copy.
    """

    number: Numbers
    shown: Numbers


def siblings_of(places: PlaceTable, lives: Lives, shown_rows: Numbers) -> Siblings:
    """Return which copies are of one message; ``shown_rows`` has the first row that shows each."""
    topics: dict[tuple[int, str, str | None], int] = {}
    of_place = np.full(len(places.named), NONE, dtype=np.int64)
    for n, (run, queue, group) in enumerate(places.named):
        subscription = split(queue)
        if subscription is not None:
            of_place[n] = topics.setdefault((run, subscription[0], group), len(topics))
    number = np.full(len(lives.place), NONE, dtype=np.int64)
    at = np.flatnonzero(of_place[lives.place] != NONE)
    if not len(at):
        return Siblings(number, number)
    _, message = np.unique(lives.message[at], return_inverse=True)
    _, number[at] = np.unique(message * len(topics) + of_place[lives.place[at]], return_inverse=True)
    together = number[at]
    visible = np.flatnonzero(shown_rows[at] != NONE)
    first_row = lowest(together[visible], shown_rows[at[visible]], int(together.max()) + 1)
    first_shown = np.full(len(number), NONE, dtype=np.int64)
    first_shown[at] = first_row[together]
    return Siblings(number, first_shown)


def homes(subscriptions: Subscriptions, deaths: Deaths) -> Numbers:
    """Return the node of the brokers of each subscription; ``_NOWHERE`` if their nodes differ."""
    nodes = [
        {deaths.node(run, broker) for broker in history.brokers}
        for (run, _), history in zip(subscriptions.numbers, subscriptions.histories, strict=True)
    ]
    return np.array([min(node) if len(node) == 1 else _NOWHERE for node in nodes], dtype=np.int64)


def not_copied(
    rows: Rows, places: PlaceTable, lives: Lives, siblings: Siblings, owed: Flags, audience: Audience
) -> Flags:
    """Return the messages of unknown outcome of which only another subscription shows a copy."""
    unknown: Flags = owed & (siblings.shown != NONE) & (lives.ok == NONE) & ~lives.aborted
    if not unknown.any():
        return unknown
    sends, answering = rows.of(SEND_INVOKE), rows.of(DELIVER, BROWSE)
    for decided in (sends[rows.transaction[sends] != NONE], answering, rows.of(ACK_INVOKE, NACK_INVOKE)):
        unknown[rows.id[decided]] = False
    heard = np.array([not audience.is_unheard(place) for place in places.named], dtype=bool)
    at = np.flatnonzero(unknown & heard[lives.place])
    at = at[~_may_be_dead(places, lives, at, audience)]
    showing = answering[siblings.number[rows.id[answering]] != NONE]
    showing = showing[rows.index[showing] > lives.sent[rows.id[showing]]]
    result = np.zeros(rows.messages, dtype=bool)
    if not len(at) or not len(showing):
        return result
    subscriptions, deaths = audience.subscriptions, audience.deaths
    home = homes(subscriptions, deaths)[subscriptions.number(places.named)[lives.place[at]]]
    number = np.concatenate([siblings.number[at], siblings.number[rows.id[showing]]])
    _, node = np.unique(np.concatenate([home, deaths.nodes(rows, showing)]), return_inverse=True)
    copy = number * (int(node.max()) + 1) + node
    result[at] = np.isin(copy[: len(at)], copy[len(at) :])
    return result


def _may_be_dead(places: PlaceTable, lives: Lives, at: Numbers, audience: Audience) -> Flags:
    """Return which of some messages may be dead letters that no store keeps.

    No session refused them; but where whatever is given back counts, sessions may have held them.
    """
    dead = np.zeros(len(at), dtype=bool)
    promises = audience.promises
    if promises.keeps_dead_letters or promises.delivery_attempts < 0:
        return dead
    attempts = np.zeros(len(at), dtype=np.int64)
    if promises.attempts == "given back":
        for place in np.unique(lives.place[at]).tolist():
            run, queue, _ = places.named[place]
            is_in_place = lives.place[at] == place
            attempts[is_in_place] = audience.ends.held(run, queue, lives.sent[at[is_in_place]])
    return attempts >= promises.delivery_attempts


def is_sibling(place: Place, other: Place) -> bool:
    """Return whether two places are of subscriptions of one topic, and of one group."""
    topics = split(place[1]), split(other[1])
    same = topics[0] is not None and topics[1] is not None and topics[0][0] == topics[1][0]
    return same and (place[0], place[2]) == (other[0], other[2])


def without_siblings(place: Place, places: Iterable[Place]) -> set[Place]:
    """Return the places that are neither the given one nor siblings of it."""
    return {other for other in places if other != place and not is_sibling(place, other)}
