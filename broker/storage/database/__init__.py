"""The seam to a database: transactions of a few statements, answered whole or not at all.

Why so narrow: a broker must know of every transaction whether it happened, did not happen, or may
have happened, and must know it by a deadline. A cursor that is kept open, a check in one statement
and an act in the next would let another broker in between. So everything is handed over at once,
with the number of rows that each statement must concern: who has been replaced concerns none, and
nothing of its transaction happens.

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
    """One statement of a transaction.

    ``many`` has the parameters of as many executions, instead of ``parameters``; an empty one does
    nothing; where the statement has ``VALUES (?, ...)``, a driver may repeat that instead of the
    statement. ``count``, where given, is the number of rows that must be concerned (all executions
    together), or the transaction is undone and UnexpectedCountError raised.
    """

    sql: str
    parameters: Row = ()
    many: tuple[Row, ...] | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement did: the rows it gave back, and how many it concerned."""

    rows: list[Row]
    count: int


class DatabaseError(Exception):
    """Any trouble with the database. Never carries credentials or the content of messages."""


class DatabaseUnavailableError(DatabaseError):
    """The transaction certainly did not happen.

    No connection, a refused one, a deadlock, a deadline before the commit. It may be tried again.
    """


class OutcomeUnknownError(DatabaseError):
    """The connection was lost, or the deadline passed, while the commit was under way.

    Only a look into the database can tell what happened.
    """


class ConstraintError(DatabaseError):
    """A row is there already, or a rule of the schema broken; trying again changes nothing."""


class UnexpectedCountError(DatabaseError):
    """Nothing happened, for statement ``index`` concerned another number of rows than it had to."""

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
        """Do all of it durably, or nothing; one result a statement.

        Answers or raises a DatabaseError within ``timeout_s`` (and little more).
        """
        ...

    async def close(self) -> None:
        """Give the connection back. Closing twice is allowed."""
        ...
