"""From [database-store] to a database: which driver, with which credentials.

Drivers are imported where they are needed: a broker that keeps its messages on a disk starts
without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from broker.ha_policy import DatabaseStoreSection
from broker.masking import unmask
from broker.storage.database import Database


def open_database(
    section: DatabaseStoreSection, configuration: str = "", environment: Mapping[str, str] | None = None
) -> Database:
    """The database of a validated section; no connection is made yet.

    ``configuration`` is the path of the file a relative path counts from, ``environment`` has the
    key of masked credentials. Raises MaskError.
    """
    kind, _, rest = section.url.partition(":")
    if kind == "sqlite":
        from broker.storage.database.sqlite import SqliteDatabase  # noqa: PLC0415 - see above

        return SqliteDatabase(Path(configuration).resolve().parent / rest)
    from broker.storage.database.postgresql import PostgresqlDatabase  # noqa: PLC0415 - see above

    return PostgresqlDatabase(
        section.url,
        unmask(section.user, environment or {}),
        unmask(section.password, environment or {}),
        network_timeout_s=section.network_timeout / 1000,
    )
