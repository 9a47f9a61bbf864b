"""The section [ha-policy.multi-instance] (WebSphere MQ 7.0.1)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from broker.ha_policy.database_store import DatabaseStoreSection
from broker.ha_policy.lease import lease_problem
from broker.ha_policy.section import PolicySection
from broker.ha_policy.shared_store import SharedStoreRole
from broker.section import ClusterSection


class MultiInstanceSection(SharedStoreRole, PolicySection, frozen=True, kw_only=True):
    """An instance of a multi-instance queue manager (WebSphere MQ 7.0.1).

    One is active, one may stand by. ``broker.data-directory`` is the shared file system.
    """

    queue_manager: Annotated[str, Meta(pattern=r"^\w[\w.%-]*\Z", max_length=48)]
    """The same for all instances (crtmqm): they are one queue manager."""
    permit_standby: bool = False
    """Whether this instance may stand by, and another beside it when it is active (strmqm -x)."""
    data_directory: Annotated[str, Meta(pattern=r"^\w[\w.-]*\Z")] = "qmgrs"
    """Where, within the shared file system, the queue managers' data and locks are (crtmqm -md)."""
    log_directory: Annotated[str, Meta(pattern=r"^\w[\w.-]*\Z")] = "logs"
    """Where, within it, their logs are (crtmqm -ld)."""
    failover_on_shutdown: bool = False
    """What SIGTERM and ``brokerctl stop`` do with the active instance.

    False ends both instances (endmqm -i), true switches over (endmqm -is).
    """

    @property
    def directory_lock_ms(self) -> int | None:
        """The lock-expiration, because the data is always on a shared file system."""
        return self.lock_expiration

    def problem(self, cluster: ClusterSection | None, database: DatabaseStoreSection | None) -> str:
        """Return what is wrong with the section; "" if nothing is."""
        if cluster is None:
            return (
                "ha-policy.multi-instance wants a [cluster] section: that is where clients learn "
                "which instance is active"
            )
        if self.data_directory == self.log_directory:
            return (
                f"ha-policy.multi-instance.data-directory and log-directory are both {self.data_directory!r}:"
                " they must be two directories"
            )
        return super().problem(cluster, database) or lease_problem(
            "ha-policy.multi-instance", self.lock_renew_period, self.lock_expiration
        )
