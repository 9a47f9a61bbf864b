"""A client's transaction: what it would do, until it says so.

Why everything waits: the commit is one journal entry, so after any crash either all of it has
happened or nothing (the whole entry is checksummed). Messages sent in it are nowhere before,
messages acknowledged in it belong to it and go back to their places when it is aborted, be it by
ABORT or by the end of its connection.

What has another settler than the engine, in a conventional cluster, takes ``take_remote`` out
before the engine commits the transaction or rolls it back. If it is not all of the transaction, the
commit has two phases (``cluster.coordinator``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.core.consumer import Delivery, Part, Settler
from broker.core.message import Message


class Transaction:
    """Open until ``Engine.commit`` or ``roll_back`` takes it; ``size``: bytes of its sends."""

    __slots__ = ("acknowledged", "given_up", "refused", "sends", "size")

    def __init__(self) -> None:
        self.sends: list[tuple[str, Message]] = []
        self.acknowledged: list[Delivery] = []
        self.refused: list[Delivery] = []
        self.given_up: set[Delivery] = set()
        """Those of the refused that the client does not want again."""
        self.size = 0

    def send(self, queue: str, message: Message) -> None:
        """Send on commit."""
        self.sends.append((queue, message))
        self.size += message.size

    def acknowledge(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge on commit; till then they are the transaction's and not the consumer's."""
        self._take(deliveries, self.acknowledged)

    def refuse(self, deliveries: Collection[Delivery], *, for_good: bool = False) -> None:
        """Refuse (NACK) on commit; ``for_good``: to the dead letters, however often before."""
        self._take(deliveries, self.refused)
        if for_good:
            self.given_up.update(deliveries)

    def take_remote(self) -> dict[Settler, Part]:
        """Take out what other brokers have to settle, by settler."""
        settlers = dict.fromkeys(
            delivery.settler
            for delivery in (*self.acknowledged, *self.refused)
            if delivery.settler is not None
        )
        if not settlers:
            return {}
        parts = {
            settler: Part(
                [delivery for delivery in self.acknowledged if delivery.settler is settler],
                refused := [delivery for delivery in self.refused if delivery.settler is settler],
                self.given_up.intersection(refused),
            )
            for settler in settlers
        }
        self.acknowledged = [delivery for delivery in self.acknowledged if delivery.settler is None]
        self.refused = [delivery for delivery in self.refused if delivery.settler is None]
        self.given_up.intersection_update(self.refused)
        return parts

    def _take(self, deliveries: Iterable[Delivery], into: list[Delivery]) -> None:
        for delivery in deliveries:
            consumer = delivery.consumer
            del consumer.unacknowledged[delivery.tag]
            into.append(delivery)
            if delivery.settler is not None:
                delivery.settler.take(delivery)
            consumer.queue.offer(consumer)
