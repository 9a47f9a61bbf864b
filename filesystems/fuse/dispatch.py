"""The dispatch of requests to the parts of a file system.

The part that has a method of the request's name answers the request.

A file system consists of parts of its own, each a noun (names, content, locks), and of those that
are the same for all: ``FuseSession``, ``Directories``.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

from filesystems.fuse.connection import Answer, FuseRequest
from filesystems.fuse.kernel import Opcode


class Dispatch:
    """The dispatcher of the requests to ``parts``.

    ``serve`` raises the OSError that the caller is to see: ENOSYS for a request that no part
    answers.
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
        """Answer a request."""
        serve = self._serves.get(request.opcode)
        if serve is None:
            raise OSError(errno.ENOSYS, "this file system has no such operation")
        return await serve(request)
