"""The base of the tables below [ha-policy], and the check of those with a partner."""

from __future__ import annotations

from typing import ClassVar

from broker.ha_policy.database_store import DatabaseStoreSection
from broker.section import ClusterSection, Section


class PolicySection(Section, frozen=True, kw_only=True):
    """The table of a policy, ``[ha-policy.NAME]``."""

    @property
    def directory_lock_ms(self) -> int | None:
        """The duration of the lock in the brokers' shared directory (ms); None if they share none.

        The directory is ``broker.data-directory``.
        """
        return None

    family: ClassVar[str] = "multi-instance, replication, shared-store or standalone"
    """The policies that brokers of one cluster may have, as people are told."""

    @property
    def shared(self) -> dict[str, str]:
        """The properties that all brokers of a cluster have in common, by their full names.

        Brokers that differ in one of them refuse each other.
        """
        return {}

    def problem(self, cluster: ClusterSection | None, database: DatabaseStoreSection | None) -> str:
        """Return what is wrong with the section, or between it and the others; "" if nothing is.

        A policy needs neither, unless it says so: then a database is of no use.
        """
        del cluster
        if database is None:
            return ""
        return "ha-policy.ha-database and a [database-store] section belong together: one of them is missing"


def role_problem(
    name: str, master: Section | None, slave: Section | None, cluster: ClusterSection | None
) -> str:
    """Return what is wrong with a policy whose brokers have a partner; "" if nothing is."""
    if (master is None) == (slave is None):
        return f"ha-policy.{name} wants exactly one of master and slave, as [ha-policy.{name}.master]"
    if cluster is None:
        return f"ha-policy.{name} wants a [cluster] section: that is where the partner is found"
    return ""
