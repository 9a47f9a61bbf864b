"""Queues that are no more, and the end of what was in them.

Subscriptions that were dropped, and those and temporary queues whose connection is gone.

Why not at once: a subscription may have a million messages, and what a transaction holds of it must
first come back or be consumed. So it leaves the engine's queues, by an entry of the journal where
somebody was told; what it has is deleted in slices, and its record with the last of it. A start
that finds such a record goes on from there. A new subscription of the same name meanwhile has a
record and a queue of its own, and sees nothing of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from broker.core.consumer import Delivery, QueueConsumer
from broker.core.queue import Queue
from broker.storage.errors import JournalError
from broker.turn_budget import REMOVAL, TurnBudget


class Dropped:
    """From ``add`` until nothing of a queue is left.

    ``read`` reads its pages with messages of prepared transactions, which stay. ``purge`` deletes
    what waits in a queue, a slice with each step; ``forget`` deletes its records.
    """

    def __init__(
        self,
        read: Callable[[Queue], Awaitable[None]],
        purge: Callable[[Queue], Iterator[int]],
        forget: Callable[[Queue], object],
        budget: TurnBudget,
    ) -> None:
        self._budget = budget
        self.queues: dict[Queue, None] = {}
        self._read = read
        self._purge = purge
        self._forget = forget
        self._tasks: dict[asyncio.Task[None], None] = {}

    def add(self, queue: Queue) -> None:
        """Empty a queue that was dropped: nobody sends to it or consumes from it any more."""
        self.queues[queue] = None
        task = asyncio.get_running_loop().create_task(self._empty(queue), name=f"empty {queue.name}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def look(self, queue: Queue) -> None:
        """Some of it is gone: soon, when that is in the journal, see whether that was all."""
        asyncio.get_running_loop().call_soon(self._end_if_empty, queue)

    def stop(self) -> None:
        """Delete nothing more."""
        self.queues.clear()
        for task in self._tasks:
            task.cancel()

    async def _empty(self, queue: Queue) -> None:
        try:
            await self._budget.room()  # thousands may be dropped with one connection
            await self._read(queue)
            for purged in self._purge(queue):
                self._budget.spend(REMOVAL * purged)
                await asyncio.sleep(0)
                await self._budget.room()
        except JournalError:
            return  # it has failed, and says so itself
        # What was on its way to the disk, or with a transaction, goes when it comes (back).
        queue.join(QueueConsumer(queue, _drop, window=1, auto=True, internal=True))
        self._end_if_empty(queue)

    def _end_if_empty(self, queue: Queue) -> None:
        if queue in self.queues and queue.consumers and not (queue.size or len(queue)):
            del self.queues[queue]
            for consumer in list(queue.consumers):  # or each would keep the other in memory
                queue.leave(consumer)
            try:
                self._forget(queue)
            except JournalError:
                return


def _drop(_: Delivery) -> None:
    """In mode auto it counts as consumed."""
