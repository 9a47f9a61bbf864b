"""What an engine is given: its settings, and whom it asks where a message goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from broker.config import BrokerConfig
from broker.core.addresses import INTERNAL_PREFIX, AddressBook, is_store_and_forward
from broker.core.consumer import Part, QueueConsumer, Settler
from broker.core.message import Message
from broker.core.open_transactions import TransactionBounds
from broker.core.subscription import TEMPORARY_PREFIX, node_of_temporary

if TYPE_CHECKING:
    from broker.core.queue import Queue
    from broker.core.transactions import Transaction

SYSTEM_PREFIX: Final = "$SYS."
"""Destinations of feeds."""


class Router(Protocol):
    """The cluster's say on where a message goes (``message-load-balancing``)."""

    def route(self, queue: str, message: Message) -> str | None:
        """The node ID of the broker that shall have the message, None for this one.

        Called once per message, before it is stored.

        Never asked for a message with a group: without a grouping handler two brokers could pick
        two owners. Nor for one that another broker forwarded here: it stays.
        """
        ...

    def forwards_to(self, node_id: str) -> bool:
        """Return whether messages can be kept for that node: brokers of the cluster have it.

        What is in its store-and-forward queue is forwarded from then on.
        """
        ...


class InterestNews(Protocol):
    """The news of subscriptions between the brokers of a cluster."""

    def told(self) -> asyncio.Future[None] | None:
        """Return None if every linked live broker knows the subscriptions of this one.

        Else return a future that is done when they do, or after the ``call-timeout``.
        """
        ...

    def heard(self) -> asyncio.Future[None] | None:
        """Return None if this broker knows the subscriptions of every linked live one.

        Else return a future that is done when it does, or after the ``call-timeout``.
        """
        ...

    def ask_again(self, node_id: str) -> None:
        """Ask a node for its subscriptions again: an administrator has deleted its queue."""
        ...


class HomesCommit(Protocol):
    """A commit over several homes that is under way (``cluster.coordinator``)."""

    prepared: asyncio.Future[None]
    """Done when all homes have prepared their parts, or one has not."""
    failure: str
    """Why the transaction is rolled back; "" if all homes have prepared their parts."""

    def commit(self, transaction: Transaction, done: Callable[[], None] | None) -> int:
        """Decide that it commits, with our own part ``transaction``; see ``Engine.commit``."""
        ...

    def roll_back(self) -> None:
        """Decide that it is rolled back, unless it was decided before."""
        ...


class Homes(Protocol):
    """The other brokers of a conventional cluster, each the home of the messages that it took."""

    def consume(self, consumer: QueueConsumer, lost: Callable[[str], None]) -> None:
        """Let a client's consumer get messages of its queue from all homes, by ``remote``.

        ``lost`` ends the client's connection, with that reason, if it holds a message of a home
        that may give it to another from now on.
        """
        ...

    def begin_commit(self, parts: Mapping[Settler, Part]) -> HomesCommit:
        """Begin to commit a transaction whose parts these homes have, in two phases."""
        ...

    def claim(self, queue: Queue) -> None:
        """End the consumers that other brokers have for a subscription: a client here claims it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine needs of the configuration, and the identity it serves under."""

    node_id: str
    cluster: str = "my-cluster"
    counts_all: bool = False
    """True if each queue counts its messages, so that an administrator may limit it later."""
    stays_home: bool = False
    """True if no message moves to another broker: those at others consume it from here."""
    global_max_size: int = 256 * 1024 * 1024
    max_queues: int = 50_000
    max_messages: int = -1
    max_duplicate_ids_size: int = 64 * 1024 * 1024
    expiry_scan_period_s: float = 30.0
    transient_wait_s: float = 0.0
    addresses: AddressBook = field(default_factory=AddressBook)
    transactions: TransactionBounds = field(default_factory=TransactionBounds)

    @classmethod
    def of(cls, config: BrokerConfig, node_id: str) -> EngineSettings:
        """From a configuration."""
        section = config.ha_policy.ha_database
        return cls(
            node_id=node_id,
            cluster=config.cluster.name if config.cluster else "my-cluster",
            stays_home=config.ha_policy.conventional is not None,
            counts_all=config.ha_policy.conventional is not None,
            global_max_size=config.broker.global_max_size,
            max_queues=config.broker.max_queues,
            max_messages=config.broker.max_messages,
            max_duplicate_ids_size=config.broker.max_duplicate_ids_size,
            expiry_scan_period_s=config.broker.message_expiry_scan_period / 1000,
            transient_wait_s=0.0 if section is None else section.transient_wait / 1000,
            addresses=AddressBook(config.address_settings),
            transactions=TransactionBounds(
                config.broker.transaction_timeout / 1000,
                config.broker.transaction_timeout_scan_period / 1000,
                config.broker.max_transactions,
                config.broker.global_max_size * config.broker.max_transactions_percent // 100,
            ),
        )

    def forwarding_queue(self, node_id: str) -> str:
        """The name of the store-and-forward queue for a broker (AMQ 17.1.3)."""
        return f"{INTERNAL_PREFIX}sf.{self.cluster}.{node_id}"

    def keeper(self, target: str) -> str:
        """Return the queue for messages to ``target`` that clients send here, if it is a queue.

        It is the store-and-forward queue of a node for its temporary queues.
        """
        if self.stays_home or not target.startswith(TEMPORARY_PREFIX):
            return target
        node_id = node_of_temporary(target)
        return target if node_id == self.node_id else self.forwarding_queue(node_id)

    def store(self, queue: str) -> str:
        """Which kind of store a queue is: "main", "dead-letter", "expired", "store-and-forward"."""
        if is_store_and_forward(queue):
            return "store-and-forward"
        if self.addresses.is_dead_letter(queue):
            return "dead-letter"
        return "expired" if self.addresses.is_expiry(queue) else "main"
