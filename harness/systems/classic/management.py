"""The management of a Classic broker by its management beans: its role, its stores, its stop.

A broker that waits for a lock knows one thing only, that it is a slave: every other attribute of
its bean throws. Why stores are read in this way: a bean's ``browse`` takes nothing and holds
nothing back from consumers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.interface import BACKUP, LIVE, TOPIC, Address, Status, StoredMessage
from harness.systems.jolokia import Jolokia

_BROKER: Final = "org.apache.activemq:type=Broker,brokerName=*"
_QUEUES: Final = f"{_BROKER},destinationType=Queue,destinationName=*"
_BRIDGES: Final = f"{_BROKER},connector=networkConnectors,networkConnectorName=*,networkBridge=*"
_CONNECTORS: Final = f"{_BROKER},connector=clientConnectors,connectorName=*"
_ENDPOINT: Final = "endpoint=Consumer"
_DURABLE: Final = f"{_BROKER},destinationType=Topic,destinationName=*,{_ENDPOINT},*"
_KEPT: Final = "consumerId=Durable("
"""The mark of a durable subscription; other consumers, such as bridges for advisories, lack it."""
_PENDING: Final = "PendingQueueSize"
_DISPATCHED: Final = "DispatchedQueueSize"
_TOLD: Final = ("DestinationName", "SubscriptionName", "Active", _PENDING, _DISPATCHED)
BRIDGES: Final = "bridges"
"""The name, in a status' details, of the brokers to which it forwards."""

DEAD_LETTERS: Final = "ActiveMQ.DLQ"
STARTING: Final = "starting"


class Management:
    """The part of a system that asks its brokers; ``shares``: a pair of them has one store."""

    shares = True
    ids_from_names = True

    def __init__(self) -> None:
        self._jolokia = Jolokia("/jolokia/")

    async def status(self, admin: Address) -> Status:
        """Return a broker's status.

        Its node ID is its pair: Classic has none, and a broker's name is its pair and a number. The
        time at which its JVM began is its epoch.

        Raises OSError for a broker that stops: it lets no client in any more (its connectors' beans
        are gone). It does not call itself a slave until its last client's connection is closed,
        which says nothing of its lock.
        """
        beans, began, bridges, connectors = await self._jolokia.ask(
            admin,
            {"type": "read", "mbean": _BROKER, "attribute": ["Slave"]},
            {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "StartTime"},
            {"type": "search", "mbean": _BRIDGES},
            {"type": "search", "mbean": _CONNECTORS},
        )
        for bean, value in (beans or {}).items():
            name = _key(bean, "brokerName")
            if not value["Slave"] and not connectors:
                raise OSError(f"{name} stops")
            return Status(
                name=name,
                node_id=name.rstrip("0123456789"),
                role=BACKUP if value["Slave"] else LIVE,
                epoch=began,
                replicating=self.shares,
                details={**value, BRIDGES: _peers(bridges)},
            )
        return Status(name="", node_id=None, role=STARTING, epoch=began)

    async def browse(self, admin: Address) -> list[StoredMessage]:
        """Return the stored messages; raise OSError if a queue did not show all of its messages."""
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _QUEUES})
        stored: list[StoredMessage] = []
        for bean in sorted(beans or ()):
            queue = _key(bean, "destinationName")
            size, messages = await self._jolokia.ask(
                admin,
                {"type": "read", "mbean": bean, "attribute": "QueueSize"},
                {"type": "exec", "mbean": bean, "operation": "browse()"},
            )
            messages = messages or ()
            if size is None or len(messages) < size:
                raise OSError(f"queue {queue} at {admin} showed {len(messages)} of its {size} messages")
            stored += _stored(queue, messages)
        return stored + await self.durable(admin)

    async def durable(self, admin: Address) -> list[StoredMessage]:
        """Return the messages that wait for durable subscriptions.

        A subscription's bean shows all messages of its topic (``Topic.browse``), for whichever
        subscription, and how many wait for its own, but not which. So these are known only if none
        or all wait. Raises OSError in any other case.
        """
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _DURABLE})
        stored: list[StoredMessage] = []
        for bean in sorted(bean for bean in beans or () if _KEPT in bean):
            attributes, messages = await self._jolokia.ask(
                admin,
                {"type": "read", "mbean": bean, "attribute": list(_TOLD)},
                {"type": "exec", "mbean": bean, "operation": "browse()"},
            )
            if attributes is None:
                raise OSError(f"{bean} at {admin} is gone")
            topic, name = TOPIC + attributes["DestinationName"], attributes["SubscriptionName"]
            waiting, readable = attributes[_PENDING], _stored(topic, messages or ())
            if attributes["Active"]:  # without a consumer it counts what is stored, delivered or not
                waiting += attributes[_DISPATCHED]
            if waiting not in (0, len(readable)):
                raise OSError(
                    f"which {waiting} of {len(readable)} messages of {topic} at {admin} {name} waits for"
                )
            stored += [
                msgspec.structs.replace(message, queue=topic, subscription=name)
                for message in readable[:waiting]
            ]
        return stored

    async def stop(self, admin: Address, *, failover: bool | None = None) -> None:
        """Ask for the only stop that there is from outside; a broker that waits then takes over."""
        if failover is False:
            raise OSError("a broker of Classic that stops gives up its lock, and whoever waits takes over")
        (beans,) = await self._jolokia.ask(admin, {"type": "search", "mbean": _BROKER})
        for bean in beans or ():
            with contextlib.suppress(ConnectionError):  # its JVM was gone before it could answer
                await self._jolokia.ask(admin, {"type": "exec", "mbean": bean, "operation": "stop()"})


def _peers(beans: Sequence[str] | None) -> list[str]:
    """Return the brokers to which it forwards: names of its connectors that have a bridge."""
    return sorted(_key(bean, "networkConnectorName") for bean in beans or ())


def _key(bean: str, name: str) -> str:
    """Return the value of a key of an object name."""
    return bean.partition(f"{name}=")[2].partition(",")[0]


def _stored(queue: str, messages: Sequence[Mapping[str, Any]]) -> list[StoredMessage]:
    store = "dead-letter" if queue == DEAD_LETTERS else "main"
    stored = []
    for message in messages:
        text = message.get("Text")
        octets = bytes(octet % 256 for octet in message.get("BodyPreview") or ())
        origin = _origin(message) if store == "dead-letter" else ""
        stored.append(
            StoredMessage(
                store=store,
                queue=origin or queue,
                group=message.get("JMSXGroupID"),
                body=octets if text is None else text.encode(),
                cut=text is None and len(octets) < message.get("BodyLength", 0),
                origin=bool(origin),
            )
        )
    return stored


def _origin(message: Mapping[str, Any]) -> str:
    """Return the queue in which a dead letter died.

    "" for a topic's, whose subscription is not named.
    """
    kind, _, name = (message.get("OriginalDestination") or "").partition("://")
    return name if kind == "queue" else ""
