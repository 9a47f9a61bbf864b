"""The errors of the protocol, divided by whose fault they are: ours or the peer's.

Why two classes: a peer that sends invalid data is common (answer with an ERROR frame and close). A
frame that we cannot write is a bug or bad input on this side, and the connection is still usable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stomp_protocol.frames import Frame


class ProtocolError(Exception):
    """The base of the two errors of the protocol; never raised itself."""


class LocalProtocolError(ProtocolError):
    """We were asked to write a frame that STOMP 1.2 cannot express.

    Nothing was written, and the connection is still usable.
    """


class RemoteProtocolError(ProtocolError):
    """The peer sent data that are not STOMP, or more than the limits allow.

    The stream cannot be read further: send ERROR and close.

    ``frames`` are the whole frames that came before the damage in the same ``feed``. They must be
    handled first; otherwise the outcome would depend on how the network cut the stream.
    """

    def __init__(self, message: str, frames: list[Frame] | None = None) -> None:
        super().__init__(message)
        self.frames: list[Frame] = [] if frames is None else frames
