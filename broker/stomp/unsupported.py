"""What other brokers do for a header, and this one does not: refused by name, until it exists.

Why refused: a client whose ``no-local`` is ignored gets messages that were never for it, and one
whose ``AMQ_SCHEDULED_CRON`` is ignored hears too little; neither ever hears of it. Values that ask
for nothing (``no-local:false``, ``persistent:true``) are accepted, and so is what asks for less
than everybody gets here: ``persistent:false`` (every message is stored). Headers that nobody gives
a meaning are the client's own and travel with the message.

Sources: ActiveMQ Classic, Artemis and RabbitMQ, the pages on STOMP headers of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.core.subscription import TOPIC_PREFIX
from broker.stomp.headers import FrameRefusedError


class _Header(NamedTuple):
    """The values that ask for nothing, and what to do instead of the others."""

    harmless: frozenset[str]
    remedy: str


def _header(remedy: str, *harmless: str) -> _Header:
    return _Header(frozenset(("", *harmless)), remedy)


_NO_REPEATS: Final = _header(
    "repeated deliveries are not supported: omit it, and send each message when it is due", "0"
)
_NO_EXCLUSIVE: Final = _header(
    "exclusive consumers are not supported: omit it, and send with JMSXGroupID to keep an order", "false"
)
_NO_TRANSFORMATION: Final = _header("bodies are delivered as they were sent: omit it")
_NO_ARGUMENTS: Final = _header(
    "arguments of queues are not supported: omit it, and set address-settings in broker.toml"
)

SEND: Final[Mapping[str, _Header]] = {
    "persistent": _header("expected true or false; all messages are stored", "true", "false"),
    "AMQ_SCHEDULED_PERIOD": _NO_REPEATS,
    "AMQ_SCHEDULED_REPEAT": _NO_REPEATS,
    "AMQ_SCHEDULED_CRON": _NO_REPEATS,
    "transformation": _NO_TRANSFORMATION,
}
SUBSCRIBE: Final[Mapping[str, _Header]] = {
    "no-local": _header("consumers also get messages from their own connection: omit it", "false"),
    "activemq.noLocal": _header("consumers also get messages from their own connection: omit it", "false"),
    "exclusive": _NO_EXCLUSIVE,
    "activemq.exclusive": _NO_EXCLUSIVE,
    "activemq.priority": _header("all consumers are served in turn: omit it", "0"),
    "x-priority": _header("all consumers are served in turn: omit it", "0"),
    "activemq.retroactive": _header(
        "a subscription gets only messages that are sent after it was made: omit it", "false"
    ),
    "activemq.maximumPendingMessageLimit": _header(
        "messages that wait for a slow consumer are never dropped: omit it", "0", "-1"
    ),
    "consumer-window-size": _header("windows are numbers of messages, not bytes: use prefetch-count"),
    "credit": _header("windows are numbers of messages: use prefetch-count"),
    "transformation": _NO_TRANSFORMATION,
    "x-queue-name": _NO_ARGUMENTS,
    "x-queue-type": _NO_ARGUMENTS,
    "x-message-ttl": _NO_ARGUMENTS,
    "x-expires": _NO_ARGUMENTS,
    "x-max-length": _NO_ARGUMENTS,
    "x-max-length-bytes": _NO_ARGUMENTS,
    "x-max-priority": _NO_ARGUMENTS,
    "x-dead-letter-exchange": _NO_ARGUMENTS,
    "x-dead-letter-routing-key": _NO_ARGUMENTS,
    "x-stream-offset": _NO_ARGUMENTS,
}

_REPLY_TO: Final = "reply-to"
_TYPE_OF_SEND: Final = "destination-type"
_TYPE_OF_SUBSCRIBE: Final = "subscription-type"
_SEND_NAMES: Final = frozenset((*SEND, _REPLY_TO, _TYPE_OF_SEND))
_TEMPORARY_TOPIC: Final = "/temp-topic/"


def refuse_in_send(headers: Mapping[str, str]) -> None:
    """Raises RefusedError for a SEND that asks for what is not there.

    Called for every message: the rule is that nothing is found.
    """
    if not _SEND_NAMES.isdisjoint(headers):
        _refuse(headers, SEND)
        _refuse_type(headers, _TYPE_OF_SEND)
        if headers.get(_REPLY_TO, "").startswith(_TEMPORARY_TOPIC):
            raise FrameRefusedError(
                f"header 'reply-to' is {headers[_REPLY_TO][:64]!r}: temporary topics are not supported: "
                f"use /temp-queue/NAME"
            )


def refuse_in_subscribe(headers: Mapping[str, str]) -> None:
    """Raises RefusedError for a SUBSCRIBE that asks for what is not there."""
    _refuse(headers, SUBSCRIBE)
    _refuse_type(headers, _TYPE_OF_SUBSCRIBE)
    if headers.get("auto-delete", "false").lower() != "false" and not _is_topic(headers):
        raise FrameRefusedError(
            f"header 'auto-delete' is {headers['auto-delete'][:64]!r}: address-settings in broker.toml "
            f"decide when an unused queue is deleted: omit it"
        )


def _refuse_type(headers: Mapping[str, str], name: str) -> None:
    """Artemis' types: a destination says here by itself whether it is a topic."""
    expected = "MULTICAST" if _is_topic(headers) else "ANYCAST"
    if headers.get(name, expected).strip() not in ("", expected):
        raise FrameRefusedError(
            f"header {name!r} is {headers[name][:64]!r}: topics are /topic/NAME, queues /queue/NAME or "
            f"NAME: omit it"
        )


def _is_topic(headers: Mapping[str, str]) -> bool:
    return headers.get("destination", "").startswith(TOPIC_PREFIX)


def _refuse(headers: Mapping[str, str], known: Mapping[str, _Header]) -> None:
    for name, value in headers.items():
        header = known.get(name)
        if header is not None and value.strip() not in header.harmless:
            raise FrameRefusedError(f"header {name!r} is {value[:64]!r}: {header.remedy}")
