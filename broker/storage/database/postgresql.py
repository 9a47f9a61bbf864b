"""The driver of PostgreSQL through psycopg, for brokers on several hosts.

Why sessions have time-outs of their own: a broker that stands still between its first statement and
its commit holds the lock of its row, and no other broker could take over. So the server itself ends
a transaction that is idle for ``network-timeout``, and its locks with it.

Isolation is READ COMMITTED, PostgreSQL's default, and enough: the first statement of every
transaction that writes is an UPDATE of the broker's own row. This statement waits for a broker that
is just replacing it, and then looks again (PostgreSQL manual, 13.2.1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import conninfo, errors

from broker.storage.database import (
    ConstraintError,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Result,
    Row,
    Statement,
    UnexpectedCountError,
)

ROWS_TOGETHER: Final = 500
"""The most rows in one statement."""

CLOCK: Final = "(extract(epoch from clock_timestamp()) * 1000)::bigint"


@dataclass(slots=True)
class _Course:
    """The progress of a transaction."""

    committing: bool = False


class PostgresqlDatabase:
    """A database on a server. See ``Database``.

    Args:
        url: as libpq takes it, ``postgresql://host:5432/name``.
        user: overrides that of the url.
        password: never shown.
        network_timeout_s: for a connection to come about, and for the server to give up a silent
            transaction.
    """

    def __init__(
        self, url: str, user: str = "", password: str = "", *, network_timeout_s: float = 10.0
    ) -> None:
        self._url = url
        self._credentials = {name: value for name, value in (("user", user), ("password", password)) if value}
        self._network_timeout_s = network_timeout_s
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()
        self._given_up: dict[asyncio.Task[list[Result]], None] = {}
        self._closed = False

    async def transact(self, statements: Sequence[Statement], timeout_s: float) -> list[Result]:
        """Run the statements one by one, then commit; before the commit nothing has happened."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise DatabaseUnavailableError(f"no turn within {timeout_s:g} s") from None
        try:
            return await self._in_time(_Course(), statements, deadline, timeout_s)
        finally:
            self._turn.release()

    async def close(self) -> None:
        """Close the connection; the outcome of a transaction under way stays unknown."""
        self._closed = True
        await self._drop()
        for task in self._given_up:
            task.cancel()

    async def _in_time(
        self, course: _Course, statements: Sequence[Statement], deadline: float, timeout_s: float
    ) -> list[Result]:
        """Run statements in a task, and wait for it until the deadline.

        Why a task: a cancelled query of psycopg first asks the server to cancel it and waits for
        the answer, which a server that stands still never gives.
        """
        loop = asyncio.get_running_loop()
        work = loop.create_task(self._transact(course, statements), name="database transaction")
        try:
            await asyncio.wait({work}, timeout=max(0.0, deadline - loop.time()))
        finally:
            if not work.done():
                self._connection = None
                self._given_up[work] = None
                work.add_done_callback(self._forget)
                work.cancel()
        if work.done():
            return work.result()
        if course.committing:
            raise OutcomeUnknownError(f"the commit was not confirmed within {timeout_s:g} s")
        raise DatabaseUnavailableError(f"no answer within {timeout_s:g} s")

    async def _transact(self, course: _Course, statements: Sequence[Statement]) -> list[Result]:
        connection = await self._connected()
        try:
            async with connection.cursor() as cursor:
                results = [await _execute(cursor, index, one) for index, one in enumerate(statements)]
            course.committing = True
            await connection.commit()
        except (UnexpectedCountError, psycopg.Error) as error:
            try:
                await connection.rollback()
            except psycopg.Error:
                await connection.close()
            raise _translated(error, committing=course.committing) from None
        except BaseException:
            await connection.close()
            raise
        return results

    def _forget(self, work: asyncio.Task[list[Result]]) -> None:
        """Retrieve an error that no caller awaits any more, so that asyncio does not report it."""
        del self._given_up[work]
        if not work.cancelled():
            work.exception()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._closed:
            raise DatabaseUnavailableError("the database is closed")
        if self._connection is None or self._connection.closed:
            patience_ms = max(1, round(self._network_timeout_s * 1000))
            try:
                told = conninfo.make_conninfo(
                    self._url,
                    connect_timeout=max(2, round(self._network_timeout_s)),
                    options=f"-c idle_in_transaction_session_timeout={patience_ms} -c "
                    f"lock_timeout={patience_ms}"
                    " -c synchronous_commit=on -c client_min_messages=warning",
                    **self._credentials,
                )
                self._connection = await psycopg.AsyncConnection.connect(told, prepare_threshold=2)
            except psycopg.Error as error:
                raise DatabaseUnavailableError(f"cannot connect: {self._without_password(error)}") from None
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    def _without_password(self, error: psycopg.Error) -> str:
        words = " ".join(str(error).split())
        password = self._credentials.get("password")
        return words.replace(password, "***") if password else words


def _together(sql: str, many: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """Yield many executions as few statements.

    What follows VALUES is repeated, if the statement has it.

    Why not psycopg's ``executemany``: that talks to the server in a pipeline, in which a client
    that stands still counts as busy, and its locks are never taken away.
    """
    head, found, tail = sql.partition("VALUES (")
    marks, _, tail = tail.partition(")")
    if not found:
        yield from ((sql, row) for row in many)
        return
    for first in range(0, len(many), ROWS_TOGETHER):
        rows = many[first : first + ROWS_TOGETHER]
        values = ", ".join(f"({marks})" for _ in rows)
        yield f"{head}VALUES {values}{tail}", tuple(value for row in rows for value in row)


async def _execute(cursor: psycopg.AsyncCursor[Any], index: int, statement: Statement) -> Result:
    sql = statement.sql.replace("clock_ms()", CLOCK).replace("?", "%s")
    rows: list[Any] = []
    count = 0
    if statement.many is not None:
        for text, parameters in _together(sql, statement.many):
            await cursor.execute(text.encode(), parameters)
            count += max(cursor.rowcount, 0)
    else:
        await cursor.execute(sql.encode(), statement.parameters or None)
        rows = await cursor.fetchall() if cursor.description is not None else []
        count = len(rows) if cursor.description is not None else max(cursor.rowcount, 0)
    if statement.count is not None and count != statement.count:
        raise UnexpectedCountError(index, count, statement.count)
    return Result(rows, count)


def _translated(error: Exception, *, committing: bool) -> DatabaseError:
    """Return the driver's error as one of this seam's.

    The server's own words name tables and columns, never values: details are left out.
    """
    if isinstance(error, DatabaseError):
        return error
    words = (getattr(getattr(error, "diag", None), "message_primary", None) or str(error)).partition("\n")[0]
    if isinstance(error, errors.IntegrityError | errors.DuplicateTable | errors.DuplicateObject):
        # A table that another broker makes at the same moment is met by its rows in the catalogue,
        # which is an integrity error, by its name, or by the type of its rows.
        return ConstraintError(words)
    if isinstance(error, errors.OperationalError):
        sure = isinstance(error, errors.SerializationFailure | errors.DeadlockDetected)
        if committing and not sure:
            return OutcomeUnknownError(words)
        return DatabaseUnavailableError(words)
    return DatabaseError(words)
