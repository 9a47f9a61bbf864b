"""What two ends of a TCP connection have in common.

The pipes between them, and the links that these cross.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from environments.simulation.pipe import Mark, Pipe

if TYPE_CHECKING:
    from environments.simulation.stream import StreamTransport


def reset_error() -> ConnectionResetError:
    """What a read of a reset connection ends in."""
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


class Connection:
    """Two pipes and, at their ends, the sockets.

    The accepting one exists only once the connection was accepted.
    """

    __slots__ = ("backward", "client", "forward", "server")

    def __init__(self, forward: Pipe, backward: Pipe) -> None:
        self.forward = forward
        self.backward = backward
        self.client: StreamTransport | None = None
        self.server: StreamTransport | None = None
        forward.way.connections[self] = None
        backward.way.connections[self] = None

    def reset(self) -> None:
        """Something between the two resets both ends at once; what was on its way is lost."""
        for pipe in (self.forward, self.backward):
            pipe.drop()
        for end in (self.client, self.server):
            if end is not None:
                end.arrive(Mark.RST)
        self.end()

    def end(self) -> None:
        """No longer on its links."""
        self.forward.way.connections.pop(self, None)
        self.backward.way.connections.pop(self, None)
