"""A transaction on a ``sqlite3.Connection``: the part of the driver that runs in its thread.

Why separate: it has no threads and no clock, so that the rules (all or nothing, expected counts)
can be tested by themselves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from broker.storage.database import OutcomeUnknownError, Result, Statement, UnexpectedCountError


def prepare(connection: sqlite3.Connection, clock_ms: Callable[[], int]) -> None:
    """Give a connection (made with ``isolation_level=None``) the database's clock."""
    connection.create_function("clock_ms", 0, clock_ms)


def execute(connection: sqlite3.Connection, statements: Sequence[Statement]) -> list[Result]:
    """Run all statements as one transaction that takes the write lock at its start.

    Raises UnexpectedCountError or sqlite3.Error when nothing happened, OutcomeUnknownError when the
    outcome is not known.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        results = [_execute(connection, index, statement) for index, statement in enumerate(statements)]
        _commit(connection)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL):
            raise
        # How much of the log had reached the disk before the failure is unknown until the log is
        # read again.
        raise OutcomeUnknownError(f"the commit failed: {error}") from None


def _execute(connection: sqlite3.Connection, index: int, statement: Statement) -> Result:
    if statement.many is not None:
        cursor = connection.executemany(statement.sql, statement.many)
        rows = []
    else:
        cursor = connection.execute(statement.sql, statement.parameters)
        rows = cursor.fetchall()
    count = len(rows) if cursor.description is not None else max(cursor.rowcount, 0)
    if statement.count is not None and count != statement.count:
        raise UnexpectedCountError(index, count, statement.count)
    return Result(rows, count)
