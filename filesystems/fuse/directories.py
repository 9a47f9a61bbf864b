"""The reading of directories.

The entries of a directory are listed when reading begins, and handed out piece by piece.

Why the list is kept meanwhile: the kernel continues at a position. If the list changed, a position
would return names twice or never.
"""

# ruff: noqa: D102 - each method answers the FUSE request of its name
from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from filesystems.fuse import kernel
from filesystems.fuse.connection import Answer, FuseRequest


class Entry(NamedTuple):
    """A name in a directory; only the bits of the type count in ``mode``."""

    file_id: int
    mode: int
    name: bytes


class Directories:
    """The open directories.

    ``listed`` returns the entries of the directory that a request is about, "." and ".." first; it
    raises OSError.
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
        if offset == 0:  # reading begins: list anew
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
