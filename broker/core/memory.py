"""How much of the memory is taken, and who waits for room.

``address-full-policy`` BLOCK, or PAGE where the disk is slower than the producers.

Why waiting and not refusing: a producer that is faster than its consumers is slowed down, and
nothing is lost. Two bounds: one per queue (``max-size-bytes``), one for all (``global-max-size``),
transactions included.

Who waits for room that all queues together do not have asks for it (``on_full``): what is in memory
goes to pages, of queues that page. What is left then (what consumers and transactions hold, queues
that block) stops the producers of queues that page no more, up to twice ``global-max-size``: they
had to wait for ever for somebody else's consumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from heapq import nlargest
from operator import attrgetter
from typing import Final

from broker.core.limits import LimitedQueue, Limits, TransactionRoom
from broker.core.pauses import Pauses
from broker.core.queue import Queue
from broker.core.subscription import TOPIC_PREFIX
from broker.core.topics import Topics

Callback = Callable[[], None]


Room = str | TransactionRoom
"""What somebody waits for: room in a queue or topic, or for all that a transaction sends."""

ANY_QUEUE: Final = ""
"""What waits for this waits for the disk alone, and for no queue's room."""

LARGEST_TOLD: Final = 3
"""Of the queues that have the memory, so many are named."""

_log = logging.getLogger(__name__)


class Memory:
    """Counts the bytes of messages, and calls back those who wait for room, first come first."""

    __slots__ = (
        "_eases_below", "_keeper", "_limits", "_paging_bound", "_scheduled", "_told", "_topics", "_waiting",
        "bound", "disk_full", "on_eased", "on_full", "pauses", "queues", "size",
    )  # fmt: skip

    def __init__(
        self,
        bound: int,
        queues: Mapping[str, Queue],
        topics: Topics,
        keeper: Callable[[str], str],
        limits: Limits | None = None,
    ) -> None:
        self.bound = bound
        self._limits = limits
        self._keeper = keeper
        self._paging_bound = bound
        """The same for queues that page: more where pages cannot bring all of it below that."""
        self.queues = queues
        self.pauses = Pauses()
        self.on_eased: Callback | None = None
        """Called when half of the memory is free again after ``paged``."""
        self._eases_below = 0
        self._told = False
        self.on_full: Callback | None = None
        """Called where somebody waits and all queues together have as much as they may."""
        self._topics = topics
        self._waiting: dict[Callback, Room] = {}
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
        if self.size < self._eases_below:
            self._eases_below = 0
            self._paging_bound = self.bound
            self._told = False
            if self.on_eased is not None:
                self.on_eased()

    def reserve(self, size: int) -> None:
        """An open transaction holds so many bytes more (or, negative, fewer)."""
        self.size += size
        if size < 0 and self._waiting:
            self._offer_soon()

    @property
    def over(self) -> bool:
        """Do all queues together have as much as they may?"""
        return self.size >= self.bound

    def is_full(self, name: str, *, forwarded: bool = False) -> bool:
        """Return whether a message to a queue, or to any subscription of a topic, has to wait.

        A message that was ``forwarded`` here goes to no other broker, so it waits for none.
        """
        if self.disk_full or not name:
            return self.disk_full
        queue = self.queues.get(name)
        if queue is not None:
            return self._has_no_room(queue) or (forwarded and _refuses(queue))
        if name.startswith(TOPIC_PREFIX):
            if not forwarded and self.pauses.find_paused((name,)):
                return True
            holders = self._topics.bound(name) if forwarded else self._topics.holders(name)
            return any(map(self._has_no_room, holders)) or (forwarded and any(map(_refuses, holders)))
        if (keeper := self._keeper(name)) != name:
            return self.is_full(keeper)
        if self._limits is not None and self._limits.waits_for_new(name, forwarded=forwarded):
            return True
        if self._paging_bound > self.bound:
            return self.size >= self._paging_bound + self.bound // 32
        return self.over

    def _has_no_room(self, queue: Queue) -> bool:
        bound = self._paging_bound if queue.paging else self.bound
        return queue.full or self.size >= bound + queue.slack

    def paged(self, *, all_of_it: bool) -> None:
        """Note that pages have what was needed, or (``all_of_it``) all that can go there."""
        self._eases_below = self.bound // 2
        if all_of_it:
            self._paging_bound = max(self.bound, min(self.size, 2 * self.bound))
        elif not self.over:
            self._paging_bound = self.bound
        if all_of_it and not self._told:
            self._told = True
            _log.warning(
                "%d bytes of messages are in memory and cannot be paged, but broker.global-max-size is "
                "%d: consumers, transactions or queues that do not page hold them; the largest queues: %s",
                self.size,
                self.bound,
                self._largest(),
            )
        if self._waiting:
            self._offer_soon()

    def reason(self, room: Room) -> str:
        """Return what is full, for the log: who sends to that queue or topic, or commits, waits."""
        if self.disk_full:
            return "the disk is too full (broker.max-disk-usage)"
        name = room if isinstance(room, str) else room.lacking()
        if paused := self.pauses.find_paused((name,)):
            return f"an administrator has paused {paused[0][:48]!r} for producers (brokerctl resume)"
        if not isinstance(room, str):
            return room.reason()
        if name not in self.queues:
            name = self._keeper(name)
        if self._limits is not None and (limit := self._limits.reason(name)):
            return limit
        queue = self.queues.get(name)
        for holder in self._topics.holders(name) if queue is None else (queue,):
            if holder.full:
                return (
                    f"{holder.name!r} has {holder.size} bytes in memory (address-settings: max-size-bytes "
                    f"{holder.settings.max_size_bytes})"
                )
        return (
            f"all queues together have {self.size} bytes in memory (broker.global-max-size {self.bound}); "
            f"most have {self._largest()}"
        )

    def _largest(self) -> str:
        largest = nlargest(LARGEST_TOLD, self.queues.values(), key=attrgetter("size"))
        return ", ".join(f"{queue.name[:48]!r} with {queue.size}" for queue in largest)

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

    def must_wait(self, room: Room) -> bool:
        """Return whether who needs that room has to wait for it."""
        return self.is_full(room) if isinstance(room, str) else self.disk_full or bool(room.lacking())

    def wait(self, room: Room, callback: Callback) -> None:
        """Call back, once and soon, when there is room."""
        self._waiting[callback] = room
        self.want_room()

    def want_room(self) -> None:
        """Make room, if that is what somebody waits for: all queues together have none."""
        if self.over and self.on_full is not None:
            self.on_full()

    def look_again(self) -> None:
        """Look, soon, whether those who wait may go on."""
        if self._waiting:
            self._offer_soon()

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
        for callback, room in list(self._waiting.items()):
            if not self.must_wait(room) and self._waiting.pop(callback, None) is not None:
                callback()


def _refuses(queue: Queue) -> bool:
    """Return whether a queue would refuse a send, so that what another broker has waits there."""
    return isinstance(queue, LimitedQueue) and queue.refuses_to_take(1)
