"""The header of the application that each of our messages carries.

Why: a broker that changes or drops headers is found only if there is one to compare. Its value is
the message's id, which the body says, too, so that headers that two messages exchanged show. Its
name is of letters only and its value of digits, which every broker keeps as they are; the case of
the name may change on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google_crc32c import value as _crc32c

NAME: Final = "jrstamp"
DROPPED: Final = -1
"""The digest where there is no such header; no CRC is below 0."""


def line(message: int) -> bytes:
    """The header's line in the frame of a send."""
    return b"jrstamp:%d\n" % message


def sent(message: int) -> int:
    """The digest of what the send of a message had."""
    return _crc32c(b"%d" % message)  # type: ignore[no-any-return]


def arrived(headers: Mapping[str, str]) -> int:
    """The digest of what a delivery has."""
    value = headers.get(NAME)
    if value is None:
        value = next((told for name, told in headers.items() if name.lower() == NAME), None)
    return DROPPED if value is None else _crc32c(value.encode())
