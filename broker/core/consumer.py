"""A consumer of a queue, and what it holds unacknowledged.

Why a delivery is an object: between dispatch and settlement a message belongs to exactly one place,
the consumer that got it or the transaction in which it was acknowledged, and goes back to its queue
from there when that place ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.groups import Lane
    from broker.core.message import Message
    from broker.core.queue import Queue
    from broker.core.selector import Selector


class Delivery:
    """One dispatch of a message to a consumer; ``tag`` is unique within the consumer and grows."""

    __slots__ = ("consumer", "lane", "message", "tag")

    def __init__(self, message: Message, consumer: QueueConsumer, lane: Lane, tag: int) -> None:
        self.message = message
        self.consumer = consumer
        self.lane = lane
        self.tag = tag


class QueueConsumer:
    """One subscription to one queue; made by ``Engine.subscribe``.

    ``deliver`` is called with each delivery and must not call back into the queue. ``window`` is
    how many messages it may hold unacknowledged. With ``auto`` a message counts as acknowledged
    when it is handed over. An ``internal`` consumer (a cluster bridge) is not counted as one that
    clients brought, nor what it gets as a delivery. ``gone`` is called when its queue is deleted.
    With a ``selector`` it gets only what matches. A ``redistributor`` is an internal consumer that
    takes no messages of groups; it leaves as soon as a client consumes.
    """

    __slots__ = (
        "auto", "closed", "deliver", "gone", "internal", "lanes", "leaving", "owned", "paused", "queue",
        "redistributor", "rotating", "selector", "tags", "unacknowledged", "window",
    )  # fmt: skip

    def __init__(
        self,
        queue: Queue,
        deliver: Callable[[Delivery], None],
        window: int,
        *,
        auto: bool = False,
        internal: bool = False,
        redistributor: bool = False,
        gone: Callable[[], None] | None = None,
        selector: Selector | None = None,
    ) -> None:
        self.queue = queue
        self.deliver = deliver
        self.window = window
        self.auto = auto
        self.internal = internal or redistributor
        self.redistributor = redistributor
        self.gone = gone
        self.selector = selector
        self.closed = False
        self.leaving = False
        self.paused = False
        self.rotating = False
        self.tags = 0
        self.unacknowledged: dict[int, Delivery] = {}
        self.owned: dict[Lane, None] = {}
        self.lanes: list[tuple[int, Lane]] = []

    def is_available(self) -> bool:
        """May it get another message now?"""
        return not self.paused and not self.closed and (self.auto or len(self.unacknowledged) < self.window)

    def leave(self) -> None:
        """Dispatch nothing to it any more: its client is gone. ``Engine.unsubscribe`` follows."""
        self.paused = self.leaving = True

    def pause(self) -> None:
        """Dispatch nothing to it for now: its connection takes no more."""
        self.paused = True

    def resume(self) -> None:
        """Go on after ``pause``."""
        if self.paused and not self.leaving:
            self.paused = False
            self.queue.offer(self)

    def through(self, delivery: Delivery) -> list[Delivery]:
        """All it holds up to and with that delivery, oldest first: what a cumulative ACK names."""
        last = delivery.tag
        held = []
        for tag, candidate in self.unacknowledged.items():
            if tag > last:
                break
            held.append(candidate)
        return held
