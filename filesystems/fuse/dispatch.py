"""Which part of a file system answers which request.

The one that has a method of the request's name.

A file system is put together of parts, each a noun of its own (names, content, locks), and of those
that are the same for all: ``Session``, ``Directories``.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

from filesystems.fuse.connection import Answer, FuseRequest
from filesystems.fuse.kernel import Opcode


class Dispatch:
    """The answers of all ``parts`` together.

    ``serve`` raises OSError for what the caller is to see: ENOSYS for what no part answers.
    """

    def __init__(self, *parts: object) -> None:
        self._serves: dict[int, Callable[[FuseRequest], Awaitable[Answer]]] = {}
        for opcode in Opcode:
            for part in parts:
                serve = getattr(part, opcode.name.lower(), None)
                if serve is not None:
                    assert opcode not in self._serves, f"two parts answer {opcode.name}"
                    self._serves[opcode] = serve

    async def serve(self, request: FuseRequest) -> Answer:
        """Answer one request."""
        serve = self._serves.get(request.opcode)
        if serve is None:
            raise OSError(errno.ENOSYS, "this file system has no such operation")
        return await serve(request)
