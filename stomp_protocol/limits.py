"""The limits of a frame, which bound the memory that a peer can make us use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a frame (STOMP 1.2, "Size Limits"), all but the first in bytes.

    A frame that exceeds them is a RemoteProtocolError.

    ``large_from``: SENDs with a body of at least so many bytes are returned in parts, as these
    arrive; None: every frame is returned whole. ``max_header_bytes`` counts the command and all
    header lines with their line ends, without the blank line. ``max_header_line_bytes`` counts one
    header line without its end. A parser holds at most the header and body limits together, and the
    data of one ``feed``. Raises ValueError for a limit below 1.
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
