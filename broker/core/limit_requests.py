"""The request of an administrator to give a queue other limits: what is refused, and why.

See ``limit_updates`` for what becomes of the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from broker.core.engine import Engine
from broker.core.limits import LimitedQueue
from broker.sections import AddressSettings

FIELDS: Final[Mapping[str, str]] = {"max-messages": "max_messages", "limit-behavior": "limit_behavior"}
"""The properties that may be changed, and the names of their fields."""


class LimitsRefusedError(Exception):
    """The limits of a queue were not changed; the text says why."""


def update_limits(engine: Engine, name: str, changes: Mapping[str, Any]) -> AddressSettings:
    """Give a queue of this broker other limits; return its settings.

    ``changes`` has some of the properties ``FIELDS``. The caller waits until they are durable.
    Raises LimitsRefusedError.
    """
    queue = engine.queues[name]
    try:
        msgspec.convert({"match": name, **changes}, AddressSettings)
    except msgspec.ValidationError as error:
        raise LimitsRefusedError(f"limits of queue {name[:64]!r}: {error}") from None
    settings = msgspec.structs.replace(
        queue.settings, **{FIELDS[property_]: value for property_, value in changes.items()}
    )
    if settings.max_messages == 0:
        raise LimitsRefusedError("max-messages is 0: nobody could send; -1 is no limit")
    if "limit-behavior" in changes and max(settings.max_messages, engine.settings.max_messages) < 0:
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
