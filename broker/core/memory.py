"""How much of the memory is taken, and who waits for room.

``address-full-policy`` BLOCK, or PAGE where the disk is slower than the producers.

Why waiting and not refusing: a producer that is faster than its consumers is slowed down, and
nothing is lost. Two bounds: one per queue (``max-size-bytes``), one for all (``global-max-size``),
transactions included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from broker.core.queue import Queue
from broker.core.subscription import TOPIC_PREFIX
from broker.core.topics import Topics

Callback = Callable[[], None]


ANY_QUEUE: Final = ""
"""What waits for this waits for the disk alone, and for no queue's room."""


class Memory:
    """Counts the bytes of messages, and calls back those who wait for room, first come first."""

    __slots__ = ("_bound", "_queues", "_scheduled", "_topics", "_waiting", "disk_full", "size")

    def __init__(self, bound: int, queues: Mapping[str, Queue], topics: Topics) -> None:
        self._bound = bound
        self._queues = queues
        self._topics = topics
        self._waiting: dict[Callback, str] = {}
        self._scheduled = False
        self.size = 0
        self.disk_full = False
        """Producers wait, whatever room there is in memory: see ``disk``."""

    def take(self, queue: Queue, size: int) -> None:
        """A message has come in."""
        queue.size += size
        self.size += size

    def give(self, queue: Queue, size: int) -> None:
        """A message is gone."""
        queue.size -= size
        self.size -= size
        if self._waiting:
            self._offer_soon()

    def reserve(self, size: int) -> None:
        """An open transaction holds so many bytes more (or, negative, fewer)."""
        self.size += size
        if size < 0 and self._waiting:
            self._offer_soon()

    @property
    def over(self) -> bool:
        """Do all queues together have as much as they may?"""
        return self.size >= self._bound

    def is_full(self, name: str) -> bool:
        """Must producers to that queue wait? To a topic: for any of its subscriptions."""
        if self.disk_full or not name:
            return self.disk_full
        queue = self._queues.get(name)
        if queue is not None:
            return self._has_no_room(queue)
        if name.startswith(TOPIC_PREFIX):
            return any(map(self._has_no_room, self._topics.bound(name)))
        return self.over

    def _has_no_room(self, queue: Queue) -> bool:
        return queue.full or self.size >= self._bound + queue.slack

    def set_disk_full(self, full: bool) -> None:
        """Let producers wait, or go on."""
        self.disk_full = full
        if not full and self._waiting:
            self._offer_soon()

    async def disk_room(self) -> None:
        """Return when the disk is not full."""
        while self.disk_full:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def go_on(waiting: asyncio.Future[None] = waiting) -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self.wait(ANY_QUEUE, go_on)
            try:
                await waiting
            finally:
                self.forget(go_on)

    def wait(self, name: str, callback: Callback) -> None:
        """Call back, once and soon, when the queue has room."""
        self._waiting[callback] = name

    def forget(self, callback: Callback) -> None:
        """Do not call back after all."""
        self._waiting.pop(callback, None)

    def clear(self) -> None:
        """Nobody waits any more."""
        self._waiting.clear()

    def _offer_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._offer)

    def _offer(self) -> None:
        self._scheduled = False
        for callback, name in list(self._waiting.items()):
            if not self.is_full(name) and self._waiting.pop(callback, None) is not None:
                callback()
