"""The section [database-store], which two policies need."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from broker.ha_policy.lease import lease_problem
from broker.section import Milliseconds, Positive, Section


class DatabaseStoreSection(Section, frozen=True, kw_only=True):
    """The database in which messages are kept (AMQ 17.3.2.2, database-store).

    The same for all brokers that share it: a backup of policy shared-store that has other times
    than its live is refused.
    """

    url: Annotated[str, Meta(min_length=1)]
    """``postgresql://host:5432/name``, or ``sqlite:path`` where all brokers share one host.

    A relative path is relative to the configuration file. Without credentials, which have
    properties of their own (jdbc-connection-url).
    """
    user: str = ""
    password: str = ""
    network_timeout: Positive = 10_000
    """How long a transaction may take (jdbc-network-timeout)."""
    lock_renew_period: Positive = 2000
    """How often a broker proves that it is alive (jdbc-lock-renew-period)."""
    lock_expiration: Positive = 15_000
    """How long after its last proof a broker may be replaced (jdbc-lock-expiration).

    It answers nobody from half of it on.
    """
    journal_sync_period: Milliseconds = 5
    """The shortest time from one batch of rows to the next (jdbc-journal-sync-period)."""
    store_name: Annotated[str, Meta(pattern=r"^[\w.-]+\Z", max_length=64)] = "default"
    """Which of the stores in this database, under ha-policy.shared-store and .conventional.

    The same for a live and its backups, another for every other group; for each broker of a
    conventional cluster another. It stands for the names of tables (message-table-name,
    node-manager-store-table-name and the like).
    """

    def __repr__(self) -> str:
        """Without the password: a configuration may end up in a log."""
        return f"DatabaseStoreSection(url={self.url!r}, user={self.user!r}, password=***)"

    def problem(self) -> str:
        """Return what is wrong with the section, without the password; "" if nothing is."""
        kind, separator, rest = self.url.partition(":")
        if not separator or not rest or kind not in ("postgresql", "sqlite"):
            return "database-store.url must be postgresql://host:port/name or sqlite:path"
        if kind == "postgresql" and ("@" in rest or "password=" in rest):
            return (
                "database-store.url must not hold credentials: database-store.user and .password are for them"
            )
        if kind == "sqlite" and (self.user or self.password):
            return "database-store.user and .password are for postgresql: a file of SQLite asks for none"
        if self.password and not self.user:
            return "database-store.password is given, and database-store.user is not"
        return lease_problem("database-store", self.lock_renew_period, self.lock_expiration)
