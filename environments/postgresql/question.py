"""A check whether a PostgreSQL server serves, which begins a session as a client would.

It needs no credentials: the server's answer to the start of a session is enough.

Why not a connection alone: a stopped server still has a kernel, which accepts for it. And a server
that recovers after a crash accepts connections, and refuses every session until it has recovered.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final

PATIENCE_S: Final = 0.8

SERVING: Final = "serving"
STARTING: Final = "starting"
SILENT: Final = "silent"
REFUSED: Final = "refused"

_PROTOCOL: Final = 3 << 16


async def ask(host: str, port: int, patience_s: float = PATIENCE_S) -> str:
    """Return the state of a server, by how it answers.

    The state is `SERVING` (it wants a password), `STARTING` (it refuses sessions yet), `SILENT`, or
    `REFUSED` (nobody listens, or the server hangs up at once).
    """
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_start())
                await writer.drain()
                answer = await reader.read(1)
            finally:
                writer.close()
    except TimeoutError:
        return SILENT
    except OSError:
        return REFUSED
    return {b"R": SERVING, b"": REFUSED}.get(answer, STARTING)


async def serves(host: str, port: int, patience_s: float) -> bool:
    """Ask until the server serves; False if it does not within that time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while await ask(host, port) != SERVING:  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.02)
            return True
    return False


def _start() -> bytes:
    """Return the StartupMessage of a user that need not exist.

    The server asks an unknown user for a password, too (PostgreSQL manual, 55.7).
    """
    body = struct.pack("!i", _PROTOCOL) + b"user\0probe\0database\0postgres\0\0"
    return struct.pack("!i", len(body) + 4) + body
