"""The section [ha-policy.shared-store] (AMQ 17.3.2)."""

from __future__ import annotations

from typing import Literal

from broker.ha_policy.database_store import DatabaseStoreSection
from broker.ha_policy.lease import lease_problem
from broker.ha_policy.section import PolicySection, role_problem
from broker.section import ClusterSection, Positive, Section


class SharedStoreRole(Section, frozen=True, kw_only=True):
    """The properties that master and slave on a shared store have in common (AMQ 17.3.2).

    ``broker.data-directory`` is the directory; on a database, [database-store] has the lock's
    times.
    """

    failover_on_shutdown: bool = False
    """Whether a backup takes over when this broker, being live, is stopped normally."""
    lock_renew_period: Positive = 2000
    """How often a live has its lock confirmed by the store."""
    lock_expiration: Positive = 15_000
    """How long after its last confirmation a live certainly holds its lock.

    Never longer than the store's own lease (NFSv4: 90 s by default). A live answers nobody from
    half of it on, and stops at its end.
    """
    lock_poll_period: Positive = 500
    """How often a backup tries to get the lock."""


class SharedStoreMaster(SharedStoreRole, frozen=True, kw_only=True):
    """The broker that is live unless it failed.

    Started again, it gets its place back from a slave that allows it.
    """


class SharedStoreSlave(SharedStoreRole, frozen=True, kw_only=True):
    """A backup; restart-backup: after a failback it starts again as one. There may be several."""

    allow_failback: bool = True
    """Whether it gives its place back to a master that waits.

    Never while another backup waits (17.3.2.2).
    """
    restart_backup: bool = True


class SharedStoreSection(PolicySection, frozen=True, kw_only=True):
    """The place of the shared store, and exactly one of the two roles."""

    store: Literal["directory", "database"] = "directory"
    """A directory of a shared file system (broker.data-directory), or a database
    ([database-store], AMQ 17.3.2.2).
    """
    master: SharedStoreMaster | None = None
    """The section ha-policy.shared-store.master."""
    slave: SharedStoreSlave | None = None
    """The section ha-policy.shared-store.slave."""

    @property
    def directory_lock_ms(self) -> int | None:
        """The lock-expiration of its role, if the store is a directory."""
        role = self.master or self.slave
        return role.lock_expiration if role is not None and self.store == "directory" else None

    def problem(self, cluster: ClusterSection | None, database: DatabaseStoreSection | None) -> str:
        """Return what is wrong with the section, or between role and store; "" if nothing is."""
        if problem := role_problem("shared-store", self.master, self.slave, cluster):
            return problem
        if (self.store == "database") != (database is not None):
            return (
                'ha-policy.shared-store.store = "database" and a [database-store] section belong '
                "together: one of them is missing"
            )
        return (database.problem() if database is not None else "") or self._store_problem(database)

    def _store_problem(self, database: DatabaseStoreSection | None) -> str:
        name, role = ("master", self.master) if self.master is not None else ("slave", self.slave)
        assert role is not None, "a shared store without a role"
        section = f"ha-policy.shared-store.{name}"
        if self.store == "directory":
            return lease_problem(section, role.lock_renew_period, role.lock_expiration)
        assert database is not None, "a store in a database without one"
        for name_of_time, default in (
            ("lock_renew_period", SharedStoreRole().lock_renew_period),
            ("lock_expiration", SharedStoreRole().lock_expiration),
        ):
            if getattr(role, name_of_time) != default:
                time = name_of_time.replace("_", "-")
                return f"{section}.{time} is for a directory: on a database it is database-store.{time}"
        if database.network_timeout >= database.lock_expiration:
            return (
                f"database-store.network-timeout is {database.network_timeout}: it must be shorter than "
                "lock-expiration"
                f" ({database.lock_expiration}), or one connection that hangs costs the live lock"
            )
        if role.lock_poll_period > database.lock_expiration // 2:
            return (
                f"{section}.lock-poll-period is {role.lock_poll_period}: it must be at most half of "
                "database-store.lock-expiration"
                f" ({database.lock_expiration}), since whoever waits renews its place whenever it looks"
            )
        return ""
