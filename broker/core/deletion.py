"""Deleting queues, because an administrator says so or because nobody needs them any more.

The second is ``auto-delete-queues``.

A queue ends by one entry of the journal that deletes its records, and only when nothing is left of
it: no message in memory, on a page, on its way to the disk or held by a transaction, and no
consumer. So no record ever names a queue that is not there, whatever crashes when, and every store
and every backup gets the deletion as it gets everything else.
"""

from __future__ import annotations

import asyncio
import logging
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from broker.core.queue import Queue
from broker.core.views import INTERNAL_PREFIX
from broker.storage.errors import JournalError

if TYPE_CHECKING:
    from broker.core.engine import Engine

ATTEMPTS: Final = 3
"""How often a queue is emptied before producers are said to be faster."""
SLICE: Final = 200
"""Queues that are looked at in one turn of the loop."""

_log = logging.getLogger(__name__)


class QueueInUseError(Exception):
    """The queue cannot be deleted; the text says why, and what would help."""


async def delete(
    engine: Engine, name: str, *, remove_consumers: bool = False, remove_messages: bool = False
) -> int:
    """Delete a queue, durably, and say how many messages went with it.

    ``remove_consumers`` ends those that it has (their connections are closed with an ERROR), as
    destroyQueue of AMQ. Raises QueueInUseError.
    """
    queue = engine.queues.get(name)
    if queue is None:
        raise QueueInUseError(f"no queue {name!r} here")
    if name.startswith(INTERNAL_PREFIX):
        raise QueueInUseError(f"queue {name!r} is the broker's own")
    if queue.consumers and not remove_consumers:
        raise QueueInUseError(
            f"queue {name!r} has {len(queue.consumers)} consumers: stop them, or say remove-consumers"
        )
    if len(queue) and not remove_messages:
        raise QueueInUseError(
            f"queue {name!r} has {len(queue)} messages: consume or purge them, or say remove-messages"
        )
    purged = 0
    for _ in range(ATTEMPTS):
        for consumer in list(queue.consumers) if remove_consumers else ():
            engine.unsubscribe(consumer)
            if consumer.gone is not None:
                consumer.gone()
        if remove_messages:
            purged += await engine.purge(name)
        if engine.queues.get(name) is not queue:
            return purged
        if queue.idle:
            engine.remove(queue)
            await engine.flushed()
            return purged
        await engine.flushed()  # what is on its way arrives
    raise QueueInUseError(
        f"queue {name!r} is not empty: producers send to it, or transactions hold {queue.size} bytes of "
        f"it; {purged} messages were removed"
    )


class Reaper:
    """Deletes queues that had consumers and are not needed any more.

    Some time after their last use, where their settings say so.

    Why only when nobody consumes: then nobody owns a group, no delivery is under way, and what
    somebody sends next begins a queue anew.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: dict[Queue, int] = {}  # to the number of its latest entry in _due
        self._due: list[tuple[float, int, Queue]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def consider(self, queue: Queue) -> None:
        """It may have been used for the last time."""
        if queue.idle and not queue.name.startswith(INTERNAL_PREFIX):
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
            if queue.idle and self._engine.queues.get(queue.name) is queue:
                try:
                    self._engine.remove(queue)
                except JournalError:
                    return  # it has failed, and says so itself
                _log.info("queue %s is deleted: empty and without consumers (auto-delete-queues)", queue.name)
        self._arm()
