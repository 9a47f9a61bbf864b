"""Transactions of other brokers that are prepared here: nobody gets what they hold.

Why apart from the transactions of clients: these outlive their connection, their link and their
broker. A message of one is with no consumer, and does not expire, is not purged, redistributed or
moved to a page of its own, until the outcome is known; it is counted and browsed as what it is,
stored. A queue with such a message cannot be deleted.

After a start their messages are still in the backlogs, in their places, as all others are, or on
pages that nobody has read. The former are found at once and held there (``Queue.hold``); a page is
read before its transaction ends, or before its queue is purged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from broker.core.backlog import Loose, restore
from broker.core.consumer import Delivery, QueueConsumer
from broker.core.groups import Lane
from broker.core.message import Message
from broker.core.pages import Page
from broker.core.queue import Queue
from broker.core.transactions import Transaction
from broker.core.two_phase import PreparedMessage, PreparedRecord, Settlement, TransactionId
from broker.storage.records import Record


class PreparedTransaction:
    """A prepared transaction: ``transaction`` has the deliveries whose messages are in memory.

    ``since`` is when it was prepared, in milliseconds since the epoch.
    """

    __slots__ = ("id", "pages", "record_id", "since", "total", "transaction")

    def __init__(
        self, id_: TransactionId, record_id: int, since: int, transaction: Transaction, total: int
    ) -> None:
        self.id = id_
        self.record_id = record_id
        self.since = since
        self.transaction = transaction
        self.total = total
        """How many messages it holds."""
        self.pages: dict[Page, Queue] = {}
        """Pages with messages of it that were not read since the start."""


def messages_of(transaction: Transaction) -> Iterator[PreparedMessage]:
    """Yield what the PREPARED record of a transaction says of each message."""
    settlements = [(delivery, Settlement.ACKNOWLEDGE) for delivery in transaction.acknowledged]
    for delivery in transaction.refused:
        is_given_up = delivery in transaction.given_up
        settlements.append((delivery, Settlement.GIVE_UP if is_given_up else Settlement.REFUSE))
    for delivery, settlement in settlements:
        page = delivery.message.page
        yield PreparedMessage(delivery.message.id, 0 if page is None else page.id, settlement)


class _Sought(NamedTuple):
    """A message of a prepared transaction that was not found yet since the start."""

    owner: PreparedTransaction
    settlement: Settlement


class PreparedTransactions:
    """The prepared transactions of an engine, by id.

    After ``adopt`` of what a journal says, ``find`` is told of all that its queues hold, and
    ``found_on`` of the pages that are read later.
    """

    def __init__(self) -> None:
        self.by_id: dict[TransactionId, PreparedTransaction] = {}
        self.changed: Callable[[], None] = _ignore
        """Called when there is one more."""
        self._sought: dict[int, _Sought] = {}

    def add(self, prepared: PreparedTransaction) -> None:
        """Add one."""
        self.by_id[prepared.id] = prepared
        self.changed()

    def adopt(self, records: Iterable[PreparedRecord]) -> None:
        """Add those of a journal."""
        for record in records:
            prepared = PreparedTransaction(
                record.id, record.record_id, record.since, Transaction(), len(record.messages)
            )
            for message in record.messages:
                self._sought[message.id] = _Sought(prepared, message.settlement)
            self.add(prepared)

    def find(
        self, queue: Queue, line: Sequence[Record | Page], pages: dict[int, list[TransactionId]], least: int
    ) -> Sequence[Loose | Page]:
        """Return the line that a queue is to adopt, in which prepared messages are held.

        ``pages`` says which transactions have messages on the page of that record id, ``least``
        how often each message was delivered at the least.
        """
        if not (self._sought or pages):
            return line
        items: list[Loose | Page] = []
        for item in line:
            if isinstance(item, Page):
                for id_ in pages.get(item.id, ()):
                    item.prepared = True
                    self.by_id[id_].pages[item] = queue
                items.append(item)
            elif item.id in self._sought:
                message = restore(item, least_deliveries=least)
                self._hold(queue, message)
                items.append(message)
            else:
                items.append(item)
        return items

    def found_on(self, queue: Queue, page: Page, messages: Sequence[Message]) -> None:
        """Hold the messages of a page that has just been read, as far as they are prepared."""
        for message in messages:
            if message.id in self._sought:
                self._hold(queue, message)
        for prepared in self.by_id.values():
            prepared.pages.pop(page, None)

    def pages_of(self, queue: Queue) -> list[Page]:
        """Return the unread pages of a queue that have messages of prepared transactions."""
        pages = chain.from_iterable(prepared.pages.items() for prepared in self.by_id.values())
        return list(dict.fromkeys(page for page, holder in pages if holder is queue))

    def _hold(self, queue: Queue, message: Message) -> None:
        sought = self._sought.pop(message.id)
        delivery = Delivery(message, _nobody(queue), Lane(None), 0)
        queue.hold(delivery)
        transaction = sought.owner.transaction
        if sought.settlement == Settlement.ACKNOWLEDGE:
            transaction.acknowledged.append(delivery)
        else:
            transaction.refused.append(delivery)
            if sought.settlement == Settlement.GIVE_UP:
                transaction.given_up.add(delivery)


def _nobody(queue: Queue) -> QueueConsumer:
    """Return a consumer that has left: the one that got the message has ended with its broker."""
    consumer = QueueConsumer(queue, _ignore_delivery, 0, internal=True)
    consumer.closed = True
    return consumer


def _ignore() -> None:
    """Do nothing: nobody watches."""


def _ignore_delivery(_: Delivery) -> None:
    """Do nothing: nothing is delivered to a consumer that has left."""
