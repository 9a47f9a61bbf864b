"""Recovery: from the records of a journal to queues and what is stored in them.

When a broker becomes live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from operator import itemgetter

from broker.core.addresses import is_store_and_forward
from broker.core.duplicates import SentId, decode_forwarded, decode_sent
from broker.core.identity import MessageId
from broker.core.interests import NodeInterest, decode_interest, decode_known
from broker.core.message import (
    CLAIMED,
    CLEAN,
    CONSUMED,
    COUNTED,
    DECIDED,
    DROPPED,
    DUPLICATE,
    FORWARDED,
    HAS_IDENTITY,
    HAS_PROPERTIES,
    HEAD,
    HOST,
    INTEREST,
    IS_LARGE,
    KNOWN,
    LARGE,
    LIMITS,
    MESSAGE,
    OVERHEAD,
    PAGE,
    PREPARED,
    QUEUE,
    SENT,
    SUBSCRIPTION,
    optional_bytes,
)
from broker.core.pages import Page, decode_consumed, decode_counted, decode_page
from broker.core.subscription import TEMPORARY_PREFIX, Subscription, decode_subscription
from broker.core.two_phase import PreparedRecord, TransactionId, decode_prepared
from broker.storage.blobs import Blob
from broker.storage.records import Record


@dataclass(slots=True)
class Image:
    """What the journal says.

    Queues by record id, and by the same the records of their messages, oldest first, and their
    pages.
    """

    queues: dict[int, str] = field(default_factory=dict)
    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    """Those of the queues that are one's."""
    known: dict[int, dict[str, int]] = field(default_factory=dict)
    """The nodes that know of each subscription, and the record from which on they know it."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Queues that are no more but for what is in them, each under a name of its own."""
    messages: dict[int, list[Record]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    """Their bytes, as ``Message.size`` counts them."""
    pages: dict[int, list[Page]] = field(default_factory=dict)
    large: list[Blob] = field(default_factory=list)
    """The bodies in blobs that messages name, one for each message."""
    forwarded: list[tuple[int, str, MessageId]] = field(default_factory=list)
    sent: list[tuple[int, SentId]] = field(default_factory=list)
    interests: list[tuple[int, NodeInterest]] = field(default_factory=list)
    prepared: list[PreparedRecord] = field(default_factory=list)
    decided: list[Record] = field(default_factory=list)
    hosts: list[tuple[int, str]] = field(default_factory=list)
    """The brokers whose clients may hold messages, with their records."""
    limits: list[Record] = field(default_factory=list)
    """The limits of queues that an administrator has changed."""
    clean_marks: list[int] = field(default_factory=list)
    least_deliveries: int = 0
    """How often each message that clients could get was delivered at the least."""

    @property
    def clean(self) -> bool:
        """Its broker ended cleanly (or it is empty): its delivery counts are exact."""
        return bool(self.clean_marks) or not (self.messages or self.pages)

    def least_deliveries_in(self, queue: str) -> int:
        """Return how often each message of a queue was delivered at the least.

        No client gets a message from a store-and-forward queue, so its own counts are exact there.
        """
        return 0 if is_store_and_forward(queue) else self.least_deliveries

    def lines(self, queues: Mapping[int, str]) -> dict[str, tuple[Sequence[Record | Page], int]]:
        """What each of these queues holds, oldest first, and the bytes of its records.

        A store that came from several brokers has a record for each one's queue of that name.
        """
        found: dict[str, tuple[Sequence[Record | Page], int]] = {}
        for queue_id, name in queues.items():
            line, size = found.get(name, ((), 0))
            for more in (self.messages.get(queue_id, ()), self.pages.get(queue_id, ())):
                line = list(merge(line, more, key=_oldest)) if line and more else line or more
            if line:
                found[name] = line, size + self.sizes.get(queue_id, 0)
        return found

    def claim(self, queue_id: int, login: str) -> None:
        """That queue's subscription belongs to a login."""
        claimed = self.subscriptions[queue_id] = self.subscriptions[queue_id].claimed(login)
        self.queues[queue_id] = claimed.queue

    def drop(self, queue_id: int) -> None:
        """That queue, which was one's, is no more."""
        del self.subscriptions[queue_id]
        self.dropped[queue_id] = f"{self.queues.pop(queue_id)} (record {queue_id})"

    @property
    def all_pages(self) -> list[Page]:
        """The pages of all queues."""
        return list(chain.from_iterable(self.pages.values()))

    @property
    def prepared_pages(self) -> dict[int, list[TransactionId]]:
        """The prepared transactions that have messages on a page, by the page's record id."""
        pages: dict[int, list[TransactionId]] = {}
        for prepared in self.prepared:
            for page_id in {message.page for message in prepared.messages} - {0}:
                pages.setdefault(page_id, []).append(prepared.id)
        return pages

    @property
    def count(self) -> int:
        """How many messages there are."""
        return sum(map(len, self.messages.values())) + sum(page.left for page in self.all_pages)


def read(records: Iterable[Record], keeps: Callable[[str], bool] = lambda _: False) -> Image:
    """Read the core's records; those of other kinds are left to whoever wrote them.

    Messages stay records: see ``backlog``. ``keeps`` says of a temporary queue whether it outlives
    the broker: others end with the connections of their clients.

    After an unclean end every message counts as delivered at least once: nobody knows, and to claim
    otherwise would be a redelivery without its flag.
    """
    image = Image()
    marks: list[Record] = []
    messages = image.messages
    sizes = image.sizes
    head = HEAD.unpack_from
    beside = OVERHEAD - HEAD.size
    optional = IS_LARGE | HAS_PROPERTIES | HAS_IDENTITY
    for record in sorted(records, key=itemgetter(0)):
        kind = record[1]
        if kind == MESSAGE:
            data = record[2]
            queue_id, flags, group_size, target_size, headers_size = head(data)
            stored = messages.get(queue_id)
            if stored is None:
                stored = messages[queue_id] = []
                sizes[queue_id] = 0
            stored.append(record)
            sizes[queue_id] += len(data) - group_size - target_size + beside
            if flags & optional:
                at = HEAD.size + group_size + target_size + headers_size
                sizes[queue_id] -= optional_bytes(data, flags, at)
                if flags & IS_LARGE:
                    image.large.append(Blob(*LARGE.unpack_from(data, at)))
        elif kind == QUEUE:
            name = record.data.decode()
            if name.startswith(TEMPORARY_PREFIX) and not keeps(name):
                image.dropped[record.id] = name
            elif any(update.kind == DROPPED for update in record.updates):
                image.dropped[record.id] = f"{name} (record {record.id})"
            else:
                image.queues[record.id] = name
        elif kind == SUBSCRIPTION:
            _read_subscription(image, record)
        elif kind in (DUPLICATE, FORWARDED):
            image.forwarded.append((record.id, *decode_forwarded(record)))
        elif kind == SENT:
            image.sent.append((record.id, decode_sent(record.data)))
        elif kind == INTEREST:
            image.interests.append((record.id, decode_interest(record.data)))
        elif kind == PREPARED:
            image.prepared.append(decode_prepared(record.id, record.data))
        elif kind == DECIDED:
            image.decided.append(record)
        elif kind == HOST:
            image.hosts.append((record.id, record.data.decode()))
        elif kind == LIMITS:
            image.limits.append(record)
        elif kind == CLEAN:
            image.clean_marks.append(record.id)
        elif kind == PAGE:
            queue_id, page = decode_page(record)
            image.pages.setdefault(queue_id, []).append(page)
        elif kind in (CONSUMED, COUNTED):
            marks.append(record)
    if not image.clean:
        image.least_deliveries = 1
    _read_pages(image, marks)
    return image


def _read_subscription(image: Image, record: Record) -> None:
    subscription = decode_subscription(record.data)
    for update in record.updates:
        if update.kind == CLAIMED:
            subscription = subscription.claimed(update.data.decode())
        elif update.kind == KNOWN:
            node_id, first = decode_known(update.data)
            image.known.setdefault(record.id, {}).setdefault(node_id, first)
    image.subscriptions[record.id] = subscription
    image.queues[record.id] = subscription.queue
    if not subscription.durable or any(update.kind == DROPPED for update in record.updates):
        image.drop(record.id)


def _read_pages(image: Image, marks: Iterable[Record]) -> None:
    pages = {page.id: page for page in image.all_pages}
    for record in marks:
        if record.kind == CONSUMED:
            page_id, ids = decode_consumed(record.data)
            pages[page_id].consume(ids)
        else:
            page_id, *counts = decode_counted(record.data)
            pages[page_id].count(*counts)
        pages[page_id].marks.append(record.id)
    for queue_id, queue_pages in image.pages.items():
        least_deliveries = image.least_deliveries_in(image.queues.get(queue_id, ""))
        for page in queue_pages:
            page.count(0, least_deliveries, 0)
            image.large += page.large.values()
        queue_pages.sort(key=_oldest)


def _oldest(item: Record | Page) -> int:
    return item.first if isinstance(item, Page) else item[0]
