"""What a client asks for a message beside its group: when it may be delivered, how urgent it is.

Instants are milliseconds of wall time since the epoch, because clients name them: the wall clock of
the broker that is live decides (``Seams.wall_clock``), so brokers want synchronized clocks. 0 is
none.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.sections import AddressSettings

_PACKED: Final = struct.Struct("<BQQ")
PACKED_BYTES: Final = _PACKED.size
INSTANT_MAX: Final = 2**63 - 1
DEFAULT_PRIORITY: Final = 4


class Properties(NamedTuple):
    """A message that asks for nothing has none of these.

    ``expires``: never delivered from then on. ``due``: not delivered before. ``once``: the id by
    which its destination takes it once (``_AMQ_DUPL_ID``); it matters when it is sent, and is in no
    record of a message.
    """

    priority: int = DEFAULT_PRIORITY
    expires: int = 0
    due: int = 0
    once: str = ""

    def packed(self) -> bytes:
        """As they stand in the message's record."""
        return _PACKED.pack(self.priority, self.expires, self.due)


def unpack(data: bytes, position: int = 0) -> Properties:
    """From a message's record."""
    return Properties(*_PACKED.unpack_from(data, position))


def timeless(properties: Properties | None) -> Properties | None:
    """The same without times: for a message that is kept for who looks after it."""
    if properties is None or properties.priority == DEFAULT_PRIORITY:
        return None
    return Properties(properties.priority)


def changes_expiry(settings: AddressSettings) -> bool:
    """Do these settings say when messages expire?"""
    return max(settings.expiry_delay, settings.min_expiry_delay, settings.max_expiry_delay) >= 0


def bounded(properties: Properties | None, settings: AddressSettings, now: int) -> Properties | None:
    """The same with the expiry that the address settings give it, as Artemis does."""
    known = properties or Properties()
    expires = known.expires
    least, most = settings.min_expiry_delay, settings.max_expiry_delay
    if settings.expiry_delay >= 0:
        expires = expires or now + settings.expiry_delay
    elif expires:
        expires = max(expires, now + least) if least >= 0 else expires
        expires = min(expires, now + most) if most >= 0 else expires
    elif least >= 0 or most >= 0:
        expires = now + (most if most >= 0 else least)
    return properties if expires == known.expires else known._replace(expires=expires)
