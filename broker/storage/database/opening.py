"""The choice of a driver and of credentials for the section [database-store].

Drivers are imported only when they are needed: a broker that stores its messages on a disk starts
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
    """Return the database of a validated section; no connection is made yet.

    A relative path starts at the directory of the file ``configuration``. ``environment`` has the
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
