"""Backup files: a whole cluster's rows as of one moment, in a file that is complete or not there.

    magic line, SHA-256 of the rest, then one MessagePack document: see ``Backup``

Why one file that gets its name by a rename: a tool that is killed while it writes leaves no file
that looks like a backup, and never harms an older one. Why a checksum: a backup is read when
everything else is lost, and must not turn out to be half of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from broker.database_tool.store import ClusterStore, ToolRefusedError
from broker.storage.database import Result, Row, Statement
from broker.storage.database import schema as s
from broker.storage.directory import sync_directory

MAGIC: Final = b"brokerd database backup 2\n"
FORMER: Final = b"brokerd database backup 1\n"
"""The magic line of files without ``blobs``, which are read, too."""
_DIGEST_SIZE: Final = 32


class Backup(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The rows of one cluster.

    ``sessions`` is the number that was given out last. Rows have the columns of the tables in their
    order, without the cluster's id.

    ``brokers`` (broker id, address, state, epoch), ``owners`` (session, broker id), ``records`` and
    ``updates`` (session, id, kind, data), ``upgrades`` (journal, session), ``blobs`` (kind,
    session, id, start, data).
    """

    cluster_id: str
    sessions: int
    brokers: list[tuple[str, str, str, int]]
    owners: list[tuple[int, str]]
    records: list[tuple[int, int, int, bytes]]
    updates: list[tuple[int, int, int, bytes]]
    upgrades: list[tuple[str, int]]
    blobs: list[tuple[str, int, int, int, bytes]] = []


async def take(store: ClusterStore) -> Backup:
    """Read all rows as of one moment.

    Raises DatabaseError, ToolRefusedError for an unknown cluster.
    """
    snapshot = [Statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")]
    where = (store.cluster_id,)
    questions = [
        Statement("SELECT sessions FROM store_cluster WHERE cluster_id = ?", where),
        Statement(
            "SELECT broker_id, address, state, epoch FROM store_broker WHERE cluster_id = ? ORDER BY "
            "broker_id",
            where,
        ),
        Statement(
            "SELECT session, broker_id FROM store_session WHERE cluster_id = ? ORDER BY session", where
        ),
        Statement("SELECT session, id, kind, data FROM store_record WHERE cluster_id = ? ORDER BY id", where),
        Statement(
            "SELECT session, id, kind, data FROM store_update WHERE cluster_id = ? ORDER BY id, kind", where
        ),
        Statement("SELECT journal, session FROM store_upgrade WHERE cluster_id = ? ORDER BY journal", where),
        Statement(
            "SELECT kind, session, id, start, data FROM store_blob WHERE cluster_id = ? ORDER BY kind, "
            "id, start",
            where,
        ),
    ]
    # A transaction of SQLite sees one moment anyway; one of PostgreSQL looks anew at each
    # statement unless told otherwise.
    results = await store.transact([*(snapshot if store.kind == "postgresql" else ()), *questions])
    cluster, brokers, owners, records, updates, upgrades, blobs = results[-len(questions) :]
    if not cluster.rows:
        raise ToolRefusedError(
            f"there is no cluster {store.cluster_id!r} in this database: nothing to back up "
            "(ha-policy.ha-database.cluster-id)"
        )
    return msgspec.convert(
        (
            store.cluster_id,
            cluster.rows[0][0],
            brokers.rows,
            owners.rows,
            _with_bytes(records),
            _with_bytes(updates),
            upgrades.rows,
            _with_bytes(blobs),
        ),
        Backup,
    )


async def put_back(store: ClusterStore, backup: Backup) -> None:
    """Replace all rows of the cluster by those of the backup, in one transaction.

    Raises ToolRefusedError while a broker runs, DatabaseError.

    By the store, no broker runs afterwards: each broker's messages wait for its own start. Epochs
    only grow, so a former broker that stood still meanwhile is fenced.
    """
    cluster = (store.cluster_id,)
    lasting = (s.TAKEOVER_COMPLETE,)
    highest = max([backup.sessions, *(epoch for _, _, _, epoch in backup.brokers)])
    statements = [
        Statement(
            "UPDATE store_cluster SET sessions = CASE WHEN sessions > ? THEN sessions ELSE ? END + 1 "
            "WHERE cluster_id = ?",
            (highest, highest, *cluster),
            count=1,
        ),
        *(
            s.add_broker(
                *cluster, broker_id, address, state if state in lasting else s.SHUTDOWN_COMPLETE, count=1
            )
            for broker_id, address, state, _ in backup.brokers
        ),
        _many("store_session (cluster_id, session, broker_id)", backup, backup.owners),
        s.add_records(_rows(backup, backup.records)),
        s.put_updates(_rows(backup, backup.updates)),
        s.put_blob_parts(_rows(backup, backup.blobs)),
        Statement("DELETE FROM store_upgrade WHERE cluster_id = ?", cluster),
        _many("store_upgrade (cluster_id, journal, session)", backup, backup.upgrades),
    ]
    await store.replace(statements)


def write(path: Path, backup: Backup) -> int:
    """Write the file, durable and whole; return its size in bytes. Raises OSError."""
    content = msgspec.msgpack.encode(backup)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        # No other user may read the messages.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(MAGIC)
            file.write(hashlib.sha256(content).digest())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return len(MAGIC) + _DIGEST_SIZE + len(content)


def read(path: Path) -> Backup:
    """Return the content of a backup file. Raises ToolRefusedError, OSError."""
    return msgspec.msgpack.decode(content_of(path), type=Backup)


def content_of(path: Path) -> bytes:
    """Return the document of a backup file, after a check that it is whole.

    Raises ToolRefusedError, OSError.
    """
    data = path.read_bytes()
    if not data.startswith((MAGIC, FORMER)):
        raise ToolRefusedError(f"{path} is no backup of brokerctl database backup")
    digest = data[len(MAGIC) : len(MAGIC) + _DIGEST_SIZE]
    content = data[len(MAGIC) + _DIGEST_SIZE :]
    if hashlib.sha256(content).digest() != digest:
        raise ToolRefusedError(
            f"{path} is damaged: its checksum is wrong; nothing was restored, take another backup"
        )
    return content


def _rows(backup: Backup, rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple((backup.cluster_id, *row) for row in rows)


def _many(table: str, backup: Backup, rows: list[tuple[int, str]] | list[tuple[str, int]]) -> Statement:
    return Statement(
        f"INSERT INTO {table} VALUES (?, ?, ?)", many=tuple((backup.cluster_id, *row) for row in rows)
    )


def _with_bytes(result: Result) -> list[tuple[object, ...]]:
    """Return rows with their data as bytes, since drivers may give a view of them."""
    return [(*row[:-1], bytes(row[-1])) for row in result.rows if isinstance(row[-1], bytes | memoryview)]
