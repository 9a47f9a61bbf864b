"""SQLite, where all brokers share one host: a file that every broker's process opens.

Why a thread: a commit waits for the disk and for other processes' locks, and the loop must not. It is the only one of this driver, so
transactions keep their order. Write-ahead logging lets readers and a writer not wait for each other; ``synchronous = FULL`` makes a commit mean
that it is on the disk. Locks of SQLite need a local file system: a shared one is for PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.storage.database.seam import (
    ConstraintError,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Result,
    Statement,
)
from broker.storage.database.sqlite_core import execute, prepare


class SqliteDatabase:
    """See ``seam.Database``. The file and its directory are created."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def transact(self, statements: Sequence[Statement], timeout_s: float) -> list[Result]:
        """In the thread; whoever cannot wait any longer does not know how it ended."""
        if self._closed:
            raise DatabaseUnavailableError(f"{self.path} is closed")
        work = asyncio.get_running_loop().run_in_executor(
            self._thread, self._transact, list(statements), timeout_s
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(work)
        except TimeoutError:
            if work.cancel():
                raise DatabaseUnavailableError(f"{self.path}: no turn within {timeout_s:g} s") from None
            work.add_done_callback(_forget)
            raise OutcomeUnknownError(f"{self.path}: no end within {timeout_s:g} s") from None

    async def close(self) -> None:
        """Also ends the thread."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)

    # ---- in the thread

    def _transact(self, statements: list[Statement], timeout_s: float) -> list[Result]:
        try:
            connection = self._connected()
            connection.execute(f"PRAGMA busy_timeout = {round(timeout_s * 1000)}")
            return execute(connection, statements)
        except DatabaseError:
            raise
        except sqlite3.IntegrityError as error:
            raise ConstraintError(f"{self.path}: {error}") from None
        except sqlite3.OperationalError as error:
            # A commit that failed has been undone by SQLite itself, which says so by being in no transaction any more.
            self._disconnect()
            raise DatabaseUnavailableError(f"{self.path}: {error}") from None
        except sqlite3.Error as error:
            self._disconnect()
            raise DatabaseError(f"{self.path}: {error}") from None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DatabaseUnavailableError(f"{self.path.parent}: {error.strerror or error}") from None
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            prepare(connection, _clock_ms)
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _clock_ms() -> int:
    import time  # noqa: PLC0415 - the database's clock, not the broker's

    return time.time_ns() // 1_000_000


def _forget(work: asyncio.Future[list[Result]]) -> None:
    """Nobody waits for it any more."""
    if not work.cancelled():
        work.exception()
