"""Whose fault a broken protocol is: ours or the peer's.

Why two classes: a peer that speaks nonsense is an event of daily life (answer with an ERROR frame
and close); a frame that we ourselves cannot write is a bug or bad input on this side, and the
connection is still good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stomp_protocol.frames import Frame


class ProtocolError(Exception):
    """What the two have in common; raise one of them, never this."""


class LocalProtocolError(ProtocolError):
    """We were asked to write what STOMP 1.2 cannot express: nothing was, the connection is good."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what is not STOMP 1.2, or more than the limits allow.

    The stream is lost: say so with ERROR and close.

    ``frames`` are the whole frames that came before the damage in the same ``feed``; they were sent
    in good faith and are to be handled first, or what is done would depend on how the network cut
    the stream.
    """

    def __init__(self, message: str, frames: list[Frame] | None = None) -> None:
        super().__init__(message)
        self.frames: list[Frame] = [] if frames is None else frames
