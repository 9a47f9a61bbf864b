"""The tables of a shared store, and the statements about more than one broker's own row.

Every broker of a cluster has one row. Its ``epoch`` grows whenever somebody begins to own it: the
broker itself at each start, a taker when it takes over. Whatever a broker writes begins with an
UPDATE of its own row that names its epoch; the row stays locked until the commit, so nobody can
replace the broker between that proof and what it protects, and of one that has been replaced no row
is concerned and nothing happens.

    store_cluster  one row a cluster: the last store session that was given out, or the highest
                   epoch of brokers that were removed, if that is more
    store_broker   broker id, address, state, epoch, last journal entry, heartbeat by the database's
                   clock, taker with its epoch
    store_session  which broker owns what was stored in which *store session*; a takeover moves
                   these rows and no message
    store_record   the journal's records, by session and id; the high bits of an id are its session
    store_update   the latest update of each kind of a record
    store_blob     bodies and pages beside the records, by kind, id and the offset at which each
                   part starts; an id's high bits are its session here, too
    store_upgrade  which journal of a standalone broker was imported into which session
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.storage.database import Row, Statement

SESSION_SHIFT: Final = 40
"""A record's id is its session's number << 40, plus a number within the session."""

SESSION_MAX: Final = 2**22

BLOB_PART: Final = 64 * 1024
"""Bytes of a blob in one row at most."""

OPERATING: Final = "OPERATING"
QUIESCING: Final = "QUIESCING"
QUIESCE_COMPLETE: Final = "QUIESCE_COMPLETE"
SHUTDOWN_STARTED: Final = "SHUTDOWN_STARTED"
SHUTDOWN_FAILOVER: Final = "SHUTDOWN_FAILOVER"
SHUTDOWN_COMPLETE: Final = "SHUTDOWN_COMPLETE"
TAKEOVER_STARTED: Final = "TAKEOVER_STARTED"
TAKEOVER_COMPLETE: Final = "TAKEOVER_COMPLETE"

STATES: Final = (
    OPERATING,
    QUIESCING,
    QUIESCE_COMPLETE,
    SHUTDOWN_STARTED,
    SHUTDOWN_FAILOVER,
    SHUTDOWN_COMPLETE,
    TAKEOVER_STARTED,
    TAKEOVER_COMPLETE,
)
"""As ``list brokers`` shows them (Sun 4.1, example 8-2)."""

RUNNING: Final = (OPERATING, QUIESCING, QUIESCE_COMPLETE, SHUTDOWN_STARTED)
"""States in which the broker itself renews its heartbeat, and in which silence means that it has
failed.
"""

YIELDED: Final = -1
"""The last entry of a broker that is being taken over and serves nobody any more.

It has said so itself, or had been shut down.
"""

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS store_cluster (
        cluster_id TEXT NOT NULL, sessions BIGINT NOT NULL, PRIMARY KEY (cluster_id))""",
    """CREATE TABLE IF NOT EXISTS store_broker (
        cluster_id TEXT NOT NULL, broker_id TEXT NOT NULL, address TEXT NOT NULL, state TEXT NOT NULL,
        epoch BIGINT NOT NULL, entry BIGINT NOT NULL, heartbeat BIGINT NOT NULL,
        taker TEXT NOT NULL, taker_epoch BIGINT NOT NULL, PRIMARY KEY (cluster_id, broker_id))""",
    """CREATE TABLE IF NOT EXISTS store_session (
        cluster_id TEXT NOT NULL, session BIGINT NOT NULL, broker_id TEXT NOT NULL,
        PRIMARY KEY (cluster_id, session))""",
    """CREATE TABLE IF NOT EXISTS store_record (
        cluster_id TEXT NOT NULL, session BIGINT NOT NULL, id BIGINT NOT NULL, kind BIGINT NOT NULL,
        data BYTEA NOT NULL, PRIMARY KEY (cluster_id, session, id))""",
    """CREATE TABLE IF NOT EXISTS store_update (
        cluster_id TEXT NOT NULL, session BIGINT NOT NULL, id BIGINT NOT NULL, kind BIGINT NOT NULL,
        data BYTEA NOT NULL, PRIMARY KEY (cluster_id, session, id, kind))""",
    """CREATE TABLE IF NOT EXISTS store_blob (
        cluster_id TEXT NOT NULL, kind TEXT NOT NULL, session BIGINT NOT NULL, id BIGINT NOT NULL,
        start BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (cluster_id, kind, id, start))""",
    """CREATE TABLE IF NOT EXISTS store_upgrade (
        cluster_id TEXT NOT NULL, journal TEXT NOT NULL, session BIGINT NOT NULL,
        PRIMARY KEY (cluster_id, journal))""",
)

OWNED: Final = "session IN (SELECT session FROM store_session WHERE cluster_id = ? AND broker_id = ?)"
"""Rows of the sessions that belong to a broker; takeovers add sessions."""


def create(cluster_id: str) -> list[Statement]:
    """Tables where there are none yet, and the cluster's row."""
    return [
        *(Statement(table) for table in TABLES),
        Statement(
            "INSERT INTO store_cluster (cluster_id, sessions) VALUES (?, 0) ON CONFLICT DO NOTHING",
            (cluster_id,),
        ),
    ]


def retire_epochs(cluster_id: str) -> Statement:
    """Lock the cluster's row, and let it remember the highest epoch of all brokers.

    One that is removed and comes again begins above it (``Registry.register``).

    Without this a process of the removed broker that stood still all the while could find its own
    epoch there again, and write.
    """
    return Statement(
        "UPDATE store_cluster SET sessions = (SELECT MAX(v) FROM (SELECT COALESCE(MAX(epoch), 0) AS v "
        "FROM store_broker WHERE cluster_id = ?"
        " UNION ALL SELECT sessions FROM store_cluster WHERE cluster_id = ?) AS highest) WHERE "
        "cluster_id = ?",
        (cluster_id, cluster_id, cluster_id),
        count=1,
    )


def marks(values: Sequence[str]) -> str:
    """A placeholder for each value."""
    return ", ".join("?" for _ in values)


def add_broker(
    cluster_id: str,
    broker_id: str,
    address: str,
    state: str,
    *,
    heartbeat: str = "clock_ms()",
    count: int | None = None,
) -> Statement:
    """A broker's row, unless there is one: its epoch is above those of all that were removed."""
    return Statement(
        "INSERT INTO store_broker (cluster_id, broker_id, address, state, epoch, entry, heartbeat, taker, "
        "taker_epoch)"
        " SELECT cluster_id, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), sessions, 0, "
        f"{heartbeat}, '', 0 FROM store_cluster WHERE cluster_id = ? ON CONFLICT DO NOTHING",
        (broker_id, address, state, cluster_id),
        count=count,
    )


def new_session(cluster_id: str, broker_id: str) -> list[Statement]:
    """Two statements; the first gives back the new session's number."""
    return [
        Statement(
            "UPDATE store_cluster SET sessions = sessions + 1 WHERE cluster_id = ? RETURNING sessions",
            (cluster_id,),
            count=1,
        ),
        Statement(
            "INSERT INTO store_session (cluster_id, session, broker_id)"
            " SELECT cluster_id, sessions, CAST(? AS TEXT) FROM store_cluster WHERE cluster_id = ?",
            (broker_id, cluster_id),
            count=1,
        ),
    ]


def sessions_of(cluster_id: str, broker_id: str) -> Statement:
    """One row (session) each, oldest first."""
    return Statement(
        "SELECT session FROM store_session WHERE cluster_id = ? AND broker_id = ? ORDER BY session",
        (cluster_id, broker_id),
    )


def records_of(cluster_id: str, session: int, after: int, most: int) -> Statement:
    """Rows (id, kind, data) of the oldest ``most`` records younger than ``after``, oldest first."""
    return Statement(
        "SELECT id, kind, data FROM store_record WHERE cluster_id = ? AND session = ? AND id > ? ORDER "
        "BY id LIMIT ?",
        (cluster_id, session, after, most),
    )


def updates_of(cluster_id: str, session: int, after: int, last: int) -> Statement:
    """Rows (id, kind, data) of the records after ``after`` up to ``last``, in order of ids."""
    return Statement(
        "SELECT id, kind, data FROM store_update WHERE cluster_id = ? AND session = ? AND id > ? AND id "
        "<= ? ORDER BY id, kind",
        (cluster_id, session, after, last),
    )


def add_records(rows: tuple[Row, ...]) -> Statement:
    """Rows (cluster id, session, id, kind, data)."""
    return Statement(
        "INSERT INTO store_record (cluster_id, session, id, kind, data) VALUES (?, ?, ?, ?, ?)", many=rows
    )


def put_updates(rows: tuple[Row, ...]) -> Statement:
    """Rows (cluster id, session, id, kind, data); the latest of a kind counts."""
    return Statement(
        "INSERT INTO store_update (cluster_id, session, id, kind, data) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (cluster_id, session, id, kind) DO UPDATE SET data = excluded.data",
        many=rows,
    )


def delete_records(rows: tuple[Row, ...]) -> list[Statement]:
    """Rows (cluster id, session, id): the records and their updates."""
    where = "WHERE (cluster_id, session, id) IN (VALUES (?, ?, ?))"
    return [
        Statement(f"DELETE FROM store_update {where}", many=rows),
        Statement(f"DELETE FROM store_record {where}", many=rows),
    ]


def blob_row(cluster_id: str, kind: str, id_: int, start: int, data: bytes) -> Row:
    """For ``put_blob_parts``."""
    return cluster_id, kind, id_ >> SESSION_SHIFT, id_, start, data


def put_blob_parts(rows: tuple[Row, ...]) -> Statement:
    """Rows (cluster id, kind, session, id, start, data); done twice it has happened once."""
    return Statement(
        "INSERT INTO store_blob (cluster_id, kind, session, id, start, data) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (cluster_id, kind, id, start) DO UPDATE SET data = excluded.data",
        many=rows,
    )


def blob_part(cluster_id: str, kind: str, id_: int, offset: int) -> Statement:
    """One row (start, data): the last part that starts at ``offset`` or before."""
    return Statement(
        "SELECT start, data FROM store_blob WHERE cluster_id = ? AND kind = ? AND id = ? AND start <= ? "
        "ORDER BY start DESC LIMIT 1",
        (cluster_id, kind, id_, offset),
    )


def blob_sizes(cluster_id: str, kind: str, ours: tuple[str, Row], after: int, most: int) -> Statement:
    """(id, bytes) of the ``most`` oldest blobs after ``after`` for which ``ours`` holds."""
    condition, parameters = ours
    return Statement(
        "SELECT id, SUM(length(data)) FROM store_blob"
        f" WHERE cluster_id = ? AND kind = ? AND id > ? AND {condition} GROUP BY id ORDER BY id LIMIT ?",
        (cluster_id, kind, after, *parameters, most),
    )


def delete_blob(cluster_id: str, kind: str, id_: int) -> Statement:
    """All parts, if there are any."""
    return Statement(
        "DELETE FROM store_blob WHERE cluster_id = ? AND kind = ? AND id = ?", (cluster_id, kind, id_)
    )
