"""A mount for as long as a program serves it: opened, answered, and given back at the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from filesystems.fuse import device as fuse_device
from filesystems.fuse.connection import Answer, FuseConnection, FuseRequest


def log(program: str, line: str) -> None:
    """One line to the log of a program that mounts, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {program}: {line}", file=sys.stderr, flush=True)


@contextlib.asynccontextmanager
async def mounted(
    source: str,
    directory: Path,
    serve: Callable[[FuseRequest], Awaitable[Answer]],
    tell: Callable[[str], None],
    *,
    kind: str,
    read_only: bool = False,
    interruptible: bool = False,
) -> AsyncIterator[FuseConnection]:
    """Mounts a file system of this ``kind`` ("fuse.NAME"), and answers its requests.

    Until it is unmounted, or SIGTERM or SIGINT comes; then it is unmounted here.

    What the block does comes first; its end waits for the end of the mount. Raises MountError.
    """
    device = await asyncio.to_thread(fuse_device.mount, source, directory, kind=kind, read_only=read_only)
    connection = FuseConnection(device, serve, tell, interruptible=interruptible)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, connection.stop)
    try:
        yield connection
        await connection.ended
    finally:
        if not connection.ended.done():
            connection.stop()
        # In a thread: the kernel may ask this file system something before it lets go of it.
        await asyncio.to_thread(fuse_device.unmount, directory)
        connection.close()
