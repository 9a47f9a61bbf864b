"""The live broker's side of replication: one backup, from its first byte to its end.

    backup                         live
    Ready (old data is aside)  ->
                               <-  SnapshotBegin, Chunk ..., and Entries of what happens meanwhile
                               <-  SnapshotEnd; at most initial-replication-sync-timeout until:
    Synchronized               ->  from here receipts wait for the backup
                               <-  UpToDate(session, sequence)
    Acknowledgement ...        ->

Why two steps at the end: between "the copy is complete" and "receipts wait for it" the live still
answers clients on its own disk alone. A backup that took over then would lose what was answered. So
it may take over only after ``UpToDate``, which travels behind every entry that was answered without
it.

Why a lease: the backup stays passive for its whole patience after it last heard us. Each pong
proves that it heard a ping of ours, so until ``sent(ping) + half the patience`` no other broker is
live. After that nothing may be answered, whatever else seems well: ``on_suspect`` is called
*before* an acknowledgement is believed. This also holds for a process that was stopped and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from broker.cluster import messages as m
from broker.cluster.link import ClusterLink
from broker.policies.replication.blobs import BlobFeed
from broker.storage.errors import JournalError
from broker.storage.journal import Journal

_log = logging.getLogger(__name__)

BATCH_BYTES = 1024 * 1024
BACKLOG_BYTES_MAX = 256 * 1024 * 1024
"""The most bytes of entries that wait for a backup that still synchronises.

A backup that cannot keep up must not fill the live's memory.
"""


class ReplicaFeed:
    """Sends snapshot and entries to one backup.

    ``on_ended(reason, clean)`` is called once, when the connection is lost or must not be trusted;
    ``clean`` says that the backup left on purpose. ``on_acknowledged(sequence)`` is called only
    once up to date. Times are in seconds.
    """

    def __init__(
        self,
        link: ClusterLink,
        journal: Journal,
        session: str,
        *,
        patience_s: float,
        sync_timeout_s: float,
        call_timeout_s: float,
    ) -> None:
        self.link = link
        self.session = session
        assert link.member is not None
        self.backup = link.member.name
        self.up_to_date = False
        self.ended = False
        self.failback = False
        """True if the backup is a master that wants to be live again."""
        self.acknowledged = 0
        self.on_up_to_date: Callable[[int], None] = _ignore
        self.on_acknowledged: Callable[[int], None] = _ignore
        self.on_suspect: Callable[[], None] = _ignore
        self.on_trusted: Callable[[], None] = _ignore
        self.on_ended: Callable[[str, bool], None] = _ignore
        self._journal = journal
        self._blobs = BlobFeed(link, (journal.large, journal.pages), self.end, call_timeout_s)
        self._lease_s = patience_s / 2
        self._sync_timeout_s = sync_timeout_s
        self._call_timeout_s = call_timeout_s
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes] = []
        self._pending_first = 0
        self._pending_bytes = 0
        self._unacknowledged: deque[tuple[int, float]] = deque()
        self._suspect_since: float | None = None
        self._synchronizing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sync_deadline: asyncio.TimerHandle | None = None
        link.set_ttl(patience_s)
        link.on_message = self._take
        link.on_closed = self._closed

    @property
    def trusted(self) -> bool:
        """True if it is certain that the backup has not taken over."""
        return not self.ended and self._loop.time() <= self.link.confirmed + self._lease_s

    def check(self) -> bool:
        """Return whether the backup is trusted now, and suspect it if it is not.

        Call this before anything is answered or claimed.
        """
        if self.trusted:
            return True
        if self.up_to_date and self._suspect_since is None and not self.ended:
            self._suspect_since = self._loop.time()
            self.link.ping()
            self.on_suspect()
        return False

    def end(self, reason: str, *, clean: bool = False) -> None:
        """Stop replicating over this connection."""
        if self.ended:
            return
        self.ended = True
        self._journal.tap = None
        self._blobs.stop()
        for timer in (self._timer, self._sync_deadline):
            if timer is not None:
                timer.cancel()
        if self._synchronizing is not None:
            self._synchronizing.cancel()
        self.on_ended(reason, clean)
        self.link.abort(reason)

    def flush(self) -> None:
        """Send the entries that have been appended, now."""
        if self._pending:
            last = self._pending_first + len(self._pending) - 1
            self.link.send(m.JournalEntries(self._pending_first, b"".join(self._pending)))
            if not self.up_to_date and self.link.buffered > BACKLOG_BYTES_MAX:
                self._loop.call_soon(
                    self.end, "the backup cannot keep up with the load while it synchronises"
                )
            self._unacknowledged.append((last, self._loop.time()))
            self._pending = []
            self._pending_bytes = 0

    # --------------------------------------------------------------------------------------- inside

    def _take(self, message: m.LinkMessage) -> None:
        if isinstance(message, m.Acknowledgement):
            self._acknowledge(message.sequence)
        elif isinstance(message, m.BlobTaken):
            self._blobs.taken(message.count)
        elif isinstance(message, m.Pong):
            if self._suspect_since is not None and self.trusted:
                self._suspect_since = None
                self.on_trusted()
        elif isinstance(message, m.Ready):
            if self._synchronizing is None:
                self._synchronizing = asyncio.create_task(
                    self._synchronize(), name=f"synchronize {self.backup}"
                )
        elif isinstance(message, m.Synchronized):
            self._synchronized(message.sequence)
        elif isinstance(message, m.BackupLeaving):
            self.end("the backup stops", clean=True)

    def _tap(self, sequence: int, entry: bytes) -> None:
        if not self._pending:
            self._pending_first = sequence
            self._loop.call_soon(self.flush)
        self._pending.append(entry)
        self._pending_bytes += len(entry)
        if self._pending_bytes >= BATCH_BYTES:
            self.flush()

    async def _synchronize(self) -> None:
        link = self.link
        try:
            self._blobs.begin()
            snapshot = await self._journal.snapshot(self._tap)
            try:
                last = snapshot.last_sequence
                self.acknowledged = last
                total = sum(size for _, size in snapshot.files)
                _log.info(
                    "replication: sending %d bytes of the journal, up to entry %d, to the backup %s",
                    total,
                    last,
                    self.backup,
                )
                link.send(m.SnapshotBegin(last))
                async for name, offset, data in snapshot.chunks():
                    link.send(m.Chunk(name, offset, data))
                    await link.drain()
                    if self.ended:
                        return
            finally:
                snapshot.release()
            await self._blobs.send_stored()
            link.send(m.SnapshotEnd(last))
        except (JournalError, OSError) as error:
            self.end(f"the snapshot failed: {error}")
            return
        self._sync_deadline = self._loop.call_later(
            self._sync_timeout_s, self.end, "not synchronised within initial-replication-sync-timeout"
        )

    def _synchronized(self, sequence: int) -> None:
        if self.up_to_date or self.ended or self._sync_deadline is None:
            return
        self._sync_deadline.cancel()
        self.up_to_date = True
        self.acknowledged = max(self.acknowledged, sequence)
        self._settle(self.acknowledged)
        # First our own receipts wait, then the backup may take over: never the other way round.
        self.on_up_to_date(self.acknowledged)
        self.flush()
        self.link.send(m.UpToDate(self.session, self._journal.last_sequence))
        self._watch()

    def _acknowledge(self, sequence: int) -> None:
        if sequence <= self.acknowledged:
            return
        self.acknowledged = sequence
        self._settle(sequence)
        if self.up_to_date:
            self.check()
            self.on_acknowledged(sequence)

    def _settle(self, sequence: int) -> None:
        waiting = self._unacknowledged
        while waiting and waiting[0][0] <= sequence:
            waiting.popleft()

    def _watch(self) -> None:
        self._timer = self._loop.call_later(self._lease_s / 4, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if not self.check():
            since = self._suspect_since
            if since is not None and now - since > self._lease_s / 2:
                silence_ms = 1000 * (now - self.link.confirmed)
                self.end(f"the backup has not answered for {silence_ms:.0f} ms (replication-patience)")
                return
        waiting = self._unacknowledged
        if waiting and now - waiting[0][1] > self._call_timeout_s:
            self.end(f"the backup has not acknowledged entry {waiting[0][0]} within call-timeout")
            return
        self._watch()

    def _closed(self, reason: str) -> None:
        self.end(f"replication connection lost: {reason}")


def _ignore(*_: object) -> None:
    pass
