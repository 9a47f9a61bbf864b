"""From [database-store] to a database: which driver, with which credentials.

Drivers are imported where they are needed: a broker that keeps its messages on a disk starts without them.
"""

from __future__ import annotations

from pathlib import Path

from broker.ha_policy import DatabaseStoreSection
from broker.storage.database.seam import Database


def open_database(section: DatabaseStoreSection, configuration: str = "") -> Database:
    """The database of a validated section; no connection is made yet. ``configuration`` is the path of the file a relative path counts from."""
    kind, _, rest = section.url.partition(":")
    if kind == "sqlite":
        from broker.storage.database.sqlite import SqliteDatabase  # noqa: PLC0415 - see above

        return SqliteDatabase(Path(configuration).resolve().parent / rest)
    from broker.storage.database.postgresql import PostgresqlDatabase  # noqa: PLC0415 - see above

    return PostgresqlDatabase(
        section.url, section.user, section.password, network_timeout_s=section.network_timeout / 1000
    )


__all__ = ["Database", "open_database"]
