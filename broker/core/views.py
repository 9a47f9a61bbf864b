"""What one may see of an engine from outside: settings in, counts and stored messages out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.config import BrokerConfig
from broker.core.addresses import AddressBook
from broker.core.message import Message
from broker.core.queue import Queue

INTERNAL_PREFIX: Final = "$.artemis.internal."
"""Queues of the broker itself; clients may neither send to nor consume from them."""
SYSTEM_PREFIX: Final = "$SYS."
"""Destinations of feeds."""


class Router(Protocol):
    """The cluster's say on where a message goes (``message-load-balancing``)."""

    def route(self, queue: str, message: Message) -> str | None:
        """The node ID of the broker that shall have the message, None for this one. Called once per message, before it is stored.

        Never asked for a message with a group: without a grouping handler two brokers could pick two owners. Nor for one that
        another broker forwarded here: it stays.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine needs of the configuration, and the identity it serves under."""

    node_id: str
    cluster: str = "my-cluster"
    global_max_size: int = 256 * 1024 * 1024
    addresses: AddressBook = field(default_factory=AddressBook)

    @classmethod
    def of(cls, config: BrokerConfig, node_id: str) -> EngineSettings:
        """From a configuration."""
        return cls(
            node_id=node_id,
            cluster=config.cluster.name if config.cluster else "my-cluster",
            global_max_size=config.broker.global_max_size,
            addresses=AddressBook(config.address_settings),
        )

    def forwarding_queue(self, node_id: str) -> str:
        """The name of the store-and-forward queue for a broker (AMQ 17.1.3)."""
        return f"{INTERNAL_PREFIX}sf.{self.cluster}.{node_id}"

    def store(self, queue: str) -> str:
        """Which kind of store a queue is: "main", "dead-letter" or "store-and-forward"."""
        if queue.startswith(INTERNAL_PREFIX):
            return "store-and-forward"
        return "dead-letter" if self.addresses.is_dead_letter(queue) else "main"


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Counts of one queue, for people and for the harness. ``store`` is as of ``EngineSettings.store``."""

    name: str
    store: str
    messages: int
    unacknowledged: int
    consumers: int
    size: int


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message in a store. ``queue`` is where it was meant to go; ``holder`` is the queue that has it."""

    store: str
    queue: str
    holder: str
    message: Message


def browse(
    queues: Mapping[str, Queue], settings: EngineSettings, name: str | None = None
) -> list[BrowsedMessage]:
    """Every stored message, whoever holds it, oldest first within each queue; of one queue if named."""
    wanted: Iterable[Queue] = queues.values()
    if name is not None:
        wanted = [queues[name]] if name in queues else []
    return [
        BrowsedMessage(settings.store(holder.name), message.target, holder.name, message)
        for holder in wanted
        for message in holder.all()
    ]


def status(queues: Mapping[str, Queue], settings: EngineSettings) -> list[QueueStatus]:
    """Counts of all queues, by name."""
    return [
        QueueStatus(
            name,
            settings.store(name),
            len(queue),
            queue.unacknowledged(),
            queue.client_consumers(),
            queue.size,
        )
        for name, queue in sorted(queues.items())
    ]
