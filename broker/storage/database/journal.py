"""The journal on database rows: what the engine appends, written in batches.

Why batches: a transaction costs a round trip and a sync, however much is in it. So everything
appended within ``journal-sync-period`` and while the last batch is under way goes into one batch.
What was added and deleted within a batch is never written at all.

Each batch begins with the proof that this broker still owns its store, and with the number of the
last entry before it. A batch whose outcome is unknown is tried again with the same numbers: it then
either happens now, or the row shows that it has happened. A broker that was replaced finds no row,
and its journal fails for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.storage.blobs import LARGE_MESSAGES, PAGING, Blobs
from broker.storage.database import (
    Database,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Row,
    Statement,
    UnexpectedCountError,
)
from broker.storage.database import schema as s
from broker.storage.database.blobs import BlobRows, OwnershipLostError
from broker.storage.database.owner import StoreOwner
from broker.storage.entry import ADD, DELETE, UPDATE, Operation
from broker.storage.errors import JournalError, JournalFailedError
from broker.storage.liveness import check
from broker.storage.records import Record
from broker.storage.volume import Space

RETRY_S: Final = 0.05
"""The pause before a failed batch is tried again: long enough for a server that is starting."""

_log = logging.getLogger(__name__)


class JournalReplacedError(JournalFailedError):
    """Another broker owns this store now.

    This broker may answer nothing that it has not answered yet; it must stop serving.
    """


@dataclass(slots=True)
class _RowBatch:
    """The net effect of entries ``before`` < n <= ``after``."""

    before: int
    after: int
    added: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    updated: dict[int, dict[int, bytes]] = field(default_factory=dict)
    deleted: dict[int, None] = field(default_factory=dict)

    def take(self, operation: Operation) -> None:
        """Add one operation."""
        id_ = operation.id
        if operation.action == ADD:
            self.added[id_] = (operation.kind, operation.data)
        elif operation.action == UPDATE:
            self.updated.setdefault(id_, {})[operation.kind] = operation.data
        else:
            self.updated.pop(id_, None)
            if self.added.pop(id_, None) is None:
                self.deleted[id_] = None


class DatabaseJournal:
    """An open journal of one broker in one epoch.

    The engine uses it as it uses ``storage.journal.Journal``.

    ``on_synced`` gets the highest durable entry after each batch. ``on_renewed`` gets the loop time
    at which a batch that was then confirmed was *sent*: the lease counts from there. ``on_failed``
    is called once, when nothing is accepted any more.

    Args:
        database: where the rows are.
        blobs: the same over a connection of its own, for what lies outside the records.
        owner: who we are; every batch proves it.
        records: the live records of the store that is ours.
        sync_period_s: the shortest time from one batch to the next.
        timeout_s: for each batch.
    """

    def __init__(
        self,
        database: Database,
        blobs: Database,
        owner: StoreOwner,
        records: Sequence[Record],
        *,
        sync_period_s: float,
        timeout_s: float,
    ) -> None:
        self.synced = 0
        self.last_sequence = 0
        self.failure: JournalFailedError | None = None
        self.on_synced: Callable[[int], None] | None = None
        self.on_failed: Callable[[JournalFailedError], None] | None = None
        self.on_renewed: Callable[[float], None] | None = None
        self._database = database
        self._owner = owner
        self._sync_period_s = sync_period_s
        self._timeout_s = timeout_s
        self._last_id = owner.session << s.SESSION_SHIFT
        rows = [BlobRows(blobs, owner, kind, timeout_s) for kind in (LARGE_MESSAGES, PAGING)]
        self.large = Blobs(rows[0], self.next_id)
        self.pages = Blobs(rows[1], self.next_id)
        self._rows = rows
        self._live: dict[int, None] = {record.id: None for record in records}
        self._batch = _RowBatch(0, 0)
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._writer = asyncio.get_running_loop().create_task(self._write(), name="database journal")

    @property
    def live(self) -> int:
        """The number of live records."""
        return len(self._live)

    def append(self, operations: Sequence[Operation]) -> int:
        """Append one entry, all or nothing, and return its sequence. See ``Journal.append``."""
        if self.failure is not None:
            raise self.failure.again()
        if self._closed:
            raise JournalError("the journal is closed")
        check(self._live, operations)
        batch = self._batch
        for operation in operations:
            batch.take(operation)
            if operation.action == ADD:
                self._live[operation.id] = None
            elif operation.action == DELETE:
                del self._live[operation.id]
        self.last_sequence += 1
        batch.after = self.last_sequence
        self._idle.clear()
        self._wanted.set()
        return self.last_sequence

    def next_id(self) -> int:
        """Return an id that was never given out before, by any broker."""
        self._last_id += 1
        return self._last_id

    def adopt(self, session: int, records: Sequence[Record]) -> None:
        """Take in records of a broker that was taken over: they live here, too, from now on.

        They keep the ids that they have in the store, because pages name their messages by them.

        ``session`` is our new one: what is added from now on is younger than all of these.
        """
        assert session << s.SESSION_SHIFT > self._last_id, "a session older than the present one"
        self._last_id = session << s.SESSION_SHIFT
        self._live |= {record.id: None for record in records}

    async def sweep(self) -> None:
        """Remove blobs that no record names, in all our sessions; see ``EntryStore.sweep``.

        Raises JournalDamagedError, JournalReplacedError, OSError.
        """
        first = self._owner.session << s.SESSION_SHIFT
        await self._sweep(lambda id_: id_ < first)

    async def sweep_adopted(self, sessions: Collection[int]) -> None:
        """Remove blobs that no record names, in sessions that were taken over."""
        await self._sweep(lambda id_: id_ >> s.SESSION_SHIFT in sessions)

    async def space(self) -> Space | None:
        """Return None: the administrator of the database watches its disk."""
        return None

    async def flush(self) -> None:
        """Return when all entries appended before are durable. Raises JournalFailedError."""
        wanted = self.last_sequence
        while self.synced < wanted:
            if self.failure is not None:
                raise self.failure.again()
            await self._idle.wait()

    async def close(self) -> None:
        """Close the journal.

        Entries that were appended and not yet written may be lost; none of them was acknowledged.
        To keep them, ``flush`` first.
        """
        self._closed = True
        self._writer.cancel()
        for rows in self._rows:
            rows.end()
        await asyncio.gather(self._writer, return_exceptions=True)
        for blobs in (self.large, self.pages):
            await blobs.close()

    # ---- inside

    async def _sweep(self, concerned: Callable[[int], bool]) -> None:
        try:
            for blobs in (self.large, self.pages):
                await blobs.sweep(concerned)
        except OwnershipLostError as error:
            raise JournalReplacedError(str(error)) from error

    async def _write(self) -> None:
        """Write batch after batch, until cancelled or failed."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            batch, self._batch = self._batch, _RowBatch(self.last_sequence, self.last_sequence)
            begun = loop.time()
            try:
                await self._write_batch(batch)
            except DatabaseError as error:
                self._fail(JournalFailedError(f"the database took no batch: {error}"))
                return
            except JournalFailedError as error:
                self._fail(error)
                return
            self.synced = batch.after
            if not self._wanted.is_set():
                self._idle.set()
            if self.on_synced is not None:
                self.on_synced(batch.after)
            await asyncio.sleep(max(0.0, begun + self._sync_period_s - loop.time()))

    async def _write_batch(self, batch: _RowBatch) -> None:
        """Write a batch until it has certainly happened.

        Raises JournalReplacedError, other DatabaseErrors.
        """
        loop = asyncio.get_running_loop()
        statements = self._statements(batch)
        in_doubt = told = False
        while True:
            sent = loop.time()
            try:
                await self._database.transact(statements, self._timeout_s)
            except UnexpectedCountError as error:
                if error.index != 0:
                    raise
                await self._settle(batch, in_doubt=in_doubt)
                return
            except (DatabaseUnavailableError, OutcomeUnknownError) as error:
                in_doubt = in_doubt or isinstance(error, OutcomeUnknownError)
                if not told:
                    told = True
                    _log.warning(
                        "database: entries %d to %d are not confirmed: %s; trying again",
                        batch.before + 1,
                        batch.after,
                        error,
                    )
                await asyncio.sleep(RETRY_S)
                continue
            if self.on_renewed is not None:
                self.on_renewed(sent)
            return

    async def _settle(self, batch: _RowBatch, *, in_doubt: bool) -> None:
        """Find out why no row was found: this very batch has happened, unheard, or we are replaced.

        Raises JournalReplacedError if we are replaced.
        """
        owner = self._owner
        while True:
            try:
                [result] = await self._database.transact([owner.position()], self._timeout_s)
                break
            except (DatabaseUnavailableError, OutcomeUnknownError) as error:
                _log.warning(
                    "database: cannot find out whether entry %d is committed: %s; trying again",
                    batch.after,
                    error,
                )
                await asyncio.sleep(RETRY_S)
        if result.rows != [(owner.epoch, batch.after)] or not in_doubt:
            raise JournalReplacedError(
                f"{owner.name} (epoch {owner.epoch}) is not the owner of its store any more"
            )

    def _statements(self, batch: _RowBatch) -> list[Statement]:
        cluster = self._owner.cluster_id

        def key(id_: int) -> tuple[str, int, int]:
            return cluster, id_ >> s.SESSION_SHIFT, id_

        statements = [self._owner.prove_batch(batch.before, batch.after)]
        added: tuple[Row, ...] = tuple((*key(id_), kind, data) for id_, (kind, data) in batch.added.items())
        updated: tuple[Row, ...] = tuple(
            (*key(id_), kind, data) for id_, kinds in batch.updated.items() for kind, data in kinds.items()
        )
        deleted: tuple[Row, ...] = tuple(key(id_) for id_ in batch.deleted)
        if added:
            statements.append(s.add_records(added))
        if updated:
            statements.append(s.put_updates(updated))
        if deleted:
            statements += s.delete_records(deleted)
        return statements

    def _fail(self, failure: JournalFailedError) -> None:
        self.failure = failure
        self._idle.set()
        if self.on_failed is not None:
            self.on_failed(failure)
