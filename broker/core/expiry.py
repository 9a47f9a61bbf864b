"""Messages that expire: when they are looked for, and what becomes of them (``expires``).

Why not a timer for each: a message that has expired is never delivered, whenever it is found. It is
found when a consumer would get it, and, where none would, by a scan each
``message-expiry-scan-period``. One that a consumer holds stays with it, and may still be
acknowledged; it expires when it comes back. What waits behind the lanes, on pages above all, is not
seen before it is lined up.

It goes to the ``expiry-address``, or is dropped where that is empty. In the queue of that name
nothing expires by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.core.properties import timeless
from broker.storage.errors import JournalError
from broker.turn_budget import VISIT, TurnBudget
from stomp_protocol.versions import header_line

if TYPE_CHECKING:
    from broker.core.message import Message
    from broker.core.queue import Queue


SCANNED: Final = 1024
"""Messages that a scan looks at before others have their turn."""


def expired_letter(message: Message, address: str, queue: str, now: int) -> Message:
    """The message for the expiry address, which says where it was and when it was found expired.

    It expires no more.
    """
    kept = [
        line
        for line in message.headers.splitlines(keepends=True)
        if not line.startswith((b"expires:", b"expiration:"))
    ]
    told = (
        header_line("_AMQ_ORIG_ADDRESS", message.target)
        + header_line("_AMQ_ORIG_QUEUE", queue)
        + header_line("_AMQ_ACTUAL_EXPIRY", str(now))
    )
    letter = message.copy(address)
    letter.headers = told + b"".join(kept)
    letter.size += len(letter.headers) - len(message.headers)
    letter.properties = timeless(message.properties)
    letter.deliveries = message.deliveries
    return letter


class ExpiryScan:
    """Looks for what has expired while nobody took it. A ``period_s`` below 0: never.

    ``scan`` looks at some messages of a queue, spends the ``budget`` of the turn, and returns True
    where there may be more. What is beyond its share is looked at in other turns.
    """

    def __init__(self, period_s: float, scan: Callable[[Queue], bool], budget: TurnBudget) -> None:
        self._budget = budget
        self._period_s = period_s
        self._scan = scan
        self._queues: dict[Queue, None] = {}
        self._to_scan: deque[Queue] = deque()
        """Those that the scan under way has not finished with."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, queue: Queue) -> None:
        """Something in it will expire."""
        if self._period_s >= 0 and queue not in self._queues:
            self._queues[queue] = None
            self._arm()

    def stop(self) -> None:
        """Look for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._to_scan.clear()
        self._budget.forget(self._go_on)
        self._period_s = -1.0

    def _arm(self) -> None:
        if self._timer is None and not self._to_scan:
            self._timer = asyncio.get_running_loop().call_later(self._period_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._to_scan.extend(self._queues)
        self._go_on()

    def _go_on(self) -> None:
        budget, watch = self._budget, self._budget.watch
        floor = budget.floor()
        began = 0.0 if watch is None else watch.now()
        try:
            while self._to_scan and budget.left > floor:
                budget.spend(VISIT)
                queue = self._to_scan[0]
                if not self._scan(queue):
                    self._to_scan.popleft()
                    if not queue.expiring:
                        del self._queues[queue]
        except JournalError:
            self._to_scan.clear()  # it has failed, and says so itself
            return
        if watch is not None:
            watch.note(began, lambda: "the scan for expired messages")
        if self._to_scan:
            budget.wait(self._go_on)
        elif self._queues and self._period_s >= 0:
            self._arm()
