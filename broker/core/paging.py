"""Writes pages and reads them back (``address-full-policy`` PAGE).

What does not fit in memory waits on the disk, and producers do not.

What happens when
    a queue is full           what arrives is not lined up any more but stays in its backlog, whose
                              tail grows
    a page's worth is there   blob written, synced, with the backup -> one entry: PAGE added, its
                              messages' records deleted -> memory is free
    consumers get there       blob read, its messages lined up, as many as fit
    a message is consumed     CONSUMED added; with the last one PAGE and its marks are deleted,
                              durably -> the blob is removed
    all memory is full        of each queue that pages only its share stays, oldest messages first;
                              the rest goes to pages, the largest queues first, until there is room:
                              ``relieve``
Nobody waits for any of it: receipts are those of the journal. Only if the disk is too slow for the
producers, or cannot be written, they wait after all: at ``queue.SLACK`` pages more than the queue
may have.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from broker.core.backlog import CHUNK, Backlog, Loose
from broker.core.blobs import HeldBlobs, LargeBodies
from broker.core.memory import Memory
from broker.core.message import (
    CONSUMED,
    COUNTED,
    DELIVERIES,
    MESSAGE,
    PAGE,
    Message,
    decode_stored,
    encode_counts,
    encode_stored,
)
from broker.core.pages import Page, encode_consumed, encode_counted, encode_page
from broker.core.queue import Queue
from broker.storage.blobs import Blob
from broker.storage.entries import EntryStore
from broker.storage.entry import ADD, DELETE, UPDATE, Operation
from broker.storage.errors import JournalDamagedError, JournalError, JournalFailedError
from broker.storage.gate import DurabilityGate

RETRY_S: Final = 1.0
"""After a page that could not be written or read, to the next try."""

LEAST_BYTES: Final = 2048
"""Of messages that are worth a page while all memory together is full."""
READS_MAX: Final = 4
"""Pages that are read at one time."""

_log = logging.getLogger(__name__)


class Paging:
    """All pages of one engine.

    ``large`` are the bodies that messages name, ``memory`` is told what a page sets free and what
    it takes.
    """

    def __init__(self, entries: EntryStore, gate: DurabilityGate, memory: Memory, large: LargeBodies) -> None:
        self.blobs = HeldBlobs(entries.pages, entries, gate)
        self._entries = entries
        self._memory = memory
        self._large = large
        self.written = 0
        """Pages so far."""
        self._due: dict[Queue, None] = {}
        self._writer: asyncio.Task[None] | None = None
        self._readers: dict[Queue, asyncio.Task[None]] = {}
        self._reading = asyncio.Semaphore(READS_MAX)
        self._stopped = False
        self._wanted_room = False
        self._room_made = asyncio.Event()
        """Nothing is under way to make room."""
        self._room_made.set()
        self._window = math.inf
        self.on_prepared: Callable[[Queue, Page, Sequence[Message]], None] = _ignore
        """Called with what was read of a page that has messages of a prepared transaction."""
        memory.on_full = self.relieve
        memory.on_eased = self._eased

    # --------------------------------------------------------------------- what the journal is told

    def removals(self, messages: Sequence[Message]) -> list[Operation]:
        """The operations by which these messages end, in the entry that is appended now."""
        operations = [Operation(DELETE, MESSAGE, message.id) for message in messages if message.page is None]
        if len(operations) == len(messages):
            return operations
        consumed: dict[Page, list[int]] = {}
        for message in messages:
            if message.page is not None:
                consumed.setdefault(message.page, []).append(message.id)
        for page, ids in consumed.items():
            page.consume(ids)
            if page.left:
                operations.append(self._mark(page, CONSUMED, encode_consumed(page, ids)))
            else:
                operations += self._ended(page)
        return operations

    def drop(self, pages: Iterable[Page]) -> list[Operation]:
        """The same for all that is left of these pages, none of whose messages is in memory."""
        operations = []
        for page in pages:
            self._large.end(page.large.values())
            operations += self._ended(page)
        return operations

    def counts(self, messages: Iterable[Message]) -> list[Operation]:
        """The operations that record how often these messages were delivered and refused."""
        operations = []
        for message in messages:
            page = message.page
            if page is None:
                operations.append(Operation(UPDATE, DELIVERIES, message.id, encode_counts(message)))
            else:
                data = encode_counted(page, message.id, message.deliveries, message.refusals)
                operations.append(self._mark(page, COUNTED, data))
        return operations

    def final_counts(self, queues: Iterable[Queue]) -> list[Operation]:
        """The same for all ever delivered; nobody knows which of a page were before the start."""
        stored = [item for queue in queues for item in queue.all()]
        operations = self.counts([item for item in stored if isinstance(item, Message) and item.deliveries])
        for page in stored:
            if isinstance(page, Page) and page.least_deliveries:
                data = encode_counted(page, 0, page.least_deliveries, 0)
                operations.append(self._mark(page, COUNTED, data))
        return operations

    def _mark(self, page: Page, kind: int, data: bytes) -> Operation:
        mark = self._entries.next_id()
        page.marks.append(mark)
        return Operation(ADD, kind, mark, data)

    def _ended(self, page: Page) -> list[Operation]:
        self.blobs.end((page.blob,))
        return [Operation(DELETE, PAGE, page.id), *(Operation(DELETE, CONSUMED, mark) for mark in page.marks)]

    # ----------------------------------------------------------------------------------------- life

    def pages(self, queue: Queue) -> bool:
        """Does that queue page, or do its producers wait?"""
        return queue.settings.pages and self.blobs.store is not None

    def full(self) -> bool:
        """Has all memory together reached its bound?"""
        return self._memory.over

    def arrived(self, queue: Queue, backlog: Backlog) -> None:
        """There is more in the backlog of a queue that pages: write a page when it is worth it."""
        if backlog.tail_size >= self._worth(queue, backlog) and queue not in self._due and not self._stopped:
            self._due[queue] = None
            self._begin_to_write()

    def window(self) -> float:
        """Return how many bytes a queue may line up: its share, while memory is short."""
        return self._window

    def _eased(self) -> None:
        self._window = math.inf
        for queue in self._memory.queues.values():
            if queue.backlog is not None:
                queue.wake()

    def relieve(self) -> None:
        """Bring to pages, soon, what is not needed next: all memory together is full."""
        if self.blobs.store is not None and not self._stopped:
            self._wanted_room = True
            self._room_made.clear()
            self._begin_to_write()

    def wanted(self, queue: Queue, backlog: Backlog, page: Page) -> None:
        """That page is the next thing its consumers need."""
        if queue not in self._readers and not self._stopped:
            task = asyncio.get_running_loop().create_task(
                self._bring(queue, backlog, page), name=f"read a page of {queue.name}"
            )
            self._readers[queue] = task
            task.add_done_callback(partial(self._was_read, queue))

    async def read(self, page: Page) -> list[Message]:
        """What is left of a page, oldest first. Raises OSError, JournalDamagedError."""
        store = self.blobs.store
        assert store is not None, "a page where none can be kept"
        store.hold(page.blob)
        try:
            data = b"".join([chunk async for chunk in store.chunks(page.blob)])
        finally:
            store.release(page.blob)
        messages: list[Message] = []
        for message in decode_stored(page, data):
            messages.append(message)
            if len(messages) % CHUNK == 0:
                await asyncio.sleep(0)
        return messages

    async def bring(self, queue: Queue, page: Page) -> None:
        """Read a page of a queue's backlog now. Raises OSError, JournalDamagedError."""
        messages = await self.read(page)
        if queue.backlog is not None:
            self._put(queue, queue.backlog, page, messages)

    def stop(self) -> None:
        """Write and read nothing more; what is in memory stays as it is."""
        self._stopped = True
        self._due.clear()
        if self._writer is not None:
            self._writer.cancel()
        for task in self._readers.values():
            task.cancel()

    # --------------------------------------------------------------------------------------- inside

    def _begin_to_write(self) -> None:
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write(), name="write pages")

    async def _make_room(self) -> None:
        """Bring what queues have beyond their share to pages. Raises JournalError."""
        memory = self._memory
        holders = [queue for queue in memory.queues.values() if queue.paging and queue.size]
        enough = memory.bound * 7 // 8
        share = self._window = memory.bound // (2 * max(1, len(holders)))
        written = self.written
        disk_takes_pages = True
        for queue in sorted(holders, key=attrgetter("size"), reverse=True):
            if not disk_takes_pages or memory.size < enough or queue.size <= share:
                break
            disk_takes_pages = await self._page_out(queue, share, enough)
        if memory.over and (self.written > written or not disk_takes_pages):
            self._wanted_room = True  # for what has come meanwhile, or to try again
        memory.paged(all_of_it=memory.over and not self._wanted_room)

    async def _page_out(self, queue: Queue, share: int, enough: int) -> bool:
        """Do it with one queue; False where the disk takes no page."""
        least = min(LEAST_BYTES, queue.page_bytes)
        while self._memory.size >= enough:
            lined_up = queue.set_back(share, queue.page_bytes)
            if (backlog := queue.backlog) is None:
                break
            run = backlog.run_behind(max(0, share - lined_up), queue.page_bytes, least)
            if not run:
                break
            written = self.written
            if not await self._write_run(queue, backlog, run):
                return False
            if self.written == written:
                break  # its consumers are faster
        if queue.filtering is not None:
            queue.filtering.forget()
        return True

    def _worth(self, queue: Queue, backlog: Backlog) -> int:
        """Bytes of tail for which a page is written.

        Twice as many where its beginning is what consumers need next, which then stays in memory.

        Fewer while all memory together is full, or many short queues could fill it for ever.
        """
        page = queue.page_bytes // 8 if self._memory.over else queue.page_bytes
        return page if backlog.ahead else 2 * page

    async def _write(self) -> None:
        try:
            while self._due or self._wanted_room:
                if self._wanted_room:
                    self._wanted_room = False
                    await self._make_room()
                    self._room_made.set()
                    continue
                queue = next(iter(self._due))
                if (backlog := queue.backlog) is not None and backlog.tail_size >= self._worth(
                    queue, backlog
                ):
                    await self._write_page(queue, backlog)
                else:
                    del self._due[queue]
        except JournalError:
            self._due.clear()  # the journal has failed, and says so itself
        finally:
            self._writer = None
            self._room_made.set()

    async def _write_page(self, queue: Queue, backlog: Backlog) -> None:
        """Write the oldest of the tail, unless a consumer comes first. Raises JournalError."""
        if not backlog.ahead:
            backlog.keep(self._worth(queue, backlog) // 2)
        run = backlog.oldest_of_tail(queue.page_bytes)
        if run:  # else one message was more than a page: it stays, and nothing is behind it
            await self._write_run(queue, backlog, run)

    async def _write_run(self, queue: Queue, backlog: Backlog, run: Sequence[Loose]) -> bool:
        """Write these messages, unless a consumer comes first; False where the disk takes no page.

        Raises JournalError.
        """
        store = self.blobs.store
        assert store is not None, "a page where none can be kept"
        try:
            writer = await store.begin()
            try:
                large = await self._encode(queue, backlog, run, writer.write)
                blob = await writer.finish()
            except BaseException:
                writer.discard()
                raise
        except OSError as error:
            _log.warning(
                "queue %s: a page could not be written, so its messages stay in memory: %s",
                queue.name,
                error,
            )
            await asyncio.sleep(RETRY_S)
            return False
        page = Page(self._entries.next_id(), blob, run[0].id, len(run), large)
        freed = backlog.cut(run, page) if queue.backlog is backlog else None
        if freed is None:
            store.release(blob)
            return True
        self._entries.append(
            [
                Operation(ADD, PAGE, page.id, encode_page(page, queue.id)),
                *(Operation(DELETE, MESSAGE, item.id) for item in run if not isinstance(item, Message)),
                *self.removals([item for item in run if isinstance(item, Message)]),
            ]
        )
        self.written += 1
        self._memory.give(queue, freed)
        return True

    async def _encode(
        self, queue: Queue, backlog: Backlog, run: Sequence[Loose], write: Callable[[bytes], None]
    ) -> dict[int, Blob]:
        """Write the messages; the large bodies that they name."""
        large = {}
        for start in range(0, len(run), CHUNK):
            messages = [backlog.message(item) for item in run[start : start + CHUNK]]
            write(b"".join([encode_stored(message, queue.id) for message in messages]))
            large.update({message.id: message.large for message in messages if message.large is not None})
            await asyncio.sleep(0)
        return large

    async def _bring(self, queue: Queue, backlog: Backlog, page: Page) -> None:
        told = False
        while True:
            try:
                async with self._reading:
                    if self._memory.over:
                        self.relieve()
                        await self._room_made.wait()
                    messages = await self.read(page)
                break
            except (JournalDamagedError, FileNotFoundError) as error:
                _log.error("queue %s: a page is missing or damaged: %s", queue.name, error)
                self._stopped = True
                if self._entries.on_failed is not None:
                    self._entries.on_failed(JournalFailedError(str(error)))
                return
            except OSError as error:
                if not told:
                    _log.warning("queue %s: a page cannot be read: %s; trying again", queue.name, error)
                    told = True
                await asyncio.sleep(RETRY_S)
        if queue.backlog is backlog:
            self._put(queue, backlog, page, messages)
        del self._readers[queue]
        queue.wake()

    def _put(self, queue: Queue, backlog: Backlog, page: Page, messages: Sequence[Message]) -> None:
        if backlog.put(page, messages):
            self._memory.take(queue, sum(message.size for message in messages))
            if page.prepared:
                page.prepared = False
                self.on_prepared(queue, page, messages)

    def _was_read(self, queue: Queue, task: asyncio.Task[None]) -> None:
        if self._readers.get(queue) is task:
            del self._readers[queue]


def _ignore(_queue: Queue, _page: Page, _messages: Sequence[Message]) -> None:
    """Do nothing: there are no prepared transactions."""
