"""The application's own header, which each of our messages carries.

Why: a broker that changes or drops headers is found only if there is one to compare. The value is
the message's id, which the body has, too; so it shows if two messages exchanged their headers. The
name is of letters only and the value of digits, which every broker keeps as they are. Only the case
of the name may change on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google_crc32c import value as _crc32c

NAME: Final = "jrstamp"
DROPPED: Final = -1
"""The digest of a delivery without the header; no CRC is below 0."""


def line(message: int) -> bytes:
    """Return the header's line in the frame of a send."""
    return b"jrstamp:%d\n" % message


def sent(message: int) -> int:
    """Return the digest of the header that the send of a message had."""
    return _crc32c(b"%d" % message)  # type: ignore[no-any-return]


def arrived(headers: Mapping[str, str]) -> int:
    """Return the digest of the header of a delivery; ``DROPPED`` where it has none."""
    value = headers.get(NAME)
    if value is None:
        value = next((told for name, told in headers.items() if name.lower() == NAME), None)
    return DROPPED if value is None else _crc32c(value.encode())
