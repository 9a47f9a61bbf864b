"""Whether a PostgreSQL server serves, asked as a client would begin.

Without credentials, by what it answers to the start of a session.

Why not a connection alone: a server that stands still still has a kernel, which accepts for it; and
one that recovers after a crash accepts, and refuses every session until it has recovered.
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
    """The state of a server, by how it answers.

    One of `SERVING` (it wants a password), `STARTING` (it takes in nobody yet), `SILENT`, `REFUSED`
    (nobody listens, or hangs up at once).
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
    """Ask until it serves; False if it does not within that time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while await ask(host, port) != SERVING:  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.02)
            return True
    return False


def _start() -> bytes:
    """StartupMessage of a user that need not exist.

    Who is unknown is asked for a password all the same (PostgreSQL manual, 55.7).
    """
    body = struct.pack("!i", _PROTOCOL) + b"user\0probe\0database\0postgres\0\0"
    return struct.pack("!i", len(body) + 4) + body
