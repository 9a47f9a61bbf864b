"""The temporary queues of a broker that failed, which its taker keeps for a while (transient-wait).

Why for a while: a client that returns in time gets the replies that waited for it, and those that
come meanwhile. A client that never returns must not keep them here for ever.

The name of a temporary queue ends with a secret and a tag of its owner: login, client-id and the
name that the client gave it. So the taker recognises the owner, and whoever was told the name to
reply to is no owner by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Final

from broker.core.queue import Queue
from broker.core.subscription import TEMPORARY_PREFIX
from broker.storage.errors import JournalError

_TAG_BYTES: Final = 8


def tagged(secret: str, client: tuple[str, str], name: str) -> str:
    """Return the end of the name of a temporary queue: the secret, and a tag of the owner."""
    return f"{secret}-{_tag(secret, client, name)}" if client[1] else secret


def _tag(secret: str, client: tuple[str, str], name: str) -> str:
    owner = "\0".join((secret, *client, name)).encode()
    return hashlib.blake2b(owner, digest_size=_TAG_BYTES).hexdigest()


class TransientQueues:
    """The temporary queues that were taken over, until their owners return or the wait is over.

    ``end`` ends a queue whose owner has not returned.
    """

    def __init__(self, wait_s: float, end: Callable[[Queue], object]) -> None:
        self.wait_s = wait_s
        self._end = end
        self._kept: dict[Queue, asyncio.TimerHandle] = {}

    def keep(self, queue: Queue) -> bool:
        """Keep a queue for the wait, if it is a temporary one; return whether it is kept."""
        if not self.wait_s or not queue.name.startswith(TEMPORARY_PREFIX):
            return False
        self._kept[queue] = asyncio.get_running_loop().call_later(self.wait_s, self._expire, queue)
        return True

    def take(self, client: tuple[str, str], name: str) -> Queue | None:
        """Return the queue that its owner has called ``name``; None if it is not kept here."""
        for queue, timer in self._kept.items():
            _, secret, tag = queue.name.rsplit("-", 2)
            if tag == _tag(secret, client, name) and not queue.dropped:
                timer.cancel()
                del self._kept[queue]
                return queue
        return None

    def stop(self) -> None:
        """End no queue any more."""
        for timer in self._kept.values():
            timer.cancel()

    def _expire(self, queue: Queue) -> None:
        del self._kept[queue]
        if queue.dropped:
            return  # an administrator has deleted it
        with contextlib.suppress(JournalError):  # it has failed, and says so itself
            self._end(queue)
