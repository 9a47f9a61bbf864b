"""The limits that an administrator gives a queue while the broker serves (SUN, imqcmd update dst).

They hold in place of ``max-messages`` and ``limit-behavior`` of the address settings, from the next
send on and after each restart, until the queue is deleted. They belong to this broker: the others
of a cluster count what they store themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.core.addresses import AddressBook
from broker.core.limits import LimitedQueue
from broker.core.message import LIMITS
from broker.sections import AddressSettings, LimitBehavior
from broker.storage.entry import ADD, DELETE, Operation

if TYPE_CHECKING:
    from broker.core.engine import Engine

FIELDS: Final[Mapping[str, str]] = {"max-messages": "max_messages", "limit-behavior": "limit_behavior"}
"""The properties that may be changed, and the names of their fields."""


class QueueLimits(msgspec.Struct, frozen=True, array_like=True):
    """The limits of a queue, as the journal has them."""

    queue: str
    max_messages: int
    limit_behavior: LimitBehavior


class LimitsRefusedError(Exception):
    """The limits of a queue were not changed; the text says why."""


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


def update_limits(engine: Engine, name: str, given: Mapping[str, Any]) -> AddressSettings:
    """Give a queue of this broker other limits; return its settings.

    ``given`` has some of the properties ``FIELDS``. The caller waits until they are durable. Raises
    LimitsRefusedError.
    """
    queue = engine.queues[name]
    try:
        msgspec.convert({"match": name, **given}, AddressSettings)
    except msgspec.ValidationError as error:
        raise LimitsRefusedError(f"limits of queue {name[:64]!r}: {error}") from None
    settings = msgspec.structs.replace(
        queue.settings, **{FIELDS[property_]: value for property_, value in given.items()}
    )
    if settings.max_messages == 0:
        raise LimitsRefusedError("max-messages is 0: nobody could send; -1 is no limit")
    if "limit-behavior" in given and max(settings.max_messages, engine.settings.max_messages) < 0:
        raise LimitsRefusedError(
            "limit-behavior is given, and neither max-messages nor broker.max-messages: nothing would be "
            "limited"
        )
    if not isinstance(queue, LimitedQueue):
        raise LimitsRefusedError(
            f"queue {name[:64]!r} does not count its messages: it has no max-messages in its "
            "address-settings; give it some there, and restart the broker"
        )
    [status] = engine.status((name,))
    if settings.limit_behavior.startswith("REMOVE") and status.paged:
        raise LimitsRefusedError(
            f"queue {name[:64]!r} has {status.paged} messages on the disk, which {settings.limit_behavior} "
            "could not remove: wait until they are consumed, or purge the queue"
        )
    engine.journal.append(engine.limit_updates.replace(name, settings, engine.journal.next_id()))
    queue.limit(settings)
    engine.memory.look_again()
    return settings
