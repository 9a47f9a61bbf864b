"""A probe of an NFS server: whether it answers from this machine.

It proves whether a fault of a store took effect.

Why the NULL procedure and not a look at the mount: it needs no lease and no lock, so it disturbs
nothing that is tested, and a mount that hangs cannot block the probe. This module imports only the
standard library, because it runs inside containers.
"""

from __future__ import annotations

import asyncio
import os
import struct
from typing import Final

ANSWERS: Final = "answers"
SILENT: Final = "silent"

_PROGRAM: Final = 100003
_VERSION: Final = 4
_LAST_FRAGMENT: Final = 1 << 31


async def ask(host: str, port: int, patience_s: float) -> str:
    """Return ANSWERS, or SILENT if no answer came in ``patience_s`` (RFC 5531; RFC 7530, 14.1)."""
    xid = int.from_bytes(os.urandom(4), "big")
    # The fields are: message type CALL, RPC version 2, program, version, procedure 0, then no
    # credentials and no verifier.
    call = struct.pack(">10I", xid, 0, 2, _PROGRAM, _VERSION, 0, 0, 0, 0, 0)
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(struct.pack(">I", _LAST_FRAGMENT | len(call)) + call)
                await writer.drain()
                _, answered, kind = struct.unpack(">3I", await reader.readexactly(12))
            finally:
                writer.close()
    except (OSError, TimeoutError, EOFError):
        return SILENT
    return ANSWERS if (answered, kind) == (xid, 1) else SILENT
