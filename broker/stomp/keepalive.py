"""TCP keepalive: how a connection ends whose client is gone without a word.

Where no heart-beats were agreed.

Why not a time to live for such clients, as Artemis has it (a minute of silence): a consumer that
waits for its next message has nothing to say, and would be cut once a minute. The kernel asks the
other kernel instead, which answers for a client that is there and silent.
``acceptor.connection-ttl`` is for who wants the other.
"""

from __future__ import annotations

import socket
from typing import Final

PROBES: Final = 5


def keep_alive(connection: socket.socket, silence_ms: int) -> None:
    """Let the system end a connection whose other side has not answered for about ``silence_ms``.

    0: as the system is set (Linux: two hours).
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not silence_ms or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    half_s = silence_ms / 2000
    for name, value in (
        ("TCP_KEEPIDLE", max(1, round(half_s))),
        ("TCP_KEEPINTVL", max(1, round(half_s / PROBES))),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", silence_ms),  # for bytes that nobody confirms, while no probes are sent
    ):
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
