"""A mount that lasts as long as a program serves it, and is unmounted at the end."""

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
    """Write a line to the log of a program that mounts, with the time of day."""
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
    """Mount a file system of a ``kind`` ("fuse.NAME"), and answer its requests.

    That lasts until the file system is unmounted, or SIGTERM or SIGINT comes; then it is unmounted
    here.

    The `async with` body runs first; its end waits for the end of the mount. Raises MountError.
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
        # In a thread: the kernel may send a request to this file system before it unmounts it.
        await asyncio.to_thread(fuse_device.unmount, directory)
        connection.close()
