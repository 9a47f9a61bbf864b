"""The sections of ``broker.toml`` below [ha-policy].

How a broker's data survives its end (AMQ 17.3).

Why apart from the rest: each policy has a section of its own, mostly with a master and a slave, in
the documents' names; the rest of the configuration is the same under all of them. Times are
milliseconds. A new policy is a module here and a field of ``HaPolicySection``.
"""

from __future__ import annotations

from broker.ha_policy.conventional import ConventionalSection
from broker.ha_policy.database_store import DatabaseStoreSection
from broker.ha_policy.ha_database import HaDatabaseSection
from broker.ha_policy.multi_instance import MultiInstanceSection
from broker.ha_policy.replication import MasterSection, ReplicationRole, ReplicationSection, SlaveSection
from broker.ha_policy.section import PolicySection
from broker.ha_policy.shared_store import (
    SharedStoreMaster,
    SharedStoreRole,
    SharedStoreSection,
    SharedStoreSlave,
)
from broker.section import ClusterSection, Section

__all__ = [
    "STANDALONE",
    "ConventionalSection",
    "DatabaseStoreSection",
    "HaDatabaseSection",
    "HaPolicySection",
    "MasterSection",
    "MultiInstanceSection",
    "PolicySection",
    "ReplicationRole",
    "ReplicationSection",
    "SharedStoreMaster",
    "SharedStoreRole",
    "SharedStoreSection",
    "SharedStoreSlave",
    "SlaveSection",
]

STANDALONE = "standalone"
"""The name of the policy of a broker without a table below [ha-policy]."""


class HaPolicySection(Section, frozen=True, kw_only=True):
    """The table [ha-policy] with at most one policy; without any, the broker is standalone."""

    replication: ReplicationSection | None = None
    shared_store: SharedStoreSection | None = None
    ha_database: HaDatabaseSection | None = None
    multi_instance: MultiInstanceSection | None = None
    conventional: ConventionalSection | None = None

    @property
    def name(self) -> str:
        """The name of the policy: that of its table."""
        return next(iter(self._tables()), STANDALONE)

    @property
    def chosen(self) -> PolicySection | None:
        """The table of the policy; None for a standalone broker."""
        return next(iter(self._tables().values()), None)

    @property
    def shared(self) -> dict[str, str]:
        """The properties of the policy that all brokers of a cluster have in common.

        ``ha-policy`` is the policy's family.
        """
        section = self.chosen or PolicySection()
        return {"ha-policy": section.family, **section.shared}

    def problem(self, cluster: ClusterSection | None, database: DatabaseStoreSection | None) -> str:
        """Return what is wrong with the table; "" if it has one policy and all that it needs."""
        tables = self._tables()
        if len(tables) > 1:
            return f"ha-policy has {' and '.join(tables)}: a broker has one policy"
        return (self.chosen or PolicySection()).problem(cluster, database)

    def _tables(self) -> dict[str, PolicySection]:
        # msgspec.structs.fields evaluates all annotations anew; a search draws thousands of plans.
        names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        return {key: section for key, name in names if (section := getattr(self, name)) is not None}
