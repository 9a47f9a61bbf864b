"""The section [ha-policy.conventional] (SUN, "Conventional Clusters")."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from broker.ha_policy.database_store import DatabaseStoreSection
from broker.ha_policy.section import PolicySection
from broker.section import ClusterSection

Address = Annotated[str, Meta(pattern=r".+:\d+$")]


class ConventionalSection(PolicySection, frozen=True, kw_only=True):
    """A broker of a conventional cluster: each broker has a store of its own, and no backup.

    A message stays at its home, the broker that took it. Consumers at all brokers get it from
    there.
    """

    family: ClassVar[str] = "conventional"

    broker_list: tuple[Address, ...] = ()
    """The ``cluster.connector`` of each broker of the cluster, in any order.

    In the document it is imq.cluster.brokerlist. The same for all brokers of the cluster; others
    are neither dialled nor accepted. It is required, here or in the cluster file. ``brokerctl
    reload cls`` reads it again.
    """
    cluster_file: str = ""
    """A file with the properties that all brokers share, relative to this one; "" for none.

    In the document it is imq.cluster.url. It is written like this one, and may have
    ``ha-policy.conventional.broker-list``, ``.master-broker`` and ``.cluster-id``,
    ``cluster.name`` and ``cluster.ssl-enabled``.
    """
    master_broker: str = ""
    """The connector of the master broker, which keeps the configuration change record.

    In the document it is imq.cluster.masterbroker. The same for all brokers of the cluster; "" for
    a cluster without a master broker.
    """
    cluster_id: str = ""
    """A name that all brokers of the cluster have in common; it may be left out.

    In the document it is imq.cluster.clusterid.
    """
    allow_loopback: bool = False
    """Whether a connector may lead to a loopback address, such as 127.0.0.1.

    For clusters on one machine. Otherwise this broker does not start if its own connector does,
    and is linked with no broker whose connector does: on another machine that address would lead
    to another broker, or to none.
    """

    @property
    def shared(self) -> dict[str, str]:
        """The list of brokers, the master broker and the cluster's id."""
        section = "ha-policy.conventional"
        return {
            f"{section}.broker-list": ", ".join(sorted(set(self.broker_list))),
            f"{section}.cluster-id": self.cluster_id,
            f"{section}.master-broker": self.master_broker,
        }

    def problem(self, cluster: ClusterSection | None, database: DatabaseStoreSection | None) -> str:
        """Return what is wrong with the section, or between it and the others; "" if nothing is."""
        section = "ha-policy.conventional"
        if cluster is None:
            return f"{section} wants a [cluster] section: that is how its brokers reach each other"
        if not self.broker_list and not self.cluster_file:
            return f"property '{section}.broker-list' is missing; a cluster-file may have it, too"
        if not self.broker_list:
            return super().problem(cluster, database)
        if cluster.connector not in self.broker_list:
            return (
                f"{section}.broker-list lacks this broker: cluster.connector is {cluster.connector!r}, and "
                f"the list is {', '.join(self.broker_list)}"
            )
        if self.master_broker and self.master_broker not in self.broker_list:
            return (
                f"{section}.master-broker is {self.master_broker!r}, which is not in broker-list: "
                f"{', '.join(self.broker_list)}"
            )
        if cluster.static_connectors or cluster.discovery_group_ref:
            return (
                f"{section}.broker-list names the other brokers: leave cluster.static-connectors and "
                "cluster.discovery-group-ref out"
            )
        return "" if database is None else database.problem()
