"""The changes of a conventional cluster that all its brokers make in one order.

The master broker numbers every change of a destination or durable subscription that the whole
cluster has, and every member applies the changes in the order of these numbers. An *incarnation*
names the record from its beginning to its next restoration. Together with it, a number tells
whether a broker has a change. A wall clock cannot tell that: it may be set back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from broker.core.subscription import Subscription, SubscriptionKey

Kind = Literal["destination", "subscription"]
Entity = tuple[Kind, str]
"""A kind and a key: what a change is about."""
NUMBER_MAX: Final = 2**62
Sequence64 = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]

DESTINATION: Final[Kind] = "destination"
SUBSCRIPTION: Final[Kind] = "subscription"


class RequestId(NamedTuple):
    """The identity of a request: the node ID and the life of its broker, and its number there."""

    asker: str
    life: int
    number: int


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A change of one entity.

    ``incarnation`` and ``sequence`` are its place in the record. The ``value`` of a subscription is
    what it is, as JSON; a destination has none, so that its value is "". None: it was dropped.
    ``dropped`` is the number of the latest drop of that entity before this change; 0: there is
    none, or it is forgotten. A member that missed it has a queue of before the drop.
    """

    incarnation: str
    sequence: Sequence64
    request: RequestId
    kind: Kind
    key: str
    value: str | None
    dropped: Sequence64 = 0

    @property
    def entity(self) -> Entity:
        """The entity that it changes."""
        return self.kind, self.key

    @property
    def place(self) -> tuple[str, int]:
        """The incarnation and the number, which no other change has."""
        return self.incarnation, self.sequence


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The place of a broker in the record.

    It has applied all changes of that incarnation up to ``sequence``. Drops up to ``floor`` may be
    missing from it. ``ancestors`` are the incarnations that restorations ended. ``keeps`` is true
    for the master, which knows the last request that it stored of each broker, and its change.

    Without an ``incarnation`` the broker joins any record, and drops what that lacks.
    """

    incarnation: str
    ancestors: tuple[str, ...] = ()
    sequence: Sequence64 = 0
    floor: Sequence64 = 0
    keeps: bool = False
    requests: Mapping[str, tuple[int, int, int]] = {}


class Backup(msgspec.Struct, frozen=True):
    """A whole record, as a backup has it."""

    head: Head
    changes: tuple[Change, ...]


class Loss(NamedTuple):
    """An entity that was dropped, and the number of messages that waited in it."""

    name: str
    messages: int

    def __str__(self) -> str:
        return f"{self.name} ({self.messages} messages)"


class ChangeRefusedError(Exception):
    """A change was certainly not made; the text says why."""


class ChangeUnknownError(ChangeRefusedError):
    """A change may have been made: the master that was asked did not answer."""


def key_of(key: SubscriptionKey) -> str:
    """Return the key of the changes of a subscription."""
    return msgspec.json.encode(tuple(key)).decode()


def value_of(subscription: Subscription) -> str:
    """Return the value of the change that makes a subscription."""
    return msgspec.json.encode(subscription).decode()


class Changes(Protocol):
    """The way in which a broker of a conventional cluster has a change made.

    ``has_master`` is true if the cluster has a master broker, which records destinations.
    """

    has_master: bool

    async def request(self, kind: Kind, key: str, value: str | None) -> bool:
        """Make a change in the whole cluster, and return when it is made here.

        False: there was nothing to change. Raises ChangeRefusedError, ChangeUnknownError.
        """
        ...

    def views(self) -> dict[str, dict[str, str]]:
        """Return what all brokers of the cluster must agree about, by kind (``cluster.views``)."""
        ...


def loss_text(losses: Sequence[Loss]) -> str:
    """Return what was dropped, for the end of a line of the log."""
    if not losses:
        return ""
    return f"; dropped here: {', '.join(map(str, losses))}"
