"""Frames: what travels on a STOMP connection, and which of them may carry what.

Everything that the codec knows about single commands stands in this file.
"""

from __future__ import annotations

from typing import Final

import msgspec

CLIENT_COMMANDS: Final = (
    "CONNECT",
    "STOMP",
    "SEND",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "ACK",
    "NACK",
    "BEGIN",
    "COMMIT",
    "ABORT",
    "DISCONNECT",
)
SERVER_COMMANDS: Final = ("CONNECTED", "MESSAGE", "RECEIPT", "ERROR")

COMMANDS: Final[dict[bytes, str]] = {name.encode(): name for name in (*CLIENT_COMMANDS, *SERVER_COMMANDS)}
"""Bytes as they come -> the one string object for them.

One lookup decodes and validates a command.
"""

WITH_BODY: Final = frozenset({"SEND", "MESSAGE", "ERROR"})
"""Only these may have a body (STOMP 1.2, "Body")."""

UNESCAPED: Final = frozenset({"CONNECT", "CONNECTED"})
"""Their headers are taken literally, for the sake of STOMP 1.0 (STOMP 1.2, "Value Encoding").

STOMP is not among them.
"""


class Frame(msgspec.Struct):
    """Of repeated headers the first value counts (STOMP 1.2, "Repeated Header Entries")."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


class LargeHead(Frame):
    """The beginning of a SEND with a large body; its ``LargePart``s follow, and nothing between."""


class LargePart(Frame):
    """The next bytes of a large body; ``last``: and there are no more."""

    last: bool = False


NO_HEADERS: Final[dict[str, str]] = {}
