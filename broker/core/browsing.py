"""What may be seen of an engine's queues: counts, and the messages in their stores.

Administrators and clients that browse see it so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from broker.core.message import Message
from broker.core.pages import Page
from broker.core.paging import Paging
from broker.core.queue import Queue
from broker.core.settings import EngineSettings
from broker.storage.records import Record


class QueueStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Counts of one queue, for people and for the harness; ``store`` as ``EngineSettings.store``.

    ``paged`` of the ``messages`` wait on pages and take no memory; ``size`` is the bytes of the
    others. ``topic``: it is a subscription's, to that topic. ``paused``: for producers, consumers
    or both.
    """

    name: str
    store: str
    messages: int
    paged: int
    unacknowledged: int
    consumers: int
    size: int = msgspec.field(name="bytes")
    topic: str | None = None
    paused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message in a store.

    ``queue`` is where it was meant to go; ``holder`` is the queue that has it. Of a subscription
    both are its queue, and ``topic`` is what the message was sent to.
    """

    store: str
    queue: str
    holder: str
    message: Message
    topic: str | None = None


class Browsing:
    """A reading of every message that was stored when it was made, whoever holds it.

    Oldest first within each queue: ``async for``, then ``close`` in any case.

    Those on a page are read in their turn, one page in memory at a time; what has been consumed by
    then is left out. A record becomes a message in its turn, too: of a million it would take
    seconds. Raises OSError, JournalDamagedError.
    """

    def __init__(
        self, queues: Mapping[str, Queue], settings: EngineSettings, paging: Paging, name: str | None = None
    ) -> None:
        wanted: Iterable[Queue] = queues.values()
        if name is not None:
            wanted = [queues[name]] if name in queues else []
        self._settings = settings
        self._paging = paging
        self._stored = deque((holder, holder.backlog, deque(holder.items())) for holder in wanted)
        self._held = {item: None for _, _, items in self._stored for item in items if isinstance(item, Page)}
        paging.blobs.adopt(page.blob for page in self._held)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BrowsedMessage:
        while self._stored:
            holder, backlog, items = self._stored[0]
            if not items:
                self._stored.popleft()
                continue
            item = items.popleft()
            if isinstance(item, Page):
                items.extendleft(reversed(await self._paging.read(item)))
                self._let_go(item)
                continue
            if isinstance(item, Record):
                assert backlog is not None, "only a backlog has records"
                item = backlog.message(item)
            store, topic = self._settings.store(holder.name), holder.topic
            return BrowsedMessage(
                store, item.target if topic is None else holder.name, holder.name, item, topic
            )
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
            queue.topic,
            queue.paused,
        )
        for name in sorted(queues if names is None else names)
        if (queue := queues.get(name)) is not None
    ]
