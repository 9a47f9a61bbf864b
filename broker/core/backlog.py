"""What waits behind a queue's lanes: nobody has asked for it yet, and not all of it is in memory.

Why not decoded at once: a backup that takes over 10^6 messages has to serve its first client long
before the last of these is delivered. A message becomes an object, with its group in a lane, when a
consumer has room for it and nothing older is left. What arrives meanwhile waits behind, in the same
line, so that order is what it would have been.

    lanes  <-  front: what a start found, pages, the messages  <-  tail: what came after the
               of the page that was read last                      last page

A page is cut from the oldest of the tail, so that what is left of it goes on waiting behind. While
all memory together is full (``paging``) pages are cut from anywhere, and messages come back from
the lanes to the front.

A message that was prepared before a start is a ``Message`` that is ``held``: it keeps its place
here, and no page is cut from it, so that its record says where it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import is_not
from typing import Final, TypeAlias, TypeGuard

from broker.core.message import DELIVERIES, Message, block, decode, decode_counts, stored_size
from broker.core.pages import Page
from broker.storage.records import Record

CHUNK: Final = 256
"""Messages taken from a backlog in one turn of the loop: about a millisecond."""

Loose: TypeAlias = Record | Message
"""A message in memory, with a record of its own or, once its page was read, without."""


def restore(record: Record, *, least_deliveries: int) -> Message:
    """A record as a message; ``least_deliveries``: 1 where it may have been delivered, else 0."""
    _, message = decode(record.id, record.data)
    for update in record.updates:
        if update.kind == DELIVERIES:
            message.deliveries, message.refusals = decode_counts(update.data)
    message.deliveries = max(message.deliveries, least_deliveries)
    return message


class Backlog:
    """Oldest first.

    ``size`` is the bytes of what is in memory, ``tail_size`` of those behind the last page; ``len``
    counts the messages of pages too.
    """

    __slots__ = ("_count", "_front", "_tail", "least_deliveries", "size", "tail_size")

    def __init__(
        self, line: Iterable[Loose | Page] = (), *, size: int = 0, least_deliveries: int = 0
    ) -> None:
        self.least_deliveries = least_deliveries
        self.size = self.tail_size = size
        self._front: deque[Loose | Page] = deque()
        self._tail: deque[Loose] = deque()
        self._count = 0
        pages = False
        for item in line:
            if isinstance(item, Page):
                pages = True
                self._cut()
                self._front.append(item)
                self._count += item.left
            else:
                self._tail.append(item)
        self._count += len(self._tail) + sum(not isinstance(item, Page) for item in self._front)
        if pages:
            self.tail_size = sum(map(size_of, self._tail))

    def __len__(self) -> int:
        return self._count

    def append(self, message: Message) -> None:
        """A message that arrived after all these."""
        self._tail.append(message)
        self._count += 1
        self.size += message.size
        self.tail_size += message.size

    def adopt(self, item: Loose | Page, *, least_deliveries: int) -> None:
        """What came with the journal of another broker."""
        if isinstance(item, Page):
            self._cut()
            self._front.append(item)
            self._count += item.left
            self.tail_size = 0
        elif isinstance(item, Message):
            self.append(item)
        else:
            self.append(restore(item, least_deliveries=least_deliveries))

    def next_page(self) -> Page | None:
        """The page that has to be read before anything can be taken.

        None if the oldest is in memory, or nothing is left.
        """
        oldest = self._front[0] if self._front else None
        return oldest if isinstance(oldest, Page) else None

    def take(self) -> Message:
        """The oldest one, which is in memory."""
        if self._front:
            oldest = self._front.popleft()
            assert not isinstance(oldest, Page), "a page has to be read first"
        else:
            oldest = self._tail.popleft()
            self.tail_size -= size_of(oldest)
        message = self.message(oldest)
        self._count -= 1
        self.size -= message.size
        return message

    def put(self, page: Page, messages: Sequence[Message]) -> bool:
        """Put what was read of a page, all that is left, in its place; False if it is not here."""
        front = self._front
        place = next((place for place, item in enumerate(front) if item is page), None)
        if place is None:
            return False
        front.rotate(-place)
        front.popleft()
        front.extendleft(reversed(messages))
        front.rotate(place)
        self._count += len(messages) - page.left
        self.size += sum(message.size for message in messages)
        return True

    def remove(self, message: Message) -> None:
        """Take out a message that is held."""
        if message in self._tail:
            self._tail.remove(message)
            self.tail_size -= message.size
        else:
            self._front.remove(message)
        self._count -= 1
        self.size -= message.size

    def take_held(self) -> list[Message]:
        """Take out all messages that are held, oldest first."""
        messages = [item for item in self.items() if _is_held(item)]
        for message in messages:
            self.remove(message)
        return messages

    @property
    def ahead(self) -> bool:
        """Is there anything before the tail?"""
        return bool(self._front)

    def keep(self, size: int) -> None:
        """The oldest so many bytes of the tail are needed soon: no page is cut from them now."""
        for item in self.oldest_of_tail(size):
            self._tail.popleft()
            self._front.append(item)
            self.tail_size -= size_of(item)

    def oldest_of_tail(self, size: int) -> list[Loose]:
        """So many bytes of messages, or all of the tail: what the next page will hold.

        All of one block of ids: a page has one place in the line, and what was taken over from
        another broker may belong between two blocks of ours. None of them is held: those that the
        tail begins with are not of the tail any more.
        """
        run: list[Loose] = []
        while self._tail and _is_held(self._tail[0]):
            self.tail_size -= size_of(self._tail[0])
            self._front.append(self._tail.popleft())
        for item in self._tail:
            if size <= 0 or (run and block(item.id) != block(run[0].id)) or _is_held(item):
                break
            run.append(item)
            size -= size_of(item)
        return run

    def cut(self, run: Sequence[Loose], page: Page) -> int | None:
        """The page stands for this run, which was the oldest of the tail, or somewhere before it.

        The bytes that this sets free. None if a consumer was faster.
        """
        size = sum(map(size_of, run))
        if _begins(self._tail, run):
            for _ in run:
                self._tail.popleft()
            self._front.append(page)
            self.tail_size -= size
        elif not self._replace(run, page):
            return None
        self.size -= size
        return size

    def _replace(self, run: Sequence[Loose], page: Page) -> bool:
        """Put the page in the place of a run of the front; False where it is not there any more."""
        front = self._front
        place = next((place for place, item in enumerate(front) if item is run[0]), None)
        if place is None:
            return False
        front.rotate(-place)
        is_there = _begins(front, run)
        if is_there:
            for _ in run:
                front.popleft()
            front.appendleft(page)
        front.rotate(place)
        return is_there

    def put_first(self, messages: Sequence[Message]) -> None:
        """Take back these messages, youngest first, which are older than all that is here."""
        self._front.extendleft(messages)
        self._count += len(messages)
        self.size += sum(message.size for message in messages)

    def run_behind(self, kept_bytes: int, most: int, least: int) -> list[Loose]:
        """Return the oldest messages in memory that may be one page, behind ``kept_bytes``.

        ``most`` bytes, or what is left before a page; [] where no run has ``least`` bytes. Nothing
        is left in the tail by this.
        """
        self._cut()
        self.tail_size = 0
        run: list[Loose] = []
        size = 0
        for item in self._front:
            last = run[-1].id if run else 0
            stays = isinstance(item, Page) or _is_held(item)
            if stays or size >= most or (run and not _follows(last, item.id)):
                if size >= least:
                    break
                run, size = [], 0
            if isinstance(item, Page) or stays:
                continue
            if not run and size_of(item) <= kept_bytes:
                kept_bytes -= size_of(item)
                continue
            kept_bytes = 0
            run.append(item)
            size += size_of(item)
        return run if size >= least else []

    def message(self, item: Loose) -> Message:
        """As it would be delivered."""
        if isinstance(item, Message):
            return item
        return restore(item, least_deliveries=self.least_deliveries)

    def items(self) -> Iterator[Loose | Page]:
        """Everything, oldest first."""
        return chain(self._front, self._tail)

    def _cut(self) -> None:
        self._front.extend(self._tail)
        self._tail.clear()


def _is_held(item: Loose | Page) -> TypeGuard[Message]:
    """Return whether this is a message that was prepared before the start."""
    return isinstance(item, Message) and item.held


def _begins(line: Sequence[Loose | Page], run: Sequence[Loose]) -> bool:
    """Return whether the line begins with the run."""
    return len(line) >= len(run) and not any(map(is_not, run, line))


def _follows(id_: int, next_id: int) -> bool:
    """Return whether a message may stand behind another on a page, which has one place."""
    return next_id > id_ and block(next_id) == block(id_)


def size_of(item: Loose) -> int:
    """The bytes of memory it costs, as ``Message.size`` counts them."""
    return item.size if isinstance(item, Message) else stored_size(item.data)
