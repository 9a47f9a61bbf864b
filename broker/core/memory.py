"""How much of the memory is taken, and who waits for room (``address-full-policy`` BLOCK, or PAGE where the disk is slower than the producers).

Why waiting and not refusing: a producer that is faster than its consumers is slowed down, and nothing is lost. Two bounds: one per
queue (``max-size-bytes``), one for all (``global-max-size``), transactions included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from broker.core.queue import Queue

Callback = Callable[[], None]


class Memory:
    """Counts the bytes of messages and calls back those who wait, in the order in which they began."""

    __slots__ = ("_bound", "_queues", "_scheduled", "_waiting", "size")

    def __init__(self, bound: int, queues: Mapping[str, Queue]) -> None:
        self._bound = bound
        self._queues = queues
        self._waiting: dict[Callback, str] = {}
        self._scheduled = False
        self.size = 0

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
        """Must producers to that queue wait?"""
        queue = self._queues.get(name)
        if queue is None:
            return self.over
        return queue.full or self.size >= self._bound + queue.slack

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
