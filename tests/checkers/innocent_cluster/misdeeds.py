"""Misdeeds: what a broker of the cluster does wrong, so that its history must be accused.

Why planted in the broker and not in its rows: rows that are edited are seldom what a broker with
that bug would have left behind. Here the broker does wrong once (or, where that is the bug, all the
time), and everything after that follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from innocent_cluster.timeline import S

if TYPE_CHECKING:
    from innocent_cluster.messages import Copy
    from innocent_cluster.places import Place
    from innocent_cluster.world import World

AWAY = 20 * S
MANY = 12

CALM: Mapping[str, Any] = {
    "faults": (), "ack_wait": 0, "expiry": False, "delays": False, "late_drain": False, "page": None,
    "random_refusals": False,
}  # fmt: skip
"""Habits beside which a loss is certain."""
QUEUES = CALM | {"workloads": frozenset({"queue"}), "selectors": False}
GROUPS = QUEUES | {"groups": 2, "pairs": 1, "closes_groups": False, "priorities": False}
TOPICS = GROUPS | {"workloads": frozenset({"topics"})}
REFUSALS = CALM | {"workloads": frozenset({"refusals"}), "selectors": False, "nack": "requeue"}
TRANSACTIONS = CALM | {"workloads": frozenset({"transactions"}), "selectors": False}
FAILS_OVER = {"faults": ("kill", "kill"), "brokers": 2}


@dataclass(frozen=True)
class Misdeed:
    """A bug: which findings tell of it, and the habits of histories in which it can come about.

    ``lasts``: the broker does it at every opportunity, not once. ``counts``: whether it came about
    so that it must be found, by what the cluster knows at the end.
    """

    expected: frozenset[str]
    habits: Mapping[str, Any] = field(default_factory=dict)
    lasts: bool = False
    counts: Callable[[World], bool] = lambda _: True


def is_kept(world: World) -> bool:
    """The place of the victim exists at the end."""
    place = world.culprit.place
    return place is not None and not place.is_gone


def is_ended_after_more(world: World) -> bool:
    """The subscription ended after a later message of the producer and group had come.

    To the only session that it ever had: another may hold what was not read.
    """
    place, copy = world.culprit.place, world.culprit.copy
    assert place is not None
    assert copy is not None
    mine = copy.message.columns
    return (
        place.is_gone
        and place.members == 1
        and any(
            one.message.columns["sequence"] > mine["sequence"]
            and (one.message.columns["producer"], one.message.group) == (mine["producer"], copy.message.group)
            for _, one in place.read
        )
    )


def is_read_by_the_wrong_one(world: World) -> bool:
    """A client read what its selector excludes."""
    place = world.culprit.place
    assert place is not None
    return any(not session.matches(copy) for session, copy in place.read)


def is_read_after_expiry(world: World) -> bool:
    """A session that began long after a message had expired was given it."""
    place = world.culprit.place
    assert place is not None
    return any(
        copy.expires is not None and session.connection.opened > copy.expires + S
        for session, copy in place.read
    )


def is_dropped_for_certain(world: World) -> bool:
    """The victim was certainly sent, and nobody answered what became of it."""
    copy = world.culprit.copy
    assert copy is not None
    return is_kept(world) and copy.message.is_certain and not copy.message.answered


def is_back_for_certain(world: World) -> bool:
    """The victim was seen by a session or a store after the answers to all deletes of its queue."""
    place, copy = world.culprit.place, world.culprit.copy
    assert place is not None
    assert copy is not None
    requests = [
        request
        for one in world.administrators
        for request in one.requests
        if request.queue == place.name[0] and request.f == "delete"
    ]
    if any(request.outcome != "ok" for request in requests):
        return False
    last = max(request.answered or 0 for request in requests)
    return (is_kept(world) and copy in place.copies) or any(
        session.connection.opened > last for session, one in place.read if one is copy
    )


def is_certainly_dead(world: World) -> bool:
    """The victim was refused as often as it may be, with answers."""
    copy = world.culprit.copy
    assert copy is not None
    return copy.message.refusals >= world.habits.most_attempts


def alternates_often(world: World) -> bool:
    """The first deliveries of a group went to and fro between sessions."""
    place, copy = world.culprit.place, world.culprit.copy
    assert place is not None
    assert copy is not None
    readers = [session for session, one in place.read if one.message.group == copy.message.group]
    return sum(first != second for first, second in itertools.pairwise(readers)) > MANY


def _of(*expected: str) -> frozenset[str]:
    return frozenset(expected)


MISDEEDS: Mapping[str, Misdeed] = {
    "loses what a lost consumer held": Misdeed(_of("lost"), QUEUES, counts=is_kept),
    "loses a message at a fail-over": Misdeed(_of("lost"), QUEUES | FAILS_OVER, counts=is_kept),
    "loses what it answered to have taken": Misdeed(_of("lost"), QUEUES, counts=is_kept),
    "skips every other message of a plain subscription": Misdeed(
        _of("lost"), TOPICS, lasts=True, counts=is_ended_after_more
    ),
    "forgets a message of a subscription that is made anew": Misdeed(
        _of("lost"), TOPICS | {"churn": True, "selectors": True}, counts=is_ended_after_more
    ),
    "keeps a message for ever": Misdeed(_of("stuck"), QUEUES | {"groups": 0}, counts=is_kept),
    "delivers again after an ack": Misdeed(_of("duplicate", "resurrected"), QUEUES, counts=is_kept),
    "keeps a message of a deleted queue": Misdeed(
        _of("resurrected"), QUEUES | {"deletes": True, "send_again": False}, counts=is_back_for_certain
    ),
    "has an acknowledged message in its store": Misdeed(_of("resurrected"), QUEUES),
    "delivers an aborted send": Misdeed(_of("aborted-delivery", "read-uncommitted"), TRANSACTIONS),
    "swaps two messages of a group": Misdeed(_of("reordered", "reordered-realtime"), GROUPS),
    "commits a part of the sends": Misdeed(_of("torn-transaction", "lost"), TRANSACTIONS, counts=is_kept),
    "commits without an ack": Misdeed(_of("torn-transaction", "duplicate"), TRANSACTIONS, counts=is_kept),
    "copies a commit to one subscription": Misdeed(
        _of("torn-transaction", "lost"), TOPICS | {"workloads": frozenset({"topics", "transactions"})},
        counts=is_kept,
    ),
    "kills early": Misdeed(_of("died-early"), REFUSALS | {"most_attempts": 4, "attempts": "refused"}),
    "never kills": Misdeed(
        _of("duplicate"), REFUSALS | {"most_attempts": 2, "attempts": "refused"}, lasts=True,
        counts=is_certainly_dead,
    ),
    "loses a dead letter": Misdeed(_of("lost"), REFUSALS | {"most_attempts": 2}),
    "delivers what has expired": Misdeed(
        _of("expired-delivery"), QUEUES | {"expiry": True}, lasts=True, counts=is_read_after_expiry
    ),
    "drops what has expired": Misdeed(
        _of("lost"), QUEUES | {"expiry": True, "keeps_expired": True}, lasts=True,
        counts=is_dropped_for_certain,
    ),
    "delivers before it is due": Misdeed(_of("early-delivery"), QUEUES | {"delays": True}, lasts=True),
    "gives one message to two sessions": Misdeed(_of("double-delivery", "duplicate"), QUEUES),
    "gives a group to two sessions": Misdeed(
        _of("group-split", "reordered", "reordered-realtime"), GROUPS | {"prefetch": 4, "hold": S // 2},
        lasts=True, counts=alternates_often,
    ),
    "does not count": Misdeed(_of("count-stuck"), REFUSALS | {"marks": "always"}, lasts=True),
    "does not mark": Misdeed(_of("unflagged-redelivery"), REFUSALS | {"marks": "always"}),
    "changes a header": Misdeed(_of("corrupted"), QUEUES | {"headers": True}),
    "changes a body": Misdeed(_of("corrupted"), QUEUES),
    "delivers what nobody sent": Misdeed(_of("phantom"), QUEUES),
    "delivers what a selector excludes": Misdeed(
        _of("not-subscribed"), QUEUES | {"selectors": True}, counts=is_read_by_the_wrong_one
    ),
    "refuses an ack and forgets the message": Misdeed(_of("lost"), QUEUES, counts=is_kept),
    "is away for long": Misdeed(_of("unavailable"), QUEUES),
}  # fmt: skip


class Culprit:
    """The broker that does wrong: whether it has, and to what."""

    def __init__(self, world: World, name: str | None) -> None:
        self.world, self.name = world, name
        self.misdeed = None if name is None else MISDEEDS[name]
        self.has_struck = False
        self.place: Place | None = None
        self.copy: Copy | None = None
        self._patience = world.chance.randrange(4) if name is not None else 0

    def strikes(
        self, name: str, place: Place | None = None, copy: Copy | None = None, *, is_certain: bool = True
    ) -> bool:
        """Whether the broker does wrong now."""
        if name != self.name or not is_certain:
            return False
        assert self.misdeed is not None
        if self.has_struck:
            return self.misdeed.lasts
        if self._patience > 0 and not self.misdeed.lasts:
            self._patience -= 1
            return False
        self.has_struck, self.place, self.copy = True, place, copy
        return True

    @property
    def is_guilty(self) -> bool:
        return self.misdeed is not None and self.has_struck and self.misdeed.counts(self.world)
