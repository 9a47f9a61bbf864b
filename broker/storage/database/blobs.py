"""Blobs as rows of a database.

They are in ``store_blob``, at most 64 KiB of a blob in each row (AMQ 17.3.2.2: LARGE_MESSAGES_TABLE
and PAGE_STORE_TABLE).

Why a connection of their own: the transactions of one connection run one after the other. Neither a
batch of the journal, which producers wait for, nor a renewal of the lease may wait behind a slow
megabyte. Why the proof of ownership comes *last* here, where all other transactions begin with it:
from the proof to the commit the owner's row is locked, and batches and renewals need that row, too.
What was written before the proof is protected like what follows it: the proof of a replaced broker
fails, and all of its transaction is undone.

A row belongs to the session in which its id was given out. So a takeover, which moves sessions,
moves blobs without touching them. Each row is named by where it starts, so that a write whose
outcome is unknown is simply repeated.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from broker.storage.database import (
    Database,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Result,
    Statement,
    UnexpectedCountError,
)
from broker.storage.database import schema as s
from broker.storage.database.owner import StoreOwner

RETRY_S: Final = 0.05
"""The pause between a transaction that failed and its next try, as for batches of the journal."""

SIZES_TOGETHER: Final = 500
"""The number of blobs that are measured in one transaction.

It is bounded so that a large store takes no longer than a transaction may.
"""

_log = logging.getLogger(__name__)


class OwnershipLostError(OSError):
    """Another broker owns this store now: nothing is written or removed any more."""


class BlobRows:
    """A medium of rows; see ``blobs.Medium``. Errors of the database are OSErrors here.

    A database that cannot be reached is asked again, as the journal does, until ``end``. A waiting
    caller is cancelled with its connection, and the owner's lease bounds how long that can take.

    Args:
        database: a connection for blobs alone; several kinds may share it.
        owner: who we are; every write and removal proves it.
        kind: of blobs.
        timeout_s: for each transaction.
    """

    def __init__(self, database: Database, owner: StoreOwner, kind: str, timeout_s: float) -> None:
        self.kind = kind
        self._database = database
        self._owner = owner
        self._timeout_s = timeout_s
        self._ended = False

    def path(self, id_: int) -> str:
        """Return kind and id, as a row of the table."""
        return f"{self.kind}/{id_} (store_blob)"

    async def create(self, id_: int) -> BlobRowsWriter:
        """Return a writer; no row exists before its first ``sync``."""
        return BlobRowsWriter(self, id_)

    async def read(self, id_: int, offset: int, size: int) -> bytes:
        """Return the bytes of the row at that offset; a reader in order reads every row once."""
        [found] = await self._transact([s.blob_part(self._owner.cluster_id, self.kind, id_, offset)])
        if not found.rows:
            return b""
        start, data = cast("tuple[int, bytes]", found.rows[0])
        return bytes(data)[offset - start :][:size]

    async def remove(self, id_: int) -> None:
        """Remove all rows of a blob."""
        await self._write(s.delete_blob(self._owner.cluster_id, self.kind, id_))

    async def sizes(self) -> dict[int, int]:
        """Return the sizes of the blobs of our sessions.

        Raises OwnershipLostError: a blob that is not ours is not missing.
        """
        sizes: dict[int, int] = {}
        after = -1
        while True:
            question = s.blob_sizes(
                self._owner.cluster_id, self.kind, self._owner.ours(), after, SIZES_TOGETHER
            )
            found = await self._write(question)
            if not found.rows:
                return sizes
            sizes |= cast("list[tuple[int, int]]", found.rows)
            after = max(sizes)

    async def put(self, id_: int, start: int, data: bytes) -> None:
        """Write bytes of a blob from ``start`` on, durably and in one transaction."""
        parts = range(0, max(1, len(data)), s.BLOB_PART)
        owner = self._owner
        await self._write(
            s.put_blob_parts(
                tuple(
                    s.blob_row(owner.cluster_id, self.kind, id_, start + at, data[at : at + s.BLOB_PART])
                    for at in parts
                )
            )
        )

    def end(self) -> None:
        """Stop trying again what fails, because the journal is closed."""
        self._ended = True

    async def _write(self, statement: Statement) -> Result:
        """Run one statement and the proof."""
        [result, _] = await self._transact([statement, self._owner.prove()])
        return result

    async def _transact(self, statements: list[Statement]) -> list[Result]:
        told = ""
        while True:
            try:
                return await self._database.transact(statements, self._timeout_s)
            except UnexpectedCountError:
                raise OwnershipLostError(
                    f"{self._owner.name} (epoch {self._owner.epoch}) is not the owner of its store any more"
                ) from None
            except (DatabaseUnavailableError, OutcomeUnknownError) as error:
                if self._ended:
                    raise OSError(str(error)) from error
                if str(error) != told:
                    told = str(error)
                    _log.warning("database: %s cannot be read or written: %s; trying again", self.kind, error)
                await asyncio.sleep(RETRY_S)
            except DatabaseError as error:
                raise OSError(str(error)) from error


class BlobRowsWriter:
    """A blob being written, see ``blobs.Open``; bytes wait in memory until the writer syncs."""

    def __init__(self, rows: BlobRows, id_: int) -> None:
        self._rows = rows
        self._id = id_
        self._start = 0
        self._buffer = bytearray()
        self._begun = self._failed = False

    def write(self, data: bytes) -> None:
        """Append bytes, buffered."""
        self._buffer += data

    async def sync(self) -> None:
        """Put the waiting bytes into rows. Raises OSError; the blob can then only be removed."""
        if self._failed:
            raise OSError(f"{self._rows.path(self._id)}: an earlier part of it was not stored")
        if not self._buffer and self._begun:
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        self._failed = True
        await self._rows.put(self._id, self._start, data)
        self._failed = False
        self._begun = True
        self._start += len(data)

    async def close(self) -> None:
        """Drop the bytes that were not synced; see ``blobs.Open``."""
        self._buffer.clear()
