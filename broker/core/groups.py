"""Lanes: the order within a queue, and who may take the next message of it.

Why lanes: messages of one group must go to one consumer in order, and a group whose owner is busy
must not hold up the others. A queue is therefore a set of FIFO lanes, one per group and one for
messages without a group, and dispatch picks the lane with the oldest message among those a consumer
may take from: a heap of lanes keyed by their oldest message, so that nothing is ever scanned.

The rules of a group (AMQ message groups, JMSXGroupID and JMSXGroupSeq):
    pinned     the first dispatch makes that consumer the owner, until it leaves or a message that
               closes the group (JMSXGroupSeq -1) has been dispatched
    exclusive  a lane without an owner is offered only when nobody holds a message of it
               unacknowledged (a transaction may outlive its consumer), so that two consumers never
               hold one group
    ordered    a message that comes back goes before all younger ones of its lane

Priority is for messages without a group: their places begin with it, so that the more urgent are
before all others, and the less urgent behind them. A message of a group keeps its turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.core.consumer import QueueConsumer
    from broker.core.message import Message


RANK: Final = 1 << 48
"""How far apart the places of two priorities are: more than there are messages.

Those of priority 4, and of all groups, are below it and above 0.
"""


class Lane:
    """The messages of one group (or of none) that wait in a queue, oldest first.

    ``held`` counts those that are with a consumer or a transaction, ``delayed`` those that wait for
    their refusal to be on the disk or for their redelivery delay: a group waits with them, messages
    without a group do not. ``low`` has those of less than ordinary priority. ``aside`` counts those
    that wait, but in views of selectors (``filtering``).
    """

    __slots__ = ("aside", "delayed", "fresh", "group", "held", "low", "owner", "returned")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.fresh: deque[Message] = deque()
        self.returned: list[tuple[int, Message]] = []
        self.low: list[tuple[int, Message]] = []
        self.owner: QueueConsumer | None = None
        self.held = 0
        self.delayed = 0
        self.aside = 0

    def __lt__(self, other: Lane) -> bool:
        """Heaps order lanes by their oldest message; two entries of one lane with it are equal."""
        return False

    def __len__(self) -> int:
        return len(self.fresh) + len(self.returned) + len(self.low) + self.aside

    def head(self) -> int:
        """The place of the oldest message in its queue, 0 for an empty lane."""
        if self.returned:
            return self.returned[0][0]
        if self.fresh:
            return self.fresh[0].place
        return self.low[0][0] if self.low else 0

    def pop(self) -> Message:
        """Take the oldest message: what came back was at the front, so older than what is fresh."""
        if self.returned:
            return heappop(self.returned)[1]
        return self.fresh.popleft() if self.fresh else heappop(self.low)[1]

    def put_back(self, message: Message) -> None:
        """Put a message at its place, which is not behind all others.

        What a consumer gives back is older than all that is fresh. Only what was prepared before a
        start may not be: older ones that were delivered then are fresh again.
        """
        fresh = self.fresh
        if message.place > RANK:
            heappush(self.low, (message.place, message))
        elif fresh and message.place > fresh[0].place:
            fresh.insert(bisect_left(fresh, message.place, key=attrgetter("place")), message)
        else:
            heappush(self.returned, (message.place, message))

    def take_last(self, messages: Mapping[Message, None], count: int) -> None:
        """Take so many of these out, which most often are the last."""
        fresh = self.fresh
        while count and fresh and fresh[-1] in messages:
            fresh.pop()
            count -= 1
        if count:
            self.take_these(messages)

    def take_these(self, messages: Mapping[Message, None]) -> list[Message]:
        """Take those of these out that wait."""
        fresh = self.fresh
        taken = []
        while fresh and fresh[0] in messages:  # most often the oldest: then the others are left alone
            taken.append(fresh.popleft())
        if len(taken) < len(messages):
            taken += [message for message in fresh if message in messages]
            self.fresh = deque(message for message in fresh if message not in messages)
            taken += [message for _, message in self.returned + self.low if message in messages]
            self.returned = [entry for entry in self.returned if entry[1] not in messages]
            self.low = [entry for entry in self.low if entry[1] not in messages]
            heapify(self.returned)
            heapify(self.low)
        return taken

    def idle(self) -> bool:
        """Nothing waits, nobody holds or owns it: it may be forgotten."""
        return not (self or self.held or self.delayed or self.owner)
