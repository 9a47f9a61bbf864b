"""Blobs over a link: large bodies and pages, in chunks, a window at a time.

    sender                                          receiver
    BlobChunk ... the last one                  ->  written
                                                <-  BlobTaken: so many bytes were written,
                                                    as many more may come

Why a window of its own, though TCP has one: a receiver whose disk is slow must not keep megabytes
in memory, and nothing else on the link may wait behind them. Neither side ever has more than a
window of a blob in memory, and a heartbeat waits for a window at the most.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.storage.blobs import Blob, Blobs

WINDOW_BYTES: Final = 1024 * 1024
"""The most bytes of blobs that may be on their way to the receiver's disk."""


class BlobSender:
    """Sends blobs over one link; all that are under way at one time share the window.

    ``patience_s`` is how long the receiver may write nothing.
    """

    def __init__(self, link: ClusterLink, patience_s: float) -> None:
        self._link = link
        self._patience_s = patience_s
        self._stopped = False
        self._under_way = 0
        self._room = asyncio.Event()
        self._room.set()
        self._limits: dict[asyncio.Timeout, None] = {}
        """The end of the patience of each blob that is under way."""

    def taken(self, count: int) -> None:
        """Note that the receiver has written so many bytes."""
        self._under_way -= count
        for limit in self._limits:
            self._renew(limit)
        if self._under_way < WINDOW_BYTES:
            self._room.set()

    def stop(self) -> None:
        """Send nothing more; a caller that waits for the receiver need not any more."""
        self._stopped = True
        self._room.set()

    async def send(self, blobs: Blobs, blob: Blob) -> None:
        """Return when all of the blob is on its way, or ``stop`` was called.

        Raises TimeoutError if the receiver writes nothing for ``patience_s``, and OSError or
        JournalDamagedError if the blob cannot be read.
        """
        offset = 0
        async with asyncio.timeout(None) as limit:
            self._limits[limit] = None
            try:
                async for chunk in blobs.chunks(blob):
                    self._renew(limit)
                    await self._room.wait()
                    await self._link.drain()
                    if self._stopped:
                        return
                    last = offset + len(chunk) == blob.size
                    self._link.send(m.BlobChunk(blobs.kind, blob.id, offset, chunk, last))
                    offset += len(chunk)
                    self._under_way += len(chunk)
                    if self._under_way >= WINDOW_BYTES:
                        self._room.clear()
            finally:
                del self._limits[limit]

    def _renew(self, limit: asyncio.Timeout) -> None:
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time() + self._patience_s)
