r"""The versions 1.0, 1.1 and 1.2 of STOMP: their differences in one table, and the negotiation.

Why a table: a session reads it once, at CONNECT, and no code elsewhere compares versions. Queues
keep headers in the escapes of 1.2 (``header_line``), which can express everything. For a consumer
of an earlier version, headers with an escape are rewritten.

                       1.0                      1.1                      1.2
    escapes            none                     \n \c \\                 \n \c \\ \r
    spaces             at a header's ends       kept                     kept
                       are cut off
    ends of lines      LF, CR LF                LF; a CR is the value's  LF, CR LF
    ACK names          message-id               message-id and           id, the ``ack`` of
                                                subscription             the MESSAGE
    ack modes          auto, client             and client-individual    and client-individual
    NACK, heart-beats  no                       yes                      yes
    SUBSCRIBE          by id or destination     by id                    by id

In all versions the first value of a repeated header counts. A header that 1.0 cannot express (a
line feed; a colon in a name) keeps its escape there, so that the frame stays whole.

Sources: the three specifications. The spaces of 1.0 follow ActiveMQ: the text of 1.0 does not
forbid them, and clients of its time send them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from stomp_protocol.frames import CLIENT_COMMANDS

_ESCAPED: Final = re.compile(r"\\(?:.|\Z)", re.DOTALL)
UNESCAPE: Final = {"\\\\": "\\", "\\n": "\n", "\\c": ":", "\\r": "\r"}
"""The escapes of STOMP 1.2, each with its meaning."""


class VersionRefusedError(Exception):
    """The client speaks none of our versions; the text, for the ERROR frame, names ours."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Version:
    """A version of the protocol; see the table above.

    ``escapes`` are the escapes that a client may send, with their meanings. ``trims``: spaces at
    the ends of names and values are cut off.

    ``header_line`` encodes one header. ``rewritten`` rewrites the header block of a message, which
    has the escapes of 1.2.
    """

    name: str
    escapes: Mapping[str, str]
    trims: bool = False
    carriage_returns: bool
    """True if a carriage return before a line feed is part of the line's end."""
    acks_by_message: bool
    ack_needs_subscription: bool = False
    ack_modes: tuple[str, ...] = ("auto", "client", "client-individual")
    commands: frozenset[str] = frozenset(CLIENT_COMMANDS)
    heart_beats: bool = True
    subscribes_by_destination: bool = False
    header_line: Callable[[str, str], bytes]
    rewritten: Callable[[bytes], bytes]

    def unescape(self, text: str) -> str:
        """Return a header's name or value without escapes; raises KeyError for an undefined one."""
        if not self.escapes:
            return text
        return _ESCAPED.sub(lambda found: self.escapes[found[0]], text)


def header_line(name: str, value: str) -> bytes:
    """Return a header's line, with the escapes of STOMP 1.2 ("Value Encoding")."""
    return f"{escaped(name)}:{escaped(value)}\n".encode()


def escaped(text: str) -> str:
    """Return a header's name or value with the escapes of STOMP 1.2."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if ":" in text:
        text = text.replace(":", "\\c")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    return text


def _line_1_1(name: str, value: str) -> bytes:
    return f"{name.translate(_ESCAPE_1_1)}:{value.translate(_ESCAPE_1_1)}\n".encode()


def _line_1_0(name: str, value: str) -> bytes:
    return f"{name.translate(_ESCAPE_NAME_1_0)}:{value.translate(_ESCAPE_1_0)}\n".encode()


def _rewritten_1_1(block: bytes) -> bytes:
    return _rewrite(block, _line_1_1)


def _rewritten_1_0(block: bytes) -> bytes:
    return _rewrite(block, _line_1_0)


def _rewrite(block: bytes, line: Callable[[str, str], bytes]) -> bytes:
    if b"\\" not in block:
        return block
    told = (one.partition(":") for one in block.decode().removesuffix("\n").split("\n"))
    return b"".join(line(V1_2.unescape(name), V1_2.unescape(value)) for name, _, value in told)


def _as_it_is(block: bytes) -> bytes:
    return block


_ESCAPE_1_1: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", ":": "\\c"})
_ESCAPE_1_0: Final = str.maketrans({"\n": "\\n"})
_ESCAPE_NAME_1_0: Final = str.maketrans({"\n": "\\n", ":": "\\c"})

V1_0: Final = Version(
    name="1.0",
    escapes={},
    trims=True,
    carriage_returns=True,
    acks_by_message=True,
    ack_modes=("auto", "client"),
    commands=frozenset(CLIENT_COMMANDS) - {"NACK", "STOMP"},
    heart_beats=False,
    subscribes_by_destination=True,
    header_line=_line_1_0,
    rewritten=_rewritten_1_0,
)
V1_1: Final = Version(
    name="1.1",
    escapes={escape: meaning for escape, meaning in UNESCAPE.items() if escape != "\\r"},
    carriage_returns=False,
    acks_by_message=True,
    ack_needs_subscription=True,
    header_line=_line_1_1,
    rewritten=_rewritten_1_1,
)
V1_2: Final = Version(
    name="1.2",
    escapes=UNESCAPE,
    carriage_returns=True,
    acks_by_message=False,
    header_line=header_line,
    rewritten=_as_it_is,
)

VERSIONS: Final = (V1_0, V1_1, V1_2)
"""The versions that are spoken, oldest first."""
SPOKEN: Final = ",".join(version.name for version in VERSIONS)


def negotiate(headers: Mapping[str, str]) -> Version:
    """Return the highest version that both sides speak; raises VersionRefusedError if none is.

    A client without ``accept-version`` speaks 1.0.
    """
    offer = headers.get("accept-version", V1_0.name)
    offered = {name.strip() for name in offer.split(",")}
    for version in reversed(VERSIONS):
        if version.name in offered:
            return version
    raise VersionRefusedError(f"supported protocol versions are {SPOKEN}; the client offers {offer[:64]!r}")
