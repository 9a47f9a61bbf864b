"""The session between kernel and file system: its begin, forgotten lookups, and its end."""

# ruff: noqa: D102 - each method answers the FUSE request of its name
from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from filesystems.fuse import kernel
from filesystems.fuse.connection import Answer, FuseRequest

_BACKGROUND: Final = 64
"""The number of background requests, for which no process waits, under way at once."""


class FuseSession:
    """The session of a mount.

    ``forget(number, lookups)`` is called when the kernel forgets lookups. ``wanted`` are the
    features that are asked for, ``write_bytes`` is the size of the largest write.
    """

    def __init__(
        self,
        forget: Callable[[int, int], None],
        *,
        wanted: int,
        write_bytes: int = kernel.WRITE_BYTES_MAX,
    ) -> None:
        self._forget = forget
        self._wanted = wanted
        self._write_bytes = min(write_bytes, kernel.WRITE_BYTES_MAX)

    async def init(self, request: FuseRequest) -> Answer:
        major, minor, read_ahead, offered = kernel.INIT_IN.unpack_from(request.body)
        if major != kernel.MAJOR or minor < kernel.MINOR:
            raise OSError(errno.EPROTO, f"the kernel speaks FUSE {major}.{minor}, needed is 7.{kernel.MINOR}")
        return kernel.INIT_OUT.pack(
            kernel.MAJOR, kernel.MINOR, read_ahead, self._wanted & offered, _BACKGROUND, _BACKGROUND * 3 // 4,
            self._write_bytes, 1, kernel.WRITE_BYTES_MAX // kernel.BLOCK_BYTES, 0, 0,
        )  # fmt: skip

    async def destroy(self, request: FuseRequest) -> Answer:  # noqa: ARG002 - one signature for all
        return b""

    async def forget(self, request: FuseRequest) -> Answer:
        self._forget(request.node, kernel.FORGET_IN.unpack_from(request.body)[0])
        return None

    async def batch_forget(self, request: FuseRequest) -> Answer:
        count, _ = kernel.BATCH_FORGET_IN.unpack_from(request.body)
        for at in range(count):
            offset = kernel.BATCH_FORGET_IN.size + at * kernel.FORGET_ONE.size
            self._forget(*kernel.FORGET_ONE.unpack_from(request.body, offset))
        return None
