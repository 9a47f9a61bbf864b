"""Queues that nobody needs any more, and their end (``auto-delete-queues``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final

from broker.core.addresses import INTERNAL_PREFIX
from broker.core.queue import Queue
from broker.storage.errors import JournalError

SLICE: Final = 200
"""Queues that are looked at in one turn of the loop."""

_log = logging.getLogger(__name__)


class Reaper:
    """Deletes queues that had consumers and are not needed any more.

    Some time after their last use, where their settings say so.

    Why only when nobody consumes: then nobody owns a group, no delivery is under way, and what
    somebody sends next begins a queue anew.
    """

    def __init__(self, queues: Mapping[str, Queue], remove: Callable[[Queue], object]) -> None:
        self._queues = queues
        self._remove = remove
        self._idle: dict[Queue, int] = {}  # to the number of its latest entry in _due
        self._due: list[tuple[float, int, Queue]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def consider(self, queue: Queue) -> None:
        """It may have been used for the last time.

        Subscriptions and temporary queues, whose names begin with a slash, end when their owner
        says so, and those of the change record when an administrator does. A paused one is kept: a
        new queue of its name would not be paused.
        """
        if _may_end(queue) and not queue.name.startswith((INTERNAL_PREFIX, "/")):
            due = asyncio.get_running_loop().time() + queue.settings.auto_delete_queues_delay / 1000
            self._count += 1
            self._idle[queue] = self._count
            heappush(self._due, (due, self._count, queue))
            self._arm()

    def stop(self) -> None:
        """Delete nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._due and (self._timer is None or self._timer.when() > self._due[0][0]):
            self.stop()
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for _ in range(SLICE):
            if not self._due or self._due[0][0] > now:
                break
            _, number, queue = heappop(self._due)
            if self._idle.get(queue) != number:
                continue  # it was used since
            del self._idle[queue]
            if _may_end(queue) and self._queues.get(queue.name) is queue:
                try:
                    self._remove(queue)
                except JournalError:
                    return  # it has failed, and says so itself
                _log.info(
                    "queue %s is deleted: it is empty and has no consumers (auto-delete-queues)", queue.name
                )
        self._arm()


def _may_end(queue: Queue) -> bool:
    """Return whether a queue may be deleted: it is idle, and neither recorded nor paused."""
    return queue.idle and queue.made is None and not queue.paused
