"""The seam to a database: transactions of a few statements, which happen whole or not at all.

Why so narrow: a broker must know of every transaction whether it happened, did not happen, or may
have happened, and must know it by a deadline. A cursor that is kept open, or a check in one
statement and an act in the next, would let another broker in between. So everything is handed over
at once, with the number of rows that each statement must concern. The statements of a replaced
broker concern no row, and nothing of its transaction happens.

The dialect is what PostgreSQL and SQLite have in common: parameters by position (``?``), BIGINT,
TEXT and BYTEA columns, ``ON CONFLICT``, ``RETURNING``. ``clock_ms()`` is the database's own clock
in milliseconds: the only one that brokers on different machines share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Value: TypeAlias = int | str | bytes | None
Row: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a transaction.

    ``many`` has the parameters of as many executions, instead of ``parameters``; an empty one does
    nothing. If the statement has ``VALUES (?, ...)``, a driver may repeat that instead of the
    statement. ``count``, if given, is the number of rows that all executions together must concern.
    Otherwise the transaction is undone and UnexpectedCountError raised.
    """

    sql: str
    parameters: Row = ()
    many: tuple[Row, ...] | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement: the rows that it returned, and how many it concerned."""

    rows: list[Row]
    count: int


class DatabaseError(Exception):
    """Any trouble with the database. Never carries credentials or the content of messages."""


class DatabaseUnavailableError(DatabaseError):
    """The transaction certainly did not happen.

    There was no connection, a refused one, a deadlock, or a deadline before the commit. The
    transaction may be tried again.
    """


class OutcomeUnknownError(DatabaseError):
    """The connection was lost, or the deadline passed, while the commit was under way.

    Only a look into the database can tell what happened.
    """


class ConstraintError(DatabaseError):
    """A row or a table exists already, or a rule of the schema is broken."""


class UnexpectedCountError(DatabaseError):
    """The transaction did not happen: statement ``index`` concerned a wrong number of rows."""

    def __init__(self, index: int, count: int, wanted: int) -> None:
        super().__init__(f"statement {index + 1} concerned {count} rows, not {wanted}")
        self.index = index
        self.count = count
        self.wanted = wanted


class Database(Protocol):
    """A database, reached over at most one connection that is made when needed.

    Transactions of one object run one after the other.
    """

    async def transact(self, statements: Sequence[Statement], timeout_s: float) -> list[Result]:
        """Run the transaction whole and durably, or not at all; return a result for each statement.

        Answers or raises a DatabaseError within ``timeout_s`` (and little more).
        """
        ...

    async def close(self) -> None:
        """Close the connection. This may be called twice."""
        ...
