"""Large bodies on one connection, coming and going, in pieces.

Never more than a few hundred kilobytes of one are in memory.

Coming: parts go to a file as fast as the disk takes them, and the connection is not read while it
cannot. When the file is whole and durable the SEND is an ordinary one, with a body that is a file.
Frames behind it wait meanwhile, so that they keep their order. A body that is in memory goes the
same way where many subscriptions shall share it. Going: ``StompConnection`` writes a
``Streamed`` in its place between other frames, as fast as the network takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.core.memory import Memory
from broker.storage.blobs import Blob, Blobs, BlobWriter
from broker.storage.errors import JournalError
from stomp_protocol.frames import Frame, LargeHead, LargePart

HELD_BYTES: Final = 256 * 1024
"""Bytes of a body that wait for the disk before the connection is not read any more."""

_log = logging.getLogger(__name__)


class Streamed(NamedTuple):
    """A MESSAGE frame on its way out whose body is in a file; ``head`` ends with the blank line."""

    head: bytes
    body: Blob


class LargeSend(Frame):
    """A SEND whose body has gone to a file, all of it; ``body`` is its beginning."""

    large: Blob | None = None
    kept_body: bytes = b""
    """All of the body, if it was in memory."""


class Uploads:
    """The large SENDs of a connection, one at a time; each body is its own until ``taken``."""

    def __init__(
        self,
        store: Blobs | None,
        memory: Memory,
        *,
        go_on: Callable[[list[Frame]], None],
        refuse: Callable[[str, str | None], None],
        block_reading: Callable[[bool], None],
    ) -> None:
        self._store = store
        self._memory = memory
        self._go_on = go_on
        self._refuse = refuse
        self._block_reading = block_reading
        self._task: asyncio.Task[None] | None = None
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._complete = False
        self._wake = asyncio.Event()
        self._later: list[Frame] = []
        self._untaken: dict[Blob, None] = {}
        self._kept_body = b""

    @property
    def busy(self) -> bool:
        """Is one under way?"""
        return self._task is not None

    @property
    def is_whole(self) -> bool:
        """Return whether one is under way of which nothing more has to come."""
        return self.busy and self._complete

    def begin(self, head: LargeHead) -> None:
        """The parts that come now are the body of this frame."""
        self._complete = False
        self._begin(head)

    def share(self, frame: Frame) -> None:
        """Bring the body of this frame, all of which is here, to a file."""
        self._parts.append(frame.body)
        self._waiting_bytes += len(frame.body)
        self._complete = True
        self._kept_body = frame.body
        self._begin(frame)

    def _begin(self, head: Frame) -> None:
        assert self._store is not None, "a large body where none can be kept"
        assert self._task is None, "two large bodies at once"
        self._task = asyncio.get_running_loop().create_task(
            self._receive(self._store, head), name="receive a large message"
        )

    def take(self, frames: list[Frame]) -> None:
        """Take in parts of the body; frames behind it go on once it is stored, by ``go_on``."""
        for place, frame in enumerate(frames):
            if self._complete or not isinstance(frame, LargePart):
                self._later += frames[place:]
                break
            self._parts.append(frame.body)
            self._waiting_bytes += len(frame.body)
            self._complete = frame.last
        self._wake.set()
        if self._complete or self._waiting_bytes > HELD_BYTES:
            self._block_reading(True)

    def taken(self, body: Blob) -> None:
        """A message or a transaction owns it now."""
        del self._untaken[body]

    def end(self) -> None:
        """The connection is gone: what is not whole, or was never taken, is nobody's."""
        if self._task is not None:
            self._task.cancel()
        self._later.clear()
        untaken, self._untaken = self._untaken, {}
        for body in untaken:
            assert self._store is not None
            self._store.release(body)

    async def _receive(self, store: Blobs, head: Frame) -> None:
        writer: BlobWriter | None = None
        try:
            await self._memory.disk_room()
            writer = await store.begin()
            while self._parts or not self._complete:
                await self._write(writer)
                if not self._complete:
                    self._wake.clear()
                    await self._wake.wait()
            body = await writer.finish()
        except (OSError, JournalError) as error:
            _log.error("a large message could not be stored: %s", error)
            self._discarded(writer)
            self._refuse(f"the message could not be stored: {error}", head.headers.get("receipt"))
        except BaseException:
            self._discarded(writer)
            raise
        else:
            self._untaken[body] = None
            later, self._later = self._later, []
            kept_body, self._kept_body = self._kept_body, b""
            self._task = None
            self._block_reading(False)
            self._go_on([LargeSend(head.command, head.headers, writer.start, body, kept_body), *later])

    async def _write(self, writer: BlobWriter) -> None:
        """Hand over what waits, and let the connection be read again."""
        while self._parts:
            part = self._parts.popleft()
            writer.write(part)
            self._waiting_bytes -= len(part)
            if writer.due:
                await writer.flush()
        if not self._complete:
            self._block_reading(False)

    def _discarded(self, writer: BlobWriter | None) -> None:
        self._task = None
        self._parts.clear()
        if writer is not None:
            writer.discard()
