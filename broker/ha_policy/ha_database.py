"""The section [ha-policy.ha-database] (Sun 4.1, chapter 8)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from broker.ha_policy.database_store import DatabaseStoreSection
from broker.ha_policy.section import PolicySection
from broker.section import ClusterSection, Milliseconds, Positive


class HaDatabaseSection(PolicySection, frozen=True, kw_only=True):
    """A broker of a high-availability cluster (Sun 4.1, chapter 8).

    All of them live, all in one database, each taking over from any other.

    Shorter times notice a failure sooner and suspect more brokers that have not failed.
    """

    family: ClassVar[str] = "ha-database"

    cluster_id: Annotated[str, Meta(pattern=r"^[\w.-]+\Z", max_length=64)]
    """The same for all brokers that share the store (imq.cluster.clusterid)."""
    broker_id: Annotated[str, Meta(pattern=r"^[\w.-]+\Z", max_length=64)] | None = None
    """Unique within the cluster (imq.brokerid); absent: broker.name."""
    heartbeat_interval: Positive = 2000
    """With heartbeat-threshold.

    How long another broker may say nothing on its cluster link before it is suspected.
    """
    heartbeat_threshold: Positive = 3
    monitor_interval: Positive = 30_000
    """How often the brokers' rows in the store are looked at."""
    monitor_threshold: Positive = 2
    """Intervals without a change of a suspect's row after which it counts as failed."""
    takeover_wait: Milliseconds = 0
    """From the begin of a takeover, when the failed broker is fenced, to its completion."""
    transient_wait: Milliseconds = 0
    """How long a failed broker's temporary queues stay with the broker that took it over.

    A client with a ``client-id`` gets its queue back if it returns in time and subscribes to it
    with ``resume:true``; later it is refused.
    """
    failover_on_shutdown: bool = True
    """Whether others take over when this broker is stopped normally (``shutdown -nofailover`` is
    false).
    """

    @property
    def shared(self) -> dict[str, str]:
        """The id of the cluster, which no broker of another policy has."""
        return {"ha-policy.ha-database.cluster-id": self.cluster_id}

    def problem(self, cluster: ClusterSection | None, database: DatabaseStoreSection | None) -> str:
        """Return what is wrong with the section; "" if nothing is."""
        if cluster is None:
            return "ha-policy.ha-database wants a [cluster] section: that is where the others are heard"
        if database is None:
            return (
                "ha-policy.ha-database and a [database-store] section belong together: one of them is missing"
            )
        if cluster.message_load_balancing != "OFF":
            return (
                "cluster.message-load-balancing must be OFF under ha-policy.ha-database: a message that "
                "was on its way to another"
                " broker would have no owner to take it over from"
            )
        return database.problem()
