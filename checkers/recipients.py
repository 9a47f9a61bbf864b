"""The recipients of messages: which messages a subscription is owed, and which it must not get.

The rules are those of ``checkers.subscriptions`` and ``checkers.temporaries``, here on columns. Of
a message of another queue, only the selectors of the sessions that got it are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.deletions import Deletions
from checkers.ends import Ends
from checkers.interests import Interests
from checkers.lifecycle import Lives
from checkers.rows import (
    BROWSE,
    DELIVER,
    NONE,
    Flags,
    Numbers,
    PlaceTable,
    Rows,
    earliest,
    lowest,
)
from checkers.running import segments, starts
from checkers.selection import Selection
from checkers.subscriptions import Subscriptions
from checkers.temporaries import Temporaries

AFTERLIFE: Final = ("dead-letter", "expired")
"""The stores that keep a subscription's messages when the subscription is dropped."""


@dataclass(frozen=True, slots=True)
class Recipients:
    """The messages owed to their place, and the first rows that show messages where not due.

    ``earlier``: a subscription that began after the send got the message, or a store keeps it for
    that. ``unwanted``: a session whose selector does not match got it. ``anothers``: another
    connection than the owner of its temporary queue got it. ``outlived``: it is in a store though
    its temporary queue has ended, or anywhere though its queue was deleted. A column is None if
    there is no such row at all.
    """

    owed: Flags
    earlier: Numbers | None = None
    unwanted: Numbers | None = None
    anothers: Numbers | None = None
    outlived: Numbers | None = None


def recipients(
    rows: Rows,
    places: PlaceTable,
    lives: Lives,
    ends: Ends,
    subscriptions: Subscriptions,
    temporaries: Temporaries,
    interests: Interests,
    deletions: Deletions,
) -> Recipients:
    """Return the recipients of whole messages."""
    owed = np.ones(rows.messages, dtype=bool)
    topics = places.topics()
    anothers = outlived = None
    brief = places.temporaries()[lives.place]
    if brief.any():
        queue = temporaries.number(places.named)[lives.place]
        owed[brief] = temporaries.owed(rows, queue, lives.since, interests.deaths)[brief]
        anothers, outlived = temporaries.strayed(rows, queue), temporaries.outlived(rows, queue, lives.over)
    if places.deleted().any():
        owed &= deletions.owed(rows, places, lives.since)
        again = deletions.shown_again(rows, places, lives.over, ends)
        if again is not None:
            outlived = again if outlived is None else earliest(outlived, again)
    if not topics.any() and not subscriptions.selectors:
        return Recipients(owed, anothers=anothers, outlived=outlived)
    selection = Selection(rows)
    number = subscriptions.number(places.named)[lives.place]
    of_topics = topics[lives.place]
    owed[of_topics] = owed_to_subscriptions(number, lives.since, subscriptions, selection)[of_topics]
    owed &= interests.known(rows, places, lives.since, number, subscriptions)
    return Recipients(
        owed,
        _earlier(rows, lives, ends, subscriptions, number),
        _unwanted(rows, places, subscriptions, selection),
        anothers,
        outlived,
    )


def owed_to_subscriptions(
    number: Numbers, sent: Numbers, subscriptions: Subscriptions, selection: Selection
) -> Flags:
    """Return which messages their subscription is owed to the end of the test.

    ``number`` is the subscription of each message (``NONE`` if it has none), ``sent`` the first
    send that may have reached it.
    """
    owed = np.zeros(len(number), dtype=bool)
    subscribed = np.flatnonzero(number != NONE)
    owed[subscribed] = sent[subscribed] > subscriptions.since[number[subscribed]]
    for n, selector in enumerate(subscriptions.wanted):
        if selector is not None:
            matched = subscribed[number[subscribed] == n]
            owed[matched] &= selection.wants(selector)[matched]
    return owed


def _earlier(
    rows: Rows, lives: Lives, ends: Ends, subscriptions: Subscriptions, number: Numbers
) -> Numbers | None:
    at = rows.of(DELIVER, BROWSE)
    at = at[number[rows.id[at]] != NONE]
    if not len(at):
        return None
    begun = ends.sessions.find("begun", rows.run[at], rows.session[at])
    of_dead = np.isin(rows.value.codes[at], [rows.value.code(store) for store in AFTERLIFE])
    stored = np.where(of_dead, subscriptions.begun[number[rows.id[at]]], rows.index[at])
    since = np.where(rows.kind[at] == BROWSE, stored, begun)
    absent = subscriptions.last_absent(number[rows.id[at]], since)
    over = lives.over[rows.id[at]]
    wrong = at[(over != NONE) & (over < absent)]
    return lowest(rows.id[wrong], rows.index[wrong], rows.messages) if len(wrong) else None


def _unwanted(
    rows: Rows, places: PlaceTable, subscriptions: Subscriptions, selection: Selection
) -> Numbers | None:
    if not subscriptions.selectors:
        return None
    unwanted = np.full(rows.messages, NONE, dtype=np.int64)
    at = rows.of(DELIVER)
    at = at[selection.sent[rows.id[at]]]
    names = {queue: n for n, (_, queue, _) in enumerate(places.named)}
    queue = np.array([names[queue] for _, queue, _ in places.named], dtype=np.int64)[rows.place[at]]
    order = np.lexsort((queue, rows.session[at], rows.run[at]))
    at, queue = at[order], queue[order]
    cuts = starts(segments(rows.run[at], rows.session[at], queue))[1:]
    for session_rows in np.split(at, cuts) if len(at) else ():
        run, name, _ = places.named[rows.place[session_rows[0]]]
        selectors = subscriptions.selectors_of(run, int(rows.session[session_rows[:1]][0]), name)
        wishes = [selection.wants(selector) for selector in selectors if selector is not None]
        if wishes and None not in selectors:
            wrong = session_rows[~np.logical_or.reduce(wishes)[rows.id[session_rows]]]
            index = lowest(rows.id[wrong], rows.index[wrong], rows.messages)
            unwanted = earliest(unwanted, index)
    return unwanted if (unwanted != NONE).any() else None
