"""The limits that an administrator gives a queue while the broker serves (SUN, imqcmd update dst).

They hold in place of ``max-messages`` and ``limit-behavior`` of the address settings, from the next
send on and after each restart, until the queue is deleted. They belong to this broker: the others
of a cluster count what they store themselves.
"""

from __future__ import annotations

import msgspec

from broker.core.addresses import AddressBook
from broker.core.message import LIMITS
from broker.sections import AddressSettings, LimitBehavior
from broker.storage.entry import ADD, DELETE, Operation


class QueueLimits(msgspec.Struct, frozen=True, array_like=True):
    """The limits of a queue, as the journal has them."""

    queue: str
    max_messages: int
    limit_behavior: LimitBehavior


class LimitUpdates:
    """The queues whose limits an administrator has changed, with the journal's records."""

    def __init__(self, addresses: AddressBook) -> None:
        self._addresses = addresses
        self._records: dict[str, list[int]] = {}

    def adopt(self, record_id: int, data: bytes) -> None:
        """Let the limits of a record hold; of several for one queue the last counts."""
        limits = msgspec.msgpack.decode(data, type=QueueLimits)
        settings = msgspec.structs.replace(
            self._addresses.settings(limits.queue),
            max_messages=limits.max_messages,
            limit_behavior=limits.limit_behavior,
        )
        self._addresses.give(limits.queue, settings)
        self._records.setdefault(limits.queue, []).append(record_id)

    def replace(self, queue: str, settings: AddressSettings, record_id: int) -> list[Operation]:
        """Let settings hold for a queue, and return the operations that make them durable."""
        operations = [*self.end(queue)]
        self._addresses.give(queue, settings)
        self._records[queue] = [record_id]
        limits = QueueLimits(queue, settings.max_messages, settings.limit_behavior)
        return [*operations, Operation(ADD, LIMITS, record_id, msgspec.msgpack.encode(limits))]

    def end(self, queue: str) -> list[Operation]:
        """Forget the limits of a queue, by these operations: it is deleted, or gets other ones."""
        self._addresses.take_back(queue)
        return [Operation(DELETE, LIMITS, record_id) for record_id in self._records.pop(queue, ())]
