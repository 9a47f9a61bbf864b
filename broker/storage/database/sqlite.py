"""The driver of SQLite, for brokers that share one host: each process opens the same file.

Why a thread: a commit waits for the disk and for other processes' locks, and the loop must not.
This driver has one thread, so transactions keep their order. With write-ahead logging, readers and
a writer do not wait for each other. ``synchronous = FULL`` makes a commit mean that it is on the
disk. Locks of SQLite need a local file system: for a shared one, use PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from broker.storage.database import (
    ConstraintError,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Result,
    Statement,
)
from broker.storage.database.sqlite_core import execute, prepare

PATIENCE: Final = 1.5
"""The factor by which the end of a transaction is awaited longer than its time-out."""

AGAIN_S: Final = 0.005
"""The pause before the next try to switch a new file to write-ahead logging."""


class SqliteDatabase:
    """A database in a file, which is created with its directory. See ``Database``."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def transact(self, statements: Sequence[Statement], timeout_s: float) -> list[Result]:
        """Run a transaction in the thread; see ``Database``.

        A caller that gives up waiting does not learn the outcome.
        """
        if self._closed:
            raise DatabaseUnavailableError(f"{self.path} is closed")
        job = self._thread.submit(self._transact, list(statements), time.monotonic() + timeout_s)
        work = asyncio.wrap_future(job)
        work.add_done_callback(_look)
        try:
            # The thread itself gives up waiting for a lock in time; the disk may take longer.
            async with asyncio.timeout(timeout_s * PATIENCE):
                return await asyncio.shield(work)
        except TimeoutError:
            # Only the job itself knows whether it has begun; its asyncio future could always be
            # cancelled.
            if job.done():
                return job.result()
            if job.cancel():
                raise DatabaseUnavailableError(f"{self.path}: no turn within {timeout_s:g} s") from None
            raise OutcomeUnknownError(f"{self.path}: no end within {timeout_s:g} s") from None

    async def close(self) -> None:
        """Close the connection, and end the thread."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)

    # ---- in the thread

    def _transact(self, statements: list[Statement], deadline: float) -> list[Result]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise DatabaseUnavailableError(f"{self.path}: no turn in time")
        try:
            connection = self._connected(deadline)
            connection.execute(f"PRAGMA busy_timeout = {round(left_s * 1000)}")
            return execute(connection, statements)
        except DatabaseError:
            raise
        except sqlite3.IntegrityError as error:
            raise ConstraintError(f"{self.path}: {error}") from None
        except sqlite3.OperationalError as error:
            # SQLite itself has undone a commit that failed; the connection is in no transaction any
            # more.
            self._disconnect()
            raise DatabaseUnavailableError(f"{self.path}: {error}") from None
        except sqlite3.Error as error:
            self._disconnect()
            raise DatabaseError(f"{self.path}: {error}") from None

    def _connected(self, deadline: float) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DatabaseUnavailableError(f"{self.path.parent}: {error.strerror or error}") from None
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            _write_ahead(connection, deadline)
            connection.execute("PRAGMA synchronous = FULL")
            prepare(connection, _clock_ms)
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _write_ahead(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch a new file to write-ahead logging, as the first of several processes does.

    SQLite tells the others at once that the file is locked, however long they would wait.
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                connection.close()
                raise
            time.sleep(AGAIN_S)
        else:
            return


def _clock_ms() -> int:
    """Return the database's clock, which is not the broker's."""
    return time.time_ns() // 1_000_000


def _look(work: asyncio.Future[list[Result]]) -> None:
    """Retrieve an error that no caller awaits any more, so that asyncio does not report it."""
    if not work.cancelled():
        work.exception()
