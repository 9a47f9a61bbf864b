"""A consumer of a queue, and what it holds unacknowledged.

Why a delivery is an object: between dispatch and settlement a message belongs to exactly one place,
the consumer that got it or the transaction in which it was acknowledged, and goes back to its queue
from there when that place ends.

In a conventional cluster a consumer also gets messages of other brokers, their homes. It holds
those together with its own, so that its window bounds both; who settles one, its ``settler`` says.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from broker.core.groups import Lane
    from broker.core.message import Message
    from broker.core.queue import Queue
    from broker.core.selector import Selector


class Part(NamedTuple):
    """What becomes of deliveries that have one settler; those given up are refused for good."""

    acknowledged: Sequence[Delivery] = ()
    refused: Sequence[Delivery] = ()
    given_up: Collection[Delivery] = frozenset()


class Settler(Protocol):
    """A remote home of messages: only it can acknowledge or refuse what it has delivered."""

    message_prefix: str
    """What stands before a message's number in its message-id: the node ID and a hyphen."""

    def settle(self, part: Part) -> asyncio.Future[None]:
        """Take deliveries from their consumers or transactions, and have the home settle them.

        The future is done when that is durable at the home. It never is if the home is lost: then
        the connection of the client ends with an ERROR.
        """
        ...

    def take(self, delivery: Delivery) -> None:
        """Note that a transaction holds the delivery, and its consumer has room for another."""
        ...

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what a transaction held that has ended; that is no refusal."""
        ...


class RemoteParts(Protocol):
    """The parts of a consumer at other brokers."""

    lost: Callable[[str], None]
    """Ends the connection of the consumer's client, with a reason."""

    def offer(self) -> None:
        """Note that the consumer may take messages again."""
        ...

    def end(self) -> None:
        """Take back from the consumer what other brokers gave it, and get nothing more."""
        ...


class Delivery:
    """One dispatch of a message to a consumer; ``tag`` is unique within the consumer and grows.

    ``settler`` is the message's home, None for a message of this broker.
    """

    __slots__ = ("consumer", "lane", "message", "settler", "tag")

    def __init__(
        self,
        message: Message,
        consumer: QueueConsumer,
        lane: Lane,
        tag: int,
        settler: Settler | None = None,
    ) -> None:
        self.message = message
        self.consumer = consumer
        self.lane = lane
        self.tag = tag
        self.settler = settler


class QueueConsumer:
    """One subscription to one queue; made by ``Engine.subscribe``.

    ``deliver`` is called with each delivery and must not call back into the queue. ``window`` is
    how many messages it may hold unacknowledged. With ``auto`` a message counts as acknowledged
    when it is handed over. An ``internal`` consumer (a cluster bridge) is not counted as one that
    clients brought, nor what it gets as a delivery. ``gone`` is called when its queue is deleted.
    With a ``selector`` it gets only what matches. A ``redistributor`` is an internal consumer that
    takes no messages of groups; it leaves as soon as a client consumes. ``remote`` are its parts at
    other brokers, None without any.

    ``window_bytes`` bounds what is on the way to another broker: whoever sends it there takes bytes
    off by ``spend`` and gives them back by ``refund``. A message may go while any are left, so one
    that is larger than the window goes alone.
    """

    __slots__ = (
        "auto", "bytes_left", "closed", "deliver", "gone", "internal", "lanes", "leaving", "owned", "paused",
        "queue", "redistributor", "remote", "rotating", "selector", "tags", "unacknowledged", "window",
    )  # fmt: skip

    def __init__(
        self,
        queue: Queue,
        deliver: Callable[[Delivery], None],
        window: int,
        *,
        window_bytes: int = sys.maxsize,
        auto: bool = False,
        internal: bool = False,
        redistributor: bool = False,
        gone: Callable[[], None] | None = None,
        selector: Selector | None = None,
    ) -> None:
        self.queue = queue
        self.deliver = deliver
        self.window = window
        self.bytes_left = window_bytes
        self.auto = auto
        self.internal = internal or redistributor
        self.redistributor = redistributor
        self.gone = gone
        self.selector = selector
        self.closed = False
        self.leaving = False
        self.paused = False
        self.rotating = False
        self.remote: RemoteParts | None = None
        self.tags = 0
        self.unacknowledged: dict[int, Delivery] = {}
        self.owned: dict[Lane, None] = {}
        self.lanes: list[tuple[int, Lane]] = []

    def is_available(self) -> bool:
        """May it get another message now?"""
        return (
            not self.paused
            and not self.closed
            and (self.auto or len(self.unacknowledged) < self.window)
            and self.bytes_left > 0
        )

    def spend(self, count: int) -> None:
        """Note that so many bytes are on the way to another broker."""
        self.bytes_left -= count

    def refund(self, count: int) -> None:
        """Note that so many bytes are on the way no more; go on if they were missing."""
        self.bytes_left += count
        if 0 < self.bytes_left <= count:
            self.queue.offer(self)

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
