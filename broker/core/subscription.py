"""A subscription to a topic: what it is, and the queue in which its messages wait.

That is an ordinary one with lanes and pages, whose record in the journal is a SUBSCRIPTION instead
of a QUEUE.

A *durable* subscription stays until its client drops it; others end with their consumer, and after
a crash or a takeover, when nobody can come back for them, with it. A *shared* one may have several
consumers, and belongs to no client.

A durable one belongs to a login, a client and a name: without the login whoever says the client's
id would get its messages. Where nobody logs in there is none. Brokers before stored no logins: such
a subscription is *unclaimed* until a login claims it (``Engine.claim``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from broker.core.selector import Selector, compile_selector

TOPIC_PREFIX: Final = "/topic/"
"""How the destination of a topic begins."""
TEMPORARY_PREFIX: Final = "/remote-temp-queue/"
"""How the name of a temporary queue begins, and its destination for those who reply (ActiveMQ).

The node ID of its broker and a dot follow.
"""
SEPARATOR: Final = "::"
"""Between a topic's name and its subscription's in the name of a queue (Artemis: FQQN)."""


def node_of_temporary(queue: str) -> str:
    """Return the node ID in the name of a temporary queue, "" if there is none."""
    node_id, dot, _ = queue.removeprefix(TEMPORARY_PREFIX).partition(".")
    return node_id if dot else ""


class SubscriptionInUseError(Exception):
    """The subscription has consumers, and what is asked for would take its messages from them."""


class SubscriptionKey(NamedTuple):
    """The identity of a durable subscription, whatever it wants.

    A shared one has neither ``login`` nor ``client``.
    """

    login: str
    client: str
    name: str


class Subscription(msgspec.Struct, frozen=True):
    """What a subscription is; as JSON it is the data of its record.

    ``login``, ``client`` and ``name`` identify a durable one. A shared one has no login and no
    client; one that is not durable has neither, and a ``name`` that is never given out again.
    ``selector``: which messages it wants, "" for all.
    """

    topic: str
    name: str
    client: str = ""
    selector: str = ""
    shared: bool = False
    durable: bool = False
    login: str = ""

    def is_as(self, other: Subscription) -> bool:
        """Is nothing else wanted than by the other? Selectors may be written otherwise."""
        alike = msgspec.structs.replace(self, selector=other.selector) == other
        return alike and (self.selector == other.selector or self.compiled() == other.compiled())

    def compiled(self) -> Selector | None:
        """Which messages it wants; None: all."""
        return compile_selector(self.selector) if self.selector else None

    @property
    def key(self) -> SubscriptionKey:
        """The identity of a durable subscription, whatever its selector is."""
        return SubscriptionKey(self.login, self.client, self.name)

    @property
    def is_unclaimed(self) -> bool:
        """True for a durable subscription that is not shared and was stored without a login."""
        return self.durable and not self.shared and not self.login

    def claimed(self, login: str) -> Subscription:
        """Return this subscription as one that belongs to a login."""
        return msgspec.structs.replace(self, login=login)

    @property
    def queue(self) -> str:
        """The name of its queue; no client can name a queue so: it begins with a slash."""
        owner = (self.login, self.client) if self.login else (self.client,)
        parts = (self.name,) if self.shared else (*owner, self.name)
        return f"{TOPIC_PREFIX}{self.topic}{SEPARATOR}{'.'.join(map(_escaped, parts))}"

    def __str__(self) -> str:
        owner = f" of client {self.client!r}" if self.client else ""
        if self.login:
            owner += f" of user {self.login!r}"
        return f"subscription {self.name!r}{owner} to topic {self.topic!r}"


def encode_subscription(subscription: Subscription) -> bytes:
    """The data of its record; without a login it is as brokers before wrote it."""
    fields: dict[str, Any] = msgspec.structs.asdict(subscription)
    if not subscription.login:
        del fields["login"]
    return msgspec.json.encode(fields)


def decode_subscription(data: bytes) -> Subscription:
    """From the data of its record; the journal's checksums have vouched for it."""
    return msgspec.json.decode(data, type=Subscription)


def _escaped(part: str) -> str:
    """As Artemis escapes client and subscription in a queue's name, so that no two are one."""
    return part.replace("\\", "\\\\").replace(".", "\\.")
