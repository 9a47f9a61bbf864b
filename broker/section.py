"""A table of ``broker.toml``, what several have in common, and the one that policies look at."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
Milliseconds = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Unlimited = Annotated[int, Meta(ge=-1)]
"""-1 means without limit."""

HOPS_MAX: Final = 64
"""The highest ``max-hops``."""


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
        """Return what is wrong with the TLS of the port that ``name`` names; "" if nothing is."""
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


class ClusterSection(TlsSection, frozen=True, kw_only=True):
    """The cluster connection (AMQ 17.2, Appendix C). Absent: the broker stands alone."""

    name: str = "my-cluster"
    """The same for all brokers of the cluster: brokers with another name are refused."""
    host: str = "0.0.0.0"
    """The address at which other brokers are accepted; the default is every address."""
    port: Port = 61616
    """The port at which other brokers are accepted."""
    connector: Annotated[str, Meta(pattern=r".+:\d+$")]
    """Announced to other brokers: "a1:61616"."""
    stomp_connector: Annotated[str, Meta(pattern=r".+:\d+$")]
    """Announced to clients: "a1:61613"."""
    static_connectors: tuple[str, ...] = ()
    """Brokers of whom to learn the others (static discovery, 17.2.1)."""
    allow_direct_connections_only: bool = False
    """Link with the brokers of ``static-connectors`` only, as in a chain (17.1.4).

    Others are neither dialled nor accepted. So both brokers of a link name each other, by the
    ``connector`` that the other announces.
    """
    max_hops: Annotated[int, Meta(ge=1, le=HOPS_MAX)] = 1
    """The most links that a message crosses on its way to another broker.

    Brokers in between pass it on. The same for all brokers of the cluster.
    """
    discovery_group_ref: str = ""
    """The name of the discovery group in which other brokers are found (dynamic discovery, 17.2.2).

    Not together with ``static-connectors``.
    """
    cluster_user: str = "ACTIVEMQ.CLUSTER.ADMIN.USER"
    """The same for all brokers of the cluster. Never sent: each side proves that it knows it."""
    cluster_password: str = ""
    """Required, the same for all brokers of the cluster: whoever has it may copy every message.

    Never sent: each side proves that it knows it.
    """
    message_load_balancing: Literal["OFF", "STRICT", "ON_DEMAND"] = "ON_DEMAND"
    """Which broker gets a message (17.1.1).

    ``ON_DEMAND``: each broker in turn whose consumers want it. ``STRICT``: each broker in turn,
    with or without consumers. ``OFF``: the broker to which it was sent.
    """
    check_period: Positive = 30_000
    """The longest a cluster connection goes unchecked for life.

    A short connection-ttl is checked more often by itself.
    """
    connection_ttl: Positive = 60_000
    """Silence after which a cluster connection is dead."""
    call_timeout: Positive = 30_000
    """How long a request to another broker waits for its answer."""
    retry_interval: Positive = 500
    """The time before the second attempt to connect to another broker."""
    retry_interval_multiplier: Annotated[float, Meta(ge=1.0)] = 1.0
    """By how much each further wait is longer than the one before."""
    max_retry_interval: Positive = 2000
    """The longest wait between two attempts."""
    initial_connect_attempts: Unlimited = -1
    """Attempts to connect to a broker that was never reached; -1: without end."""
    reconnect_attempts: Unlimited = -1
    """Attempts to connect again to a broker whose link has ended; -1: without end."""
