"""Deleting a queue because an administrator says so.

Those that nobody needs any more are ``reaper``'s. A queue ends by one entry of the journal that
deletes its records, and only when nothing is left of it: no message in memory, on a page, on its
way to the disk or held by a transaction, and no consumer. So no record ever names a queue that is
not there, whatever crashes when, and every store and every backup gets the deletion as it gets
everything else.
"""

from __future__ import annotations

from typing import Final

from broker.core.addresses import INTERNAL_PREFIX
from broker.core.engine import Engine
from broker.core.queue import Queue

ATTEMPTS: Final = 3
"""How often a queue is emptied before producers are said to be faster."""


class QueueInUseError(Exception):
    """The queue cannot be deleted; the text says why, and what would help."""


class QueueFillingError(QueueInUseError):
    """The queue cannot be deleted, but some of its messages may have been removed."""


def demand_deletable(engine: Engine, name: str, *, remove_consumers: bool, remove_messages: bool) -> Queue:
    """Return a queue that may be deleted. Raises QueueInUseError."""
    queue = engine.queues.get(name)
    if queue is None:
        raise QueueInUseError(f"no queue {name!r} here")
    if name.startswith(INTERNAL_PREFIX) and queue.consumers:
        raise QueueInUseError(f"queue {name!r} is for a broker that is linked: it takes its messages")
    if queue.client_consumers() and not remove_consumers:
        raise QueueInUseError(
            f"queue {name!r} has {queue.client_consumers()} consumers: stop them, or give remove-consumers"
        )
    if len(queue) and not remove_messages:
        raise QueueInUseError(
            f"queue {name!r} has {len(queue)} messages: consume or purge them, or give remove-messages"
        )
    return queue


async def delete(
    engine: Engine, name: str, *, remove_consumers: bool = False, remove_messages: bool = False
) -> int:
    """Delete a queue, durably, and say how many messages went with it.

    ``remove_consumers`` ends those that it has (their connections are closed with an ERROR), as
    destroyQueue of AMQ. Raises QueueInUseError, QueueFillingError.
    """
    queue = demand_deletable(engine, name, remove_consumers=remove_consumers, remove_messages=remove_messages)
    if queue.forwards:
        engine.forget_interest(queue)
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
            if queue.forwards:
                engine.forget_interest(queue)  # news may have come meanwhile
            engine.remove(queue)
            if queue.forwards and engine.news is not None:
                engine.news.ask_again(queue.name.removeprefix(engine.settings.forwarding_queue("")))
            await engine.flushed()
            return purged
        await engine.flushed()  # what is on its way arrives
    raise QueueFillingError(
        f"queue {name!r} is not empty: producers send to it, or open or prepared transactions hold "
        f"{queue.size} bytes of it; {purged} messages were removed"
    )
