"""The conversation with the process behind a disk: a line of JSON each way, one at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any


class DiskFailedError(Exception):
    """The disk's process could not mount, has gone away, or refused; the text says which."""


class Conversation:
    """The conversation over the standard input and output of a disk's process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    async def mounted(self) -> None:
        """Return once the disk can be used. Raises DiskFailedError."""
        async with self._turn:
            await self._line()

    async def ask(self, do: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Ask the disk, and return its answer. Raises DiskFailedError."""
        question = json.dumps({"do": do, "with": dict(arguments or {})}).encode() + b"\n"
        # The answer is read even if the caller is cancelled: else the next caller would get it.
        return await asyncio.shield(self._asked(question))

    async def _asked(self, question: bytes) -> Any:
        async with self._turn:
            try:
                self._writer.write(question)
                await self._writer.drain()
            except (
                ConnectionError,
                RuntimeError,
            ) as error:  # uvloop: "unable to perform operation on a closed transport"
                raise DiskFailedError("its process has ended") from error
            said = await self._line()
        if "error" in said:
            raise DiskFailedError(str(said["error"]))
        return said["ok"]

    def close(self) -> None:
        """Close the disk's standard input, which ends its process."""
        self._writer.close()

    async def _line(self) -> dict[str, Any]:
        line = await self._reader.readline()
        if not line:
            raise DiskFailedError("its process has ended; see its log")
        said: dict[str, Any] = json.loads(line)
        return said
