"""The frames of a STOMP connection, and what each command may carry.

Everything that the codec knows about single commands is in this file.
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
"""The commands: the bytes on the wire, each with the string for it.

One lookup decodes and validates a command.
"""

WITH_BODY: Final = frozenset({"SEND", "MESSAGE", "ERROR"})
"""The commands that may have a body (STOMP 1.2, "Body")."""

UNESCAPED: Final = frozenset({"CONNECT", "CONNECTED"})
"""The commands whose headers have no escapes, for the sake of STOMP 1.0.

See STOMP 1.2, "Value Encoding". The command STOMP is not among them.
"""


class Frame(msgspec.Struct):
    """A frame; the first value of a repeated header counts.

    See STOMP 1.2, "Repeated Header Entries".
    """

    command: str
    headers: dict[str, str]
    body: bytes = b""


class LargeHead(Frame):
    """The beginning of a SEND with a large body; its ``LargePart``s follow directly."""


class LargePart(Frame):
    """The next bytes of a large body; ``last``: they end the body."""

    last: bool = False


NO_HEADERS: Final[dict[str, str]] = {}
