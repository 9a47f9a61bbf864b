"""Reading directories.

What is in one is looked up when reading begins, and handed out piece by piece.

Why kept in between: the kernel goes on by a position, and a position in what changes meanwhile
would give names twice or never.
"""

# ruff: noqa: D102 - each method answers the FUSE request of its name
from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from filesystems.fuse import kernel
from filesystems.fuse.connection import Answer, FuseRequest


class Entry(NamedTuple):
    """A name in a directory; of ``mode`` only the bits of its type count."""

    file_id: int
    mode: int
    name: bytes


class Directories:
    """Those that are open.

    ``listed`` says what is in the one that a request is about, "." and ".." first; it raises
    OSError.
    """

    def __init__(self, listed: Callable[[FuseRequest], Awaitable[list[Entry]]]) -> None:
        self._listed = listed
        self._listings: dict[int, list[bytes]] = {}
        self._numbers = itertools.count(1)

    async def opendir(self, request: FuseRequest) -> Answer:  # noqa: ARG002 - one signature for all
        number = next(self._numbers)
        self._listings[number] = []
        return kernel.OPEN_OUT.pack(number, 0, 0)

    async def readdir(self, request: FuseRequest) -> Answer:
        handle, offset, size, _, _, _, _ = kernel.READ_IN.unpack_from(request.body)
        listing = self._listings[handle]
        if offset == 0:  # from the beginning: look again
            found = await self._listed(request)
            listing[:] = [
                kernel.dirent(entry.file_id, at, entry.mode, entry.name) for at, entry in enumerate(found, 1)
            ]
        answer: list[bytes] = []
        for entry in listing[offset:]:
            if len(entry) > size:
                break
            size -= len(entry)
            answer.append(entry)
        return answer or b""

    async def releasedir(self, request: FuseRequest) -> Answer:
        self._listings.pop(kernel.RELEASE_IN.unpack_from(request.body)[0], None)
        return b""
