"""The tables of a shared store, and the statements about more than one broker's own row.

Every broker of a cluster has one row. Its ``epoch`` grows whenever a broker begins to own it: the
broker itself at each start, a taker when it takes over. Whatever a broker writes begins with an
UPDATE of its own row that names its epoch. The row stays locked until the commit, so no other
broker can replace it between that proof and what it protects. The UPDATE of a broker that has been
replaced concerns no row, and nothing happens.

    store_cluster  one row a cluster: the last store session that was given out, or the highest
                   epoch of brokers that were removed, if that is more
    store_broker   broker id, address, state, epoch, last journal entry, heartbeat by the database's
                   clock, taker with its epoch
    store_session  which broker owns what was stored in which *store session*; a takeover moves
                   these rows and no message
    store_record   the journal's records, by session and id; the high bits of an id are its session
    store_update   the latest update of each kind of a record
    store_blob     bodies and pages outside the records, by kind, id and the offset at which each
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
"""The most bytes of a blob in one row."""

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
"""All states of brokers, as ``list brokers`` shows them (Sun 4.1, example 8-2)."""

RUNNING: Final = (OPERATING, QUIESCING, QUIESCE_COMPLETE, SHUTDOWN_STARTED)
"""The states in which the broker itself renews its heartbeat.

In these states, silence means that the broker has failed.
"""

YIELDED: Final = -1
"""The last entry of a broker that is being taken over and does not serve any more.

The broker has said so itself, or had been shut down.
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
"""The condition for rows of the sessions that belong to a broker; takeovers add sessions."""


def create(cluster_id: str) -> list[Statement]:
    """Return the statements that make missing tables and the cluster's row."""
    return [
        *(Statement(table) for table in TABLES),
        Statement(
            "INSERT INTO store_cluster (cluster_id, sessions) VALUES (?, 0) ON CONFLICT DO NOTHING",
            (cluster_id,),
        ),
    ]


def retire_epochs(cluster_id: str) -> Statement:
    """Return a statement that locks the cluster's row, and records the highest epoch there.

    A broker that is removed and comes again begins above this epoch (``Registry.register``).

    Why: otherwise a process of the removed broker that stood still all the while could find its own
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
    """Return a placeholder for each value."""
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
    """Return a statement that adds a broker's row, unless there is one.

    Its epoch is above those of all brokers that were removed.
    """
    return Statement(
        "INSERT INTO store_broker (cluster_id, broker_id, address, state, epoch, entry, heartbeat, taker, "
        "taker_epoch)"
        " SELECT cluster_id, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), sessions, 0, "
        f"{heartbeat}, '', 0 FROM store_cluster WHERE cluster_id = ? ON CONFLICT DO NOTHING",
        (broker_id, address, state, cluster_id),
        count=count,
    )


def new_session(cluster_id: str, broker_id: str) -> list[Statement]:
    """Return two statements that make a new session; the first returns its number."""
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
    """Return a query for one row (session) for each session of a broker, oldest first."""
    return Statement(
        "SELECT session FROM store_session WHERE cluster_id = ? AND broker_id = ? ORDER BY session",
        (cluster_id, broker_id),
    )


def records_of(cluster_id: str, session: int, after: int, most: int) -> Statement:
    """Return a query for (id, kind, data) of the oldest ``most`` records after ``after``.

    The rows are in order of their ids.
    """
    return Statement(
        "SELECT id, kind, data FROM store_record WHERE cluster_id = ? AND session = ? AND id > ? ORDER "
        "BY id LIMIT ?",
        (cluster_id, session, after, most),
    )


def updates_of(cluster_id: str, session: int, after: int, last: int) -> Statement:
    """Return a query for (id, kind, data) of updates of records after ``after`` up to ``last``.

    The rows are in order of the records' ids.
    """
    return Statement(
        "SELECT id, kind, data FROM store_update WHERE cluster_id = ? AND session = ? AND id > ? AND id "
        "<= ? ORDER BY id, kind",
        (cluster_id, session, after, last),
    )


def add_records(rows: tuple[Row, ...]) -> Statement:
    """Return an insertion of rows (cluster id, session, id, kind, data)."""
    return Statement(
        "INSERT INTO store_record (cluster_id, session, id, kind, data) VALUES (?, ?, ?, ?, ?)", many=rows
    )


def put_updates(rows: tuple[Row, ...]) -> Statement:
    """Return an insertion of updates, rows (cluster id, session, id, kind, data).

    The latest update of a kind counts.
    """
    return Statement(
        "INSERT INTO store_update (cluster_id, session, id, kind, data) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (cluster_id, session, id, kind) DO UPDATE SET data = excluded.data",
        many=rows,
    )


def delete_records(rows: tuple[Row, ...]) -> list[Statement]:
    """Return deletions of records and their updates, for rows (cluster id, session, id)."""
    where = "WHERE (cluster_id, session, id) IN (VALUES (?, ?, ?))"
    return [
        Statement(f"DELETE FROM store_update {where}", many=rows),
        Statement(f"DELETE FROM store_record {where}", many=rows),
    ]


def blob_row(cluster_id: str, kind: str, id_: int, start: int, data: bytes) -> Row:
    """Return a row for ``put_blob_parts``."""
    return cluster_id, kind, id_ >> SESSION_SHIFT, id_, start, data


def put_blob_parts(rows: tuple[Row, ...]) -> Statement:
    """Return an insertion of parts, rows (cluster id, kind, session, id, start, data).

    If it is done twice, the effect is the same.
    """
    return Statement(
        "INSERT INTO store_blob (cluster_id, kind, session, id, start, data) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (cluster_id, kind, id, start) DO UPDATE SET data = excluded.data",
        many=rows,
    )


def blob_part(cluster_id: str, kind: str, id_: int, offset: int) -> Statement:
    """Return a query for (start, data) of the last part that starts at ``offset`` or before."""
    return Statement(
        "SELECT start, data FROM store_blob WHERE cluster_id = ? AND kind = ? AND id = ? AND start <= ? "
        "ORDER BY start DESC LIMIT 1",
        (cluster_id, kind, id_, offset),
    )


def blob_sizes(cluster_id: str, kind: str, ours: tuple[str, Row], after: int, most: int) -> Statement:
    """Return a query for (id, bytes) of the ``most`` oldest blobs after ``after`` that are ours.

    ``ours`` is the condition.
    """
    condition, parameters = ours
    return Statement(
        "SELECT id, SUM(length(data)) FROM store_blob"
        f" WHERE cluster_id = ? AND kind = ? AND id > ? AND {condition} GROUP BY id ORDER BY id LIMIT ?",
        (cluster_id, kind, after, *parameters, most),
    )


def delete_blob(cluster_id: str, kind: str, id_: int) -> Statement:
    """Return a deletion of all parts of a blob, if there are any."""
    return Statement(
        "DELETE FROM store_blob WHERE cluster_id = ? AND kind = ? AND id = ?", (cluster_id, kind, id_)
    )
