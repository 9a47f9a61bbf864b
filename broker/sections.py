"""The sections of ``broker.toml``: their properties, with defaults and ranges.

Those below [ha-policy] are in ``ha_policy``; what two properties may not say together, in
``contradictions``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from broker.ha_policy import (
    DatabaseStoreSection,
    HaPolicySection,
    MasterSection,
    SharedStoreMaster,
    SharedStoreSlave,
    SlaveSection,
)
from broker.section import ClusterSection, Milliseconds, Port, Positive, Section, TlsSection, Unlimited


class ConfigurationError(Exception):
    """The configuration is wrong; the text is one line with property, file and remedy.

    The file must be mended.
    """


def host_port(name: str, address: str, path: str) -> tuple[str, int]:
    """The address that a property is, "host:port". Raises ConfigurationError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(
            f"{path or 'broker.toml'}: property {name!r}: expected host:port, got {address!r}"
        )
    return host, int(port)


class BrokerSection(Section, frozen=True, kw_only=True):
    """Who the broker is and where its data lives.

    A relative directory is relative to the configuration file.
    """

    name: Annotated[str, Meta(pattern=r"^[\w.-]+\Z", max_length=64)]
    data_directory: str = "data"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    security_enabled: bool = True
    """False: ``acceptor.host`` may be an address that others reach although there are no users,
    and everybody may do everything (AMQ security-enabled).
    """
    global_max_size: Positive = 256 * 1024 * 1024
    """Bytes of messages in memory, all addresses together (Artemis: global-max-size).

    Above it queues that page keep only a share of it, and producers wait until the rest is on the
    disk.
    """
    max_queues: Positive = 50_000
    """Queues and subscriptions, each of which takes about 3 KB of memory if it is empty.

    A client that would make one more is refused. More that are in the store stay, and the broker
    itself may make more.
    """
    max_messages: Unlimited = -1
    """Messages in all queues and subscriptions together; -1: no limit.

    Who sends more is treated as ``limit-behavior`` of the address settings says.
    """
    max_connections: Unlimited = -1
    """Clients that may be logged in; one more is refused. -1: no limit."""
    max_duplicate_ids_size: Positive = 64 * 1024 * 1024
    """Bytes of memory for the ids (``_AMQ_DUPL_ID``) that all destinations together remember, about
    150,000 ids.

    Beyond it the destination that got no id for the longest time forgets its oldest. See
    ``id-cache-size`` of the address settings for one destination.
    """
    max_disk_usage: Annotated[int, Meta(ge=-1, le=100)] = 90
    """Percent of the disk with the data directory beyond which producers wait, and get no receipts.

    Consumers go on. -1: never, and a full disk ends the broker.
    """
    disk_scan_period: Positive = 5000
    """How often that is looked at."""
    longest_turn: Unlimited = 500
    """A turn of the event loop that takes longer is logged, with what ran; -1: never.

    Meanwhile nobody is served and no heart-beat leaves. At most five lines in ten seconds, with
    log-level DEBUG all.
    """
    transaction_timeout: Positive = 300_000
    """A transaction that has been open for so long is undone.

    What it would send is dropped, what it acknowledged goes back. The next frame that names it gets
    an ERROR.
    """
    transaction_timeout_scan_period: Positive = 1000
    """How often that is looked at."""
    message_expiry_scan_period: Unlimited = 30_000
    """How often messages that have expired are looked for where no consumer would get them.

    -1: never; they are then found when a consumer would.
    """
    max_transactions: Positive = 10_000
    """Transactions that all clients together may have open."""
    max_transactions_percent: Annotated[int, Meta(ge=1, le=100)] = 50
    """The share of global-max-size that open transactions may hold.

    The rest is for those who send without one.
    """


class AcceptorSection(TlsSection, frozen=True, kw_only=True):
    """Where STOMP clients connect, who may, and what they may send.

    Port 0 lets the system choose.
    """

    host: str = ""
    """Empty: every interface where there are users.

    Only this machine's (127.0.0.1) where there are none, since then everybody may do everything.
    Another without users wants ``need-client-auth``, or ``broker.security-enabled = false``.
    """
    port: Port = 61613
    users: dict[str, str] = msgspec.field(default_factory=dict)
    """login -> passcode. None at all: everybody who can connect may come in."""
    roles: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """role -> logins; what a role may do is said by [[security-settings]]."""
    heart_beat_send: Milliseconds = 100
    """The fastest the broker sends heart-beats.

    0: never (first number of its heart-beat header).
    """
    heart_beat_receive: Milliseconds = 100
    """The fastest the broker wants to receive them; 0: not at all (the second number)."""
    connection_ttl: Annotated[int, Meta(ge=-1)] | None = None
    """Silence after which a connection is closed and its messages go to others; -1: never.

    Without this property: twice the agreed heart-beat (at least 1000), and where no heart-beats
    were agreed ``keep-alive`` alone. Must exceed the time-out after which clients themselves close,
    or two clients believe to hold one message.
    """
    keep_alive: Milliseconds = 60_000
    """How long the system of a client may be unreachable before its connection is closed and its
    messages go to others (TCP keepalive). A client that is there and says nothing stays; in
    Artemis it is cut after a minute (connection-ttl). 0: as this system is set, on Linux after
    two hours.
    """
    need_client_auth: bool = False
    """With ssl-enabled: clients must show a certificate of trust-store-path."""
    connect_timeout: Positive = 10_000
    """How long a connection may take to log in."""
    max_connecting: Positive = 1000
    """Connections that have not logged in yet; one more, and the oldest of them is cut."""
    max_headers: Positive = 128
    max_header_bytes: Positive = 64 * 1024
    """Command and header lines of one frame together."""
    max_body_bytes: Positive = 16 * 1024 * 1024
    min_large_message_size: Annotated[int, Meta(ge=-1)] = 100 * 1024
    """Bodies of so many bytes are streamed to a file in ``large-messages``, or to rows of the
    database, and from there to consumers; -1: none.
    """
    max_transaction_bytes: Positive = 64 * 1024 * 1024
    """Sends buffered by the open transactions of one connection."""
    max_copies_size: Positive = 16 * 1024 * 1024
    """Bytes of all copies that one message, or all messages of one transaction, make for the
    subscriptions of topics. Bodies that subscriptions share do not count.
    """
    max_transactions: Positive = 1000
    """Transactions that one connection may have open."""
    max_subscriptions: Positive = 1000
    """Of one connection."""
    max_selector_characters: Positive = 4096
    """Of the selector of one subscription."""
    max_selector_terms: Positive = 400
    """Names, constants, comparisons and operations of one selector: what a message costs for each
    subscription with another one. A list of IN is one term.
    """
    max_durable_subscriptions: Positive = 1000
    """Of one client (``client-id``), to all topics together.

    One more is refused; more that are in the store stay.
    """
    websocket_allowed_origins: tuple[str, ...] | None = None
    """Web sites whose pages may connect by WebSocket (``ws://HOST:PORT/stomp``), as
    "https://shop.example"; "*": all. Without this property: all where ``users`` must log in, and
    none where everybody may connect: any page that somebody on this machine looks at could.
    """

    @property
    def listens_on(self) -> str:
        """``host``, or what its default means here."""
        return self.host or ("0.0.0.0" if self.users else "127.0.0.1")

    @property
    def open_to_all(self) -> bool:
        """May anybody on the network come in?"""
        host = self.listens_on
        return not self.users and host not in ("localhost", "::1") and not host.startswith("127.")

    @property
    def wants_certificates(self) -> bool:
        """``need-client-auth``."""
        return self.need_client_auth

    @property
    def origins(self) -> tuple[str, ...]:
        """``websocket-allowed-origins``, or what holds without it."""
        if self.websocket_allowed_origins is not None:
            return self.websocket_allowed_origins
        return ("*",) if self.users else ()

    @property
    def large_from(self) -> int | None:
        """``min-large-message-size`` as a limit of the codec.

        No body of fewer than one byte is large.
        """
        return None if self.min_large_message_size < 0 else max(1, self.min_large_message_size)


class AdminSection(Section, frozen=True, kw_only=True):
    """Where ``brokerctl`` and the harness ask (JSON lines).

    Who asks proves a secret: that of ``secret-file``, else ``secret``, else
    ``cluster.cluster-password``. Without any the port is open, and must be on a loopback address.
    """

    host: str = "127.0.0.1"
    port: Port = 61612
    secret: str = ""
    secret_file: str = ""
    """A file that only its owner may read.

    What is in it, without white space around, is the secret. Relative to the configuration file.
    """


class GroupSection(Section, frozen=True, kw_only=True):
    """A multicast group, or a directory that brokers share and in which each has a file."""

    name: Annotated[str, Meta(min_length=1)]
    local_bind_address: str = ""
    """The IPv4 address of the network interface to use. Empty: the system chooses one."""
    group_address: str = ""
    """An IPv4 address of class D, 224.0.0.1 to 239.255.255.255; the same for all brokers."""
    group_port: Port = 0
    """The same for all brokers."""
    jgroups_file: str = ""
    """In place of ``group-address``: a directory that all brokers can read and write.

    In AMQ it is a file that describes such a directory (FILE_PING). Relative to the configuration
    file.
    """
    jgroups_channel: Annotated[str, Meta(pattern=r"^([\w-][\w.-]*)?\Z")] = ""
    """The subdirectory of ``jgroups-file`` for the brokers of this group."""

    @property
    def place(self) -> tuple[str, int, str, str]:
        """The values by which brokers meet in a group."""
        return self.group_address, self.group_port, self.jgroups_file, self.jgroups_channel


class BroadcastGroup(GroupSection, frozen=True, kw_only=True):
    """A group to which a live broker broadcasts its ``cluster.connector`` (AMQ 17.2.2, 17.2.3)."""

    local_bind_port: Annotated[int, Meta(ge=-1, le=65535)] = -1
    """The port from which datagrams are sent; -1: the system chooses one."""
    broadcast_period: Positive = 2000
    """The time between two broadcasts."""


class DiscoveryGroup(GroupSection, frozen=True, kw_only=True):
    """A group in which a broker hears others broadcast (AMQ 17.2.2, 17.2.3)."""

    refresh_timeout: Positive = 10_000
    """The time without a broadcast after which a broker's entry is removed.

    It should be much longer than the ``broadcast-period`` of the others. A link with a broker does
    not end with its entry.
    """


class JournalSection(Section, frozen=True, kw_only=True):
    """The journal: sizes of its files, and when it is compacted.

    Artemis: journal-file-size, journal-compact-min-files, journal-compact-percentage.
    """

    segment_size: Annotated[int, Meta(ge=4096)] = 10 * 1024 * 1024
    compact_min_files: Annotated[int, Meta(ge=0)] = 10
    """Segments before compaction is considered; 0: never."""
    compact_percentage: Annotated[int, Meta(ge=0, le=100)] = 30
    """Compaction begins when less than this share of the bytes is still needed."""


LimitBehavior = Literal["FLOW_CONTROL", "REMOVE_OLDEST", "REJECT_NEWEST", "REMOVE_LOW_PRIORITY"]
LIMIT_BEHAVIORS: Final[tuple[str, ...]] = get_args(LimitBehavior)


class AddressSettings(Section, frozen=True, kw_only=True):
    """What holds for the queues whose names match (AMQ address-setting).

    ``*`` stands for one word between dots, ``#`` for any number.
    """

    match: Annotated[str, Meta(min_length=1)] = "#"
    max_delivery_attempts: Annotated[int, Meta(ge=-1)] = 10
    """Refusals (NACK, or an ACK in an aborted transaction) after which a message is a dead letter.

    -1: never.
    """
    dead_letter_address: str = "DLQ"
    """Empty: messages that cannot be delivered are dropped."""
    expiry_address: str = "ExpiryQueue"
    """Where messages go that have expired. Empty: they are dropped."""
    expiry_delay: Unlimited = -1
    """When a message expires whose sender does not say: so long after it came. -1: never."""
    min_expiry_delay: Unlimited = -1
    """Who wants a message to expire sooner gets this; not looked at with ``expiry-delay``."""
    max_expiry_delay: Unlimited = -1
    """The same for later, or never; where only ``min-expiry-delay`` is set, never becomes that."""
    id_cache_size: Annotated[int, Meta(ge=0)] = 20_000
    """How many ids (``_AMQ_DUPL_ID``) of what was sent to it are remembered, as far as
    ``broker.max-duplicate-ids-size`` allows; 0: none.
    """
    redelivery_delay: Milliseconds = 0
    max_size_bytes: Unlimited = 32 * 1024 * 1024
    """Bytes of messages of one queue in memory; above it ``address-full-policy`` holds.

    -1: only broker.global-max-size counts.
    """
    address_full_policy: Literal["PAGE", "BLOCK"] = "PAGE"
    """PAGE: what comes goes to the disk, and back when its turn comes. BLOCK: producers wait."""
    max_messages: Unlimited = -1
    """Messages of one queue, or of one subscription of a topic, wherever they are; above it
    ``limit-behavior`` holds. -1: only ``broker.max-messages`` counts.
    """
    limit_behavior: LimitBehavior = "FLOW_CONTROL"
    """FLOW_CONTROL: producers wait. REJECT_NEWEST: what they send is refused with an ERROR.
    REMOVE_OLDEST: the oldest message that waits is removed for the new one. REMOVE_LOW_PRIORITY:
    the oldest of the lowest priority. Queues that remove do not page: at ``max-size-bytes``
    producers wait.
    """
    max_producers: Unlimited = -1
    """Connections that have sent to one queue or topic, and are open. What another one sends is
    refused with an ERROR. -1: no limit.
    """
    page_size_bytes: Annotated[int, Meta(ge=1024)] = 1024 * 1024
    """Bytes of messages that one page holds, and that are read at a time.

    At most half of max-size-bytes.
    """
    auto_create_queues: bool = True
    """Whether a send or a subscription makes a queue that is not there.

    Where not, it is refused, and ``brokerctl create`` makes it.
    """
    auto_delete_queues: bool = False
    """Whether a queue is deleted when it is empty and its last consumer has gone; in Artemis it is.

    What is sent later makes it anew.
    """
    auto_delete_queues_delay: Milliseconds = 0
    """How long it must have been so."""
    max_subscriptions: Positive = 1000
    """Subscriptions of one topic, durable or not. One more is refused; more that are in the store
    stay.
    """
    redistribution_delay: Unlimited = -1
    """How long no consumer must have been at a queue before its messages move to brokers where some
    are (AMQ 17.4). Messages of groups stay. -1: none moves.
    """
    default_consumer_window: Positive = 1000
    """Prefetch: messages a consumer may hold unacknowledged, where its subscription says
    nothing.
    """

    @property
    def pages(self) -> bool:
        """True for a queue that pages: one that removes could not remove what is paged."""
        return self.address_full_policy == "PAGE" and not self.limit_behavior.startswith("REMOVE")

    @property
    def page_bytes(self) -> int:
        """The size of a page that fits twice into what the queue may have."""
        return (
            self.page_size_bytes
            if self.max_size_bytes < 0
            else max(1, min(self.page_size_bytes, self.max_size_bytes // 2))
        )


class SecuritySettings(Section, frozen=True, kw_only=True):
    """Who may do what with the queues whose names match (AMQ security-setting): roles or logins.

    Of several matches the most specific holds, alone.

    A right that it does not give is nobody's. Queues that no match is for are everybody's.
    """

    match: Annotated[str, Meta(min_length=1)] = "#"
    send: tuple[str, ...] = ()
    consume: tuple[str, ...] = ()
    browse: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All roles and logins that it speaks of."""
        return (*self.send, *self.consume, *self.browse)


class BrokerConfig(Section, frozen=True, kw_only=True):
    """A whole ``broker.toml``, validated. ``path`` is where it came from, for messages."""

    broker: BrokerSection
    acceptor: AcceptorSection = AcceptorSection()
    admin: AdminSection = AdminSection()
    cluster: ClusterSection | None = None
    broadcast_groups: tuple[BroadcastGroup, ...] = ()
    discovery_groups: tuple[DiscoveryGroup, ...] = ()
    hosts: dict[str, str] = msgspec.field(default_factory=dict)
    """Announced address -> where this node reaches it; what is not here stands for itself."""
    ha_policy: HaPolicySection = HaPolicySection()
    database_store: DatabaseStoreSection | None = None
    journal: JournalSection = JournalSection()
    address_settings: tuple[AddressSettings, ...] = ()
    security_settings: tuple[SecuritySettings, ...] = ()
    path: str = ""

    @property
    def data_path(self) -> Path:
        """The data directory, absolute."""
        return (
            (Path(self.path).resolve().parent / self.broker.data_directory)
            if self.path
            else Path(self.broker.data_directory)
        )

    @property
    def discovery_group(self) -> DiscoveryGroup | None:
        """The group of ``cluster.discovery-group-ref``; None without one."""
        name = "" if self.cluster is None else self.cluster.discovery_group_ref
        return next((group for group in self.discovery_groups if group.name == name), None)

    def directory_of(self, group: GroupSection) -> Path:
        """The directory in which the brokers of a group have files."""
        directory = Path(group.jgroups_file) / group.jgroups_channel
        return Path(self.path).resolve().parent / directory if self.path else directory

    @property
    def replication(self) -> MasterSection | SlaveSection | None:
        """The configured role of a replicated broker, None for one that stands alone."""
        section = self.ha_policy.replication
        return None if section is None else section.master or section.slave

    @property
    def shared_store(self) -> SharedStoreMaster | SharedStoreSlave | None:
        """The configured role of a broker on a shared store, None for any other.

        Its times are those of the store in use.
        """
        section = self.ha_policy.shared_store
        role = None if section is None else section.master or section.slave
        database = self.database_store
        if section is None or role is None or section.store == "directory" or database is None:
            return role
        return msgspec.structs.replace(
            role, lock_renew_period=database.lock_renew_period, lock_expiration=database.lock_expiration
        )

    def resolved_hosts(self) -> dict[str, tuple[str, int]]:
        """The hosts table as ``Seams`` wants it."""
        return {name: host_port(f"hosts.{name}", address, self.path) for name, address in self.hosts.items()}
