"""The backup's side of replication: one connection to a live broker, and the copy of its journal.

Why the outcome is a value: what a backup does next depends only on how the connection ended. It
depends on whether the copy was up to date, whether the live said goodbye, and whether it handed
over.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Literal

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.core.contents import Contents, stored
from broker.policies.replication.blobs import BlobCopies
from broker.storage.copy import JournalCopy
from broker.storage.entry import BadFrameError
from broker.storage.errors import JournalError, JournalFailedError
from broker.storage.volume import Volume

_log = logging.getLogger(__name__)

_LENGTH = struct.Struct("<I")
_FRAME_SIZE = 8


@dataclass(frozen=True, slots=True)
class Ending:
    """The reason why following ended.

    "lost": the connection broke; "failover": the live stopped and wants us to take over; "passive":
    it stopped and does not; "handed-over": we are the live now; "leaving": we were told to stop;
    "disk": our own disk failed.
    """

    kind: Literal["lost", "failover", "passive", "handed-over", "leaving", "disk"]
    reason: str
    up_to_date: bool
    session: str
    activation: int = 0


class Follower:
    """Follows one live over one open link into one copy, until ``ended`` has a result."""

    def __init__(self, link: ClusterLink, copy: JournalCopy, volume: Volume) -> None:
        self.link = link
        self.copy = copy
        self._volume = volume
        self.blobs = BlobCopies(volume, link, lambda: self._synced(copy.synced), self._not_written)
        self.session = ""
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._through: int | None = None
        self._reported = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stopping: m.LiveStopping | None = None
        self._announced = False
        self.on_up_to_date: Callable[[], None] = lambda: None
        copy.on_synced = self._synced
        copy.on_failed = self._failed
        link.on_message = self._take
        link.on_closed = self._closed
        link.send(m.Ready())

    @property
    def up_to_date(self) -> bool:
        """True if this copy may be served.

        Then everything that was answered without us is on our disk, and all later answers wait for
        us.
        """
        return self._through is not None and self.copy.up_to_date and self.synced >= self._through

    @property
    def synced(self) -> int:
        """The sequence up to which everything is on our disk, with the blobs that entries name."""
        return self.blobs.limit(self.copy.synced)

    async def contents(self) -> tuple[int, Contents]:
        """Return the last entry that came, and what the copy holds with it.

        Raises JournalError or OSError if the copy is not up to date, cannot be read or changed
        meanwhile.
        """
        if not self.up_to_date:
            raise JournalError("the copy is not up to date")
        await self.blobs.drained()
        last = self.copy.last_sequence
        held = await stored(await self.copy.records(), self._volume)
        if self.copy.last_sequence != last:
            raise JournalError("the copy changed while it was read")
        return last, held

    def leave(self) -> None:
        """Stop following, on purpose."""
        self.link.send(m.BackupLeaving())
        self._end("leaving", "stopping")
        self.link.close("stopping")

    async def close(self) -> None:
        """Close the link and the copy."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.link.close("closed")
        await self.blobs.close()
        await self.copy.close()

    # --------------------------------------------------------------------------------------- inside

    def _take(self, message: m.LinkMessage) -> None:
        try:
            if isinstance(message, m.JournalEntries):
                self._append(message.first, message.data)
            elif isinstance(message, m.Chunk):
                self.copy.write_chunk(message.name, message.offset, message.data)
            elif isinstance(message, m.BlobChunk | m.BlobRemoved):
                self.blobs.take(message, self.copy.last_sequence)
            elif isinstance(message, m.SnapshotEnd):
                self._spawn(self._complete(message.last_sequence))
            elif isinstance(message, m.UpToDate):
                self.session = message.session
                self._through = message.sequence
                self._announce()
            elif isinstance(message, m.LiveStopping):
                self._stopping = message
                self._maybe_stopped()
            elif isinstance(message, m.HandOver):
                self._end("handed-over", "the live handed over", message.activation)
        except (ValueError, BadFrameError, JournalError) as error:
            _log.error(
                "replication: data from the live broker %s cannot be stored: %s", self.link.peer, error
            )
            self._end("disk" if isinstance(error, JournalFailedError) else "lost", str(error))
            self.link.abort(str(error))

    def _append(self, first: int, data: bytes) -> None:
        position, end, sequence = 0, len(data), first
        append = self.copy.append_encoded
        while position < end:
            if end - position < _FRAME_SIZE:
                raise ValueError(f"entry {sequence} is cut")
            size = _FRAME_SIZE + int(_LENGTH.unpack_from(data, position)[0])
            append(sequence, data[position : position + size])
            position += size
            sequence += 1

    async def _complete(self, last_sequence: int) -> None:
        try:
            await self.copy.complete(last_sequence)
            await self.blobs.drained()
        except (JournalError, OSError) as error:
            _log.error("replication: the copy of the live broker's journal could not be completed: %s", error)
            self._end("lost", str(error))
            self.link.abort(str(error))
            return
        self._reported = True
        self.link.send(m.Synchronized(self.synced))
        self._announce()

    def _synced(self, sequence: int) -> None:
        if self._reported:
            self.link.send(m.Acknowledgement(self.blobs.limit(sequence)))
            if not self._announced:
                self._announce()
            if self._stopping is not None:
                self._maybe_stopped()

    def _announce(self) -> None:
        if self.up_to_date and not self._announced:
            self._announced = True
            self.on_up_to_date()
            _log.info(
                "replication: this broker is up to date with the live broker %s (session %s)",
                self.link.peer,
                self.session,
            )

    def _maybe_stopped(self) -> None:
        """Answer a live that stops, once everything that it sent is on our disk."""
        stopping = self._stopping
        if stopping is not None and (not self.copy.up_to_date or self.synced >= self.copy.last_sequence):
            self._stopping = None
            self.link.send(m.LiveStopped(stopping.number))
            kind: Literal["failover", "passive"] = "failover" if stopping.failover else "passive"
            self._end(kind, "the live stopped")

    def _failed(self, error: JournalFailedError) -> None:
        self._end("disk", str(error))
        self.link.abort(str(error))

    def _not_written(self, reason: str) -> None:
        self._end("disk", reason)
        self.link.abort(reason)

    def _closed(self, reason: str) -> None:
        self._end("lost", reason)

    def _end(
        self,
        kind: Literal["lost", "failover", "passive", "handed-over", "leaving", "disk"],
        reason: str,
        activation: int = 0,
    ) -> None:
        if not self.ended.done():
            self.ended.set_result(Ending(kind, reason, self.up_to_date, self.session, activation))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="complete the copy")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
