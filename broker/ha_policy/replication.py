"""The section [ha-policy.replication] (AMQ 17.3.3)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from broker.ha_policy.database_store import DatabaseStoreSection
from broker.ha_policy.section import PolicySection, role_problem
from broker.section import ClusterSection, Milliseconds, Positive, Section, Unlimited


class ReplicationRole(Section, frozen=True, kw_only=True):
    """The properties that master and slave have in common (AMQ 17.3.3, Appendix F)."""

    group_name: str | None = None
    vote_on_replication_failure: bool = False
    vote_retries: Annotated[int, Meta(ge=0)] = 12
    vote_retry_wait: Milliseconds = 5000
    quorum_vote_wait: Milliseconds = 30_000
    """How long one vote may take."""
    quorum_size: Unlimited = -1
    """Votes needed; -1: a majority of the largest number of live brokers this process has seen."""
    backup_vote: Literal["partner-gone", "reachability"] = "partner-gone"
    """What this broker, being live, grants a backup its vote for.

    ``partner-gone``: that the backup's live is out of reach here, too (17.3.3.1, "indicating that
    its replication partner is no longer available"; Apache Artemis does so): a cut of the pair's
    link alone never makes two lives. ``reachability``: that the backup reaches us (17.3.1.3, "can
    still connect to more than half of the live brokers"). The same for all brokers of a cluster.
    """
    initial_replication_sync_timeout: Positive = 30_000
    retry_replication_wait: Milliseconds = 2000
    failover_on_shutdown: bool = False
    replication_patience: Positive | None = None
    """Milliseconds without a word from its live after which a backup takes the replication
    connection for lost; absent: the cluster's connection-ttl. A live stops answering clients
    after half of its backup's, so that it certainly stops first.
    """


class MasterSection(ReplicationRole, frozen=True, kw_only=True):
    """The broker that is live unless it failed.

    With check-for-live-server it looks for a live with its node ID first.
    """

    check_for_live_server: bool = False


class SlaveSection(ReplicationRole, frozen=True, kw_only=True):
    """The backup; restart-backup: after a failback it starts again as one."""

    allow_failback: bool = True
    restart_backup: bool = True
    max_saved_replicated_journals_size: Annotated[int, Meta(ge=0)] = 2


class ReplicationSection(PolicySection, frozen=True, kw_only=True):
    """Exactly one of the two."""

    master: MasterSection | None = None
    slave: SlaveSection | None = None

    def problem(self, cluster: ClusterSection | None, database: DatabaseStoreSection | None) -> str:
        """Return what is wrong with the section; "" if nothing is."""
        return role_problem("replication", self.master, self.slave, cluster) or super().problem(
            cluster, database
        )
