"""How a client says that its subscription to a topic is durable: each broker has its own headers.

    Artemis    durable-subscription-name (durable-subscriber-name, which is older, before it)
    ActiveMQ   activemq.subscriptionName (and activemq.subcriptionName, as it is spelt there, too)
    RabbitMQ   durable:true and auto-delete:false (in any case of letters: clients in Python say
               False); the name is the subscription's ``id``, of each topic its own, and whoever
               uses the same shares it

A durable subscription is its client's (login and ``client-id`` of CONNECT). ``shared:true`` makes a
named one everybody's: no STOMP dialect has a header for what JMS 2.0 calls a shared subscription.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from broker.core.subscription import Subscription, SubscriptionKey
from broker.stomp.headers import NAME_BYTES_MAX, UNNAMED, FrameRefusedError

NAMES: Final = (
    "durable-subscriber-name",
    "durable-subscription-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",
)
"""The first that is there counts, as in Artemis."""


def named_by(headers: Mapping[str, str]) -> str | None:
    """The header that names a durable subscription, if there is one."""
    return next((name for name in NAMES if headers.get(name)), None)


def is_durable(headers: Mapping[str, str]) -> bool:
    """Does a frame that is about a topic speak of a durable subscription, in any dialect?"""
    return named_by(headers) is not None or headers.get("durable", "").lower() == "true"


def durable_key(
    headers: Mapping[str, str], client: tuple[str, str], subscription_id: str | None, topic: str | None
) -> SubscriptionKey:
    """Return the key of the durable subscription that these headers mean. Raises FrameRefusedError.

    ``client`` (login, or "" where nobody logs in, and client-id), ``subscription_id`` and ``topic``
    are those of the connection and the frame.
    """
    header = named_by(headers)
    if header is None:
        if not subscription_id or subscription_id.startswith(UNNAMED) or topic is None:
            raise FrameRefusedError("durable:true needs the headers id and destination")
        return SubscriptionKey("", "", _named("id", f"{subscription_id}@{topic}"))
    name = _named(header, headers[header])
    if is_shared(headers):
        return SubscriptionKey("", "", name)
    login, client_id = client
    if not client_id:
        raise FrameRefusedError(
            f"durable subscription {name!r} needs a client-id in CONNECT, or the header shared:true"
        )
    return SubscriptionKey(login, _named("client-id", client_id), name)


def subscription_of(
    headers: Mapping[str, str],
    topic: str,
    *,
    client: tuple[str, str],
    subscription_id: str,
    unique: str,
    selector: str,
) -> Subscription:
    """The subscription to a topic that a SUBSCRIBE asks for. Raises RefusedError.

    ``unique`` is the name of one that is not durable, ``selector`` the text of what it wants.
    """
    shared = is_shared(headers)
    if not is_durable(headers):
        if shared:
            raise FrameRefusedError("shared:true needs the header durable-subscription-name")
        return Subscription(topic, unique, selector=selector)
    if headers.get("auto-delete", "false").lower() != "false":
        raise FrameRefusedError("a durable subscription needs auto-delete:false")
    login, owner, name = durable_key(headers, client, subscription_id, topic)
    return Subscription(topic, name, owner, selector, shared=not owner, durable=True, login=login)


def is_shared(headers: Mapping[str, str]) -> bool:
    """May several consumers have the subscription? Raises RefusedError."""
    text = headers.get("shared", "false")
    if text not in ("true", "false"):
        raise FrameRefusedError(f"header 'shared' is {text[:64]!r}: expected true or false")
    return text == "true"


def owner_warnings(subscriptions: Sequence[Subscription], users: Collection[str]) -> list[str]:
    """Return a line each for durable subscriptions of unknown logins, and of none yet."""
    orphaned = [each for each in subscriptions if each.login and each.login not in users]
    unclaimed = [each for each in subscriptions if each.is_unclaimed and users]
    lines = []
    if orphaned:
        lines.append(
            f"durable subscriptions of users that acceptor.users does not have: {len(orphaned)}, such as "
            f"{orphaned[0]}: no client gets their messages; brokerctl delete removes them"
        )
    if unclaimed:
        lines.append(
            f"durable subscriptions that were stored without a login: {len(unclaimed)}, such as "
            f"{unclaimed[0]}: the first user of that client-id who asks for one, and may consume from its "
            "topic, gets it"
        )
    return lines


def _named(header: str, name: str) -> str:
    if len(name.encode()) > NAME_BYTES_MAX or not name.isprintable():
        raise FrameRefusedError(
            f"header {header!r} is {name[:64]!r}: a name has at most {NAME_BYTES_MAX} bytes, all printable"
        )
    return name
