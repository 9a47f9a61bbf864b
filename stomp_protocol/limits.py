"""How much a peer may make us remember before its first frame is whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one frame (STOMP 1.2, "Size Limits"), all but the first in bytes.

    What exceeds them is a RemoteProtocolError.

    ``large_from``: SENDs with a body of so many bytes come in parts, as it arrives; None: every
    frame comes whole. ``max_header_bytes`` counts the command and all header lines with their line
    ends, the blank line excepted; ``max_header_line_bytes`` one header line without its end. A
    parser holds at most the header and body limits together, and the data of one ``feed``. Raises
    ValueError for a bound below 1.
    """

    max_headers: int = 128
    max_header_line_bytes: int = 16 * 1024
    max_header_bytes: int = 64 * 1024
    max_body_bytes: int = 16 * 1024 * 1024
    large_from: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: a limit is at least 1")


DEFAULT_LIMITS = Limits()
