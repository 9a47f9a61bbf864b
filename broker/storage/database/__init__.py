"""A store in a database: the seam, and its real drivers."""

from broker.storage.database.seam import (
    ConstraintError,
    Database,
    DatabaseError,
    DatabaseUnavailableError,
    OutcomeUnknownError,
    Result,
    Row,
    Statement,
    UnexpectedCountError,
    Value,
)

__all__ = [
    "ConstraintError",
    "Database",
    "DatabaseError",
    "DatabaseUnavailableError",
    "OutcomeUnknownError",
    "Result",
    "Row",
    "Statement",
    "UnexpectedCountError",
    "Value",
]
