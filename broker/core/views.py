"""What one may see of an engine from outside: settings in, counts and stored messages out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from broker.config import BrokerConfig
from broker.core.addresses import AddressBook
from broker.core.message import Message
from broker.core.open_transactions import TransactionBounds
from broker.core.pages import Page
from broker.core.paging import Paging
from broker.core.queue import Queue

INTERNAL_PREFIX: Final = "$.artemis.internal."
"""Queues of the broker itself; clients may neither send to nor consume from them."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine needs of the configuration, and the identity it serves under."""

    node_id: str
    cluster: str = "my-cluster"
    global_max_size: int = 256 * 1024 * 1024
    addresses: AddressBook = field(default_factory=AddressBook)
    transactions: TransactionBounds = field(default_factory=TransactionBounds)

    @classmethod
    def of(cls, config: BrokerConfig, node_id: str) -> EngineSettings:
        """From a configuration."""
        return cls(
            node_id=node_id,
            cluster=config.cluster.name if config.cluster else "my-cluster",
            global_max_size=config.broker.global_max_size,
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

    def store(self, queue: str) -> str:
        """Which kind of store a queue is: "main", "dead-letter" or "store-and-forward"."""
        if queue.startswith(INTERNAL_PREFIX):
            return "store-and-forward"
        return "dead-letter" if self.addresses.is_dead_letter(queue) else "main"


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Counts of one queue, for people and for the harness.

    ``store`` is as of ``EngineSettings.store``.

    ``paged`` of the ``messages`` wait on pages and take no memory; ``size`` is the bytes of the
    others.
    """

    name: str
    store: str
    messages: int
    paged: int
    unacknowledged: int
    consumers: int
    size: int


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message in a store.

    ``queue`` is where it was meant to go; ``holder`` is the queue that has it.
    """

    store: str
    queue: str
    holder: str
    message: Message


class Browsing:
    """A reading of every message that was stored when it was made, whoever holds it.

    Oldest first within each queue: ``async for``, then ``close`` in any case.

    Those on a page are read in their turn, one page in memory at a time; what has been consumed by
    then is left out. Raises OSError, JournalDamagedError.
    """

    def __init__(
        self, queues: Mapping[str, Queue], settings: EngineSettings, paging: Paging, name: str | None = None
    ) -> None:
        wanted: Iterable[Queue] = queues.values()
        if name is not None:
            wanted = [queues[name]] if name in queues else []
        self._settings = settings
        self._paging = paging
        self._stored = deque((holder.name, item) for holder in wanted for item in holder.all())
        self._held = {item: None for _, item in self._stored if isinstance(item, Page)}
        paging.blobs.adopt(page.blob for page in self._held)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BrowsedMessage:
        while self._stored:
            holder, item = self._stored.popleft()
            if isinstance(item, Message):
                return BrowsedMessage(self._settings.store(holder), item.target, holder, item)
            messages = await self._paging.read(item)
            self._stored.extendleft((holder, message) for message in reversed(messages))
            self._let_go(item)
        raise StopAsyncIteration

    def close(self) -> None:
        """Nothing more will be asked for."""
        self._stored.clear()
        for page in list(self._held):
            self._let_go(page)

    def _let_go(self, page: Page) -> None:
        if page in self._held:
            del self._held[page]
            self._paging.blobs.let_go((page.blob,))


def status(
    queues: Mapping[str, Queue], settings: EngineSettings, names: Iterable[str] | None = None
) -> list[QueueStatus]:
    """Counts of these queues, or of all, by name; a queue that is not there is left out."""
    return [
        QueueStatus(
            name,
            settings.store(name),
            len(queue),
            queue.paged(),
            queue.unacknowledged(),
            queue.client_consumers(),
            queue.size,
        )
        for name in sorted(queues if names is None else names)
        if (queue := queues.get(name)) is not None
    ]
