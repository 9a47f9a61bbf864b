"""The sections of ``broker.toml`` below [ha-policy].

How a broker's data survives its end (AMQ 17.3).

Why apart from the rest: each policy has a section of its own, with a master and a slave, in the
documents' names; the rest of the configuration is the same under all of them. Times are
milliseconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Milliseconds = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Unlimited = Annotated[int, Meta(ge=-1)]
"""-1 means without limit."""


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A table of broker.toml: unknown properties are errors."""


class TlsSection(Section, frozen=True, kw_only=True):
    """TLS of one port, in the names of AMQ (sslEnabled, keyStorePath, trustStorePath).

    Stores are PEM files, relative to the configuration file.
    """

    ssl_enabled: bool = False
    """TLS 1.2 or newer, and nothing else."""
    key_store_path: str = ""
    """Private key (without password; only its owner may read the file) and certificate chain."""
    trust_store_path: str = ""
    """The authorities whose certificates are taken.

    Whoever has a certificate of one of them may connect, so no public one belongs here.
    """

    @property
    def wants_certificates(self) -> bool:
        """Must who connects show one?"""
        return True

    def tls_problem(self, name: str) -> str:
        """What is wrong, "" if nothing."""
        if not self.ssl_enabled:
            unused = next(
                (path for path in ("key_store_path", "trust_store_path") if getattr(self, path)), ""
            )
            return unused and (
                f"{name}.{unused.replace('_', '-')} is given, and {name}.ssl-enabled is false: there "
                "would be no TLS"
            )
        if not self.key_store_path:
            return (
                f"{name}.ssl-enabled wants {name}.key-store-path: a PEM file with the private key "
                "and the certificate chain"
            )
        if self.wants_certificates and not self.trust_store_path:
            return (
                f"{name}.ssl-enabled wants {name}.trust-store-path: a PEM file with the authorities "
                "whose certificates are taken"
            )
        return ""


class ReplicationRole(Section, frozen=True, kw_only=True):
    """What master and slave have in common (AMQ 17.3.3, Appendix F)."""

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


class ReplicationSection(Section, frozen=True, kw_only=True):
    """Exactly one of the two."""

    master: MasterSection | None = None
    slave: SlaveSection | None = None


class DatabaseStoreSection(Section, frozen=True, kw_only=True):
    """The database in which messages are kept (AMQ 17.3.2.2, database-store).

    The same for all brokers that share it.
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
    """Which of the shared stores in this database, under ha-policy.shared-store.

    The same for a live and its backups, another for every other group. It stands for the names of
    tables (message-table-name, node-manager-store-table-name and the like).
    """

    def __repr__(self) -> str:
        """Without the password: a configuration may end up in a log."""
        return f"DatabaseStoreSection(url={self.url!r}, user={self.user!r}, password=***)"

    def problem(self) -> str:
        """What is wrong with it, "" if nothing. Never names the password."""
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
        return _too_short("database-store", self.lock_renew_period, self.lock_expiration)


class SharedStoreRole(Section, frozen=True, kw_only=True):
    """What master and slave on a shared store have in common (AMQ 17.3.2).

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


class SharedStoreSection(Section, frozen=True, kw_only=True):
    """Where the shared store is, and exactly one of the two roles."""

    store: Literal["directory", "database"] = "directory"
    """A directory of a shared file system (broker.data-directory), or a database
    ([database-store], AMQ 17.3.2.2).
    """
    master: SharedStoreMaster | None = None
    """The section ha-policy.shared-store.master."""
    slave: SharedStoreSlave | None = None
    """The section ha-policy.shared-store.slave."""

    def problem(self, database: DatabaseStoreSection | None) -> str:
        """What is wrong between the role and its store, "" if nothing."""
        name, role = ("master", self.master) if self.master is not None else ("slave", self.slave)
        assert role is not None, "a shared store without a role"
        own = f"ha-policy.shared-store.{name}"
        if self.store == "directory":
            return _too_short(own, role.lock_renew_period, role.lock_expiration)
        assert database is not None, "a store in a database without one"
        for given, default in (
            ("lock_renew_period", SharedStoreRole().lock_renew_period),
            ("lock_expiration", SharedStoreRole().lock_expiration),
        ):
            if getattr(role, given) != default:
                shown = given.replace("_", "-")
                return f"{own}.{shown} is for a directory: on a database it is database-store.{shown}"
        if database.network_timeout >= database.lock_expiration:
            return (
                f"database-store.network-timeout is {database.network_timeout}: it must be shorter than "
                "lock-expiration"
                f" ({database.lock_expiration}), or one connection that hangs costs the live lock"
            )
        if role.lock_poll_period > database.lock_expiration // 2:
            return (
                f"{own}.lock-poll-period is {role.lock_poll_period}: it must be at most half of "
                "database-store.lock-expiration"
                f" ({database.lock_expiration}), since whoever waits renews its place whenever it looks"
            )
        return ""


def _too_short(section: str, renew_period: int, expiration: int) -> str:
    """What is wrong between how often a lease is renewed and how long it lasts."""
    if expiration >= 4 * renew_period:
        return ""
    return (
        f"{section}.lock-expiration is {expiration}: it must be at least four times"
        f" lock-renew-period ({renew_period}), since half of it is all that a late renewal may take"
    )


class HaDatabaseSection(Section, frozen=True, kw_only=True):
    """A broker of a high-availability cluster (Sun 4.1, chapter 8).

    All of them live, all in one database, each taking over from any other.

    Shorter times notice a failure sooner and suspect more brokers that have not failed.
    """

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
    failover_on_shutdown: bool = True
    """Whether others take over when this broker is stopped normally (``shutdown -nofailover`` is
    false).
    """


class MultiInstanceSection(SharedStoreRole, frozen=True, kw_only=True):
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

    def problem(self, *, clustered: bool) -> str:
        """What is wrong with it, "" if nothing."""
        if not clustered:
            return (
                "ha-policy.multi-instance wants a [cluster] section: that is where clients learn "
                "which instance is active"
            )
        if self.data_directory == self.log_directory:
            return (
                f"ha-policy.multi-instance.data-directory and log-directory are both {self.data_directory!r}:"
                " they must be two directories"
            )
        return _too_short("ha-policy.multi-instance", self.lock_renew_period, self.lock_expiration)


class HaPolicySection(Section, frozen=True, kw_only=True):
    """How the broker's data survives its end. Nothing here: a standalone broker."""

    replication: ReplicationSection | None = None
    shared_store: SharedStoreSection | None = None
    ha_database: HaDatabaseSection | None = None
    multi_instance: MultiInstanceSection | None = None

    def problem(self, *, clustered: bool) -> str:
        """What is wrong, "" if nothing: one policy, one role, a cluster to find the others in."""
        chosen: dict[str, Any] = {
            field.encode_name: getattr(self, field.name)
            for field in msgspec.structs.fields(type(self))
            if getattr(self, field.name) is not None
        }
        if len(chosen) > 1:
            return f"ha-policy has {' and '.join(chosen)}: a broker has one policy"
        for name, section in chosen.items():
            if isinstance(section, MultiInstanceSection):
                return section.problem(clustered=clustered)
            if name == "ha-database":
                if not clustered:
                    return (
                        "ha-policy.ha-database wants a [cluster] section: that is where the others are heard"
                    )
                continue
            if (section.master is None) == (section.slave is None):
                return f"ha-policy.{name} wants exactly one of master and slave, as [ha-policy.{name}.master]"
            if not clustered:
                return f"ha-policy.{name} wants a [cluster] section: that is where the partner is found"
        return ""

    def store_problem(self, database: DatabaseStoreSection | None, balancing: str) -> str:
        """What is wrong between policy, store and message-load-balancing, "" if nothing."""
        if self.shared_store is not None:
            if (self.shared_store.store == "database") != (database is not None):
                return (
                    'ha-policy.shared-store.store = "database" and a [database-store] section belong '
                    "together: one of them is missing"
                )
            problem = "" if database is None else database.problem()
            return problem or self.shared_store.problem(database)
        if (self.ha_database is None) != (database is None):
            return (
                "ha-policy.ha-database and a [database-store] section belong together: one of them is missing"
            )
        if database is None:
            return ""
        if balancing != "OFF":
            return (
                "cluster.message-load-balancing must be OFF under ha-policy.ha-database: a message that "
                "was on its way to another"
                " broker would have no owner to take it over from"
            )
        return database.problem()
