"""Properties that contradict each other: what is wrong between them, in one line.

Why refused and not settled by a rule: whoever gives two properties expects both to hold. A
certificate without ``ssl-enabled``, or rights under a name that is a role and a login, looks like a
door that is shut. Of limits that lie one above the other only those count that were both given: a
default gives way.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from broker import moved_messages
from broker.sections import BrokerConfig, GroupSection

MAKE_SECRET: Final = "openssl rand -hex 24"  # noqa: S105 - a command
KNOWN_PASSWORD: Final = "CHANGE ME!!"  # noqa: S105 - that of the documents' own configurations

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@A-Z]+\Z")


def contradiction(config: BrokerConfig, given: Mapping[str, Any]) -> str:
    """What is wrong in a configuration whose single properties are right, "" if nothing.

    ``given`` is the table that it was made of.
    """
    return next((problem for judge in _JUDGES for problem in judge(config, given) if problem), "")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ---------------------------------------------------------------------------------------------- who
# may do what


def _names(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Roles and logins that nobody has: a misspelt one would shut somebody out, or in."""
    acceptor = config.acceptor
    for role, logins in acceptor.roles.items():
        for login in logins:
            if login not in acceptor.users:
                yield f"property 'acceptor.roles.{role}': no user {login!r} in acceptor.users"
        if role in acceptor.users:
            yield (
                f"acceptor.roles.{role} has the name of a user: rights that are given to {role!r} "
                "would be given to both"
            )
    if "" in acceptor.users:
        yield "acceptor.users has a user without a name: who sends no login would be that user; name it"
    for login, passcode in acceptor.users.items():
        if not passcode:
            yield (
                f"acceptor.users.{login} has an empty passcode: who sends none would be let in; make "
                f"one with {MAKE_SECRET}"
            )
    for setting in config.security_settings:
        for name in setting.names:
            if name not in acceptor.roles and name not in acceptor.users:
                yield (
                    f"security-settings of {setting.match!r}: {name!r} is neither in acceptor.roles "
                    "nor in acceptor.users"
                )


def _strangers(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """What a stranger could use."""
    acceptor, cluster, admin = config.acceptor, config.cluster, config.admin
    if not config.broker.security_enabled and (acceptor.users or config.security_settings):
        yield (
            "broker.security-enabled is false: then nobody is asked who he is, and acceptor.users and "
            "security-settings have no meaning; leave out the one or the others"
        )
    if acceptor.open_to_all and config.broker.security_enabled and not acceptor.need_client_auth:
        yield (
            f"acceptor.host is {acceptor.listens_on}, and acceptor.users is empty: everybody who "
            "reaches it could send and consume. Name users (docs/how-to/users-and-rights.md),"
            " or leave host out (this machine only), or say broker.security-enabled = false"
        )
    if cluster is not None and cluster.cluster_password in ("", KNOWN_PASSWORD):
        yield (
            "cluster.cluster-password is "
            f"missing{' (the default of the documents is none)' if cluster.cluster_password else ''}:"
            f" make one with {MAKE_SECRET} and give it to every broker of the cluster"
        )
    if admin.secret and admin.secret_file:
        yield "admin.secret and admin.secret-file are two secrets for one port: leave one of them out"
    if cluster is None and not (admin.secret or admin.secret_file or is_loopback(admin.host)):
        yield (
            f"admin.host is {admin.host}: who can connect could stop the broker, so it wants a secret: "
            f"(umask 077; {MAKE_SECRET} > admin.secret),"
            ' then admin.secret-file = "admin.secret"'
        )


def _tls(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Keys and certificates that nothing uses, and what lacks them."""
    acceptor = config.acceptor
    yield acceptor.tls_problem("acceptor")
    if not acceptor.ssl_enabled and acceptor.need_client_auth:
        yield "acceptor.need-client-auth wants acceptor.ssl-enabled: without TLS nobody shows a certificate"
    if acceptor.trust_store_path and not acceptor.need_client_auth:
        yield (
            "acceptor.trust-store-path says whose certificates are taken, but "
            "acceptor.need-client-auth is false: no certificate would be asked for"
        )
    if config.cluster is not None:
        yield config.cluster.tls_problem("cluster")


def _origins(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Sites that no browser would ever name."""
    origins = config.acceptor.websocket_allowed_origins or ()
    for origin in origins:
        if origin not in ("*", "null") and not _ORIGIN.match(origin):
            yield (
                f"acceptor.websocket-allowed-origins: {origin!r} is no origin: a site is "
                '"https://shop.example", in small letters, with its port where it has one, without a path'
            )
    if "*" in origins and len(origins) > 1:
        yield (
            'acceptor.websocket-allowed-origins has "*", which is all sites, and others beside it: '
            "leave out the one or the others"
        )


# ------------------------------------------------------------------------------ where, and how much


def _addresses(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Two of the broker's ports in one place."""
    cluster = config.cluster
    ports = [
        ("acceptor", config.acceptor.listens_on, config.acceptor.port),
        ("admin", config.admin.host, config.admin.port),
    ]
    if cluster is not None:
        ports.append(("cluster", cluster.host, cluster.port))
        if cluster.connector == cluster.stomp_connector:
            yield (
                f"cluster.connector and cluster.stomp-connector are both {cluster.connector}: brokers "
                "and clients have a port each"
            )
    for place, (one, host, port) in enumerate(ports):
        for other, its_host, its_port in ports[:place]:
            if port == its_port != 0 and (host == its_host or {host, its_host} & {"0.0.0.0", "::", ""}):
                yield f"{other}.port and {one}.port are both {port}: each wants a port of its own"


_BOTH_GIVEN: Final = (
    ("broker.transaction-timeout-scan-period", "broker.transaction-timeout"),
    ("acceptor.max-transactions", "broker.max-transactions"),
    ("acceptor.heart-beat-receive", "acceptor.connection-ttl"),
    ("acceptor.min-large-message-size", "acceptor.max-body-bytes"),
)
"""The first may not be above the second."""


def _limits(config: BrokerConfig, given: Mapping[str, Any]) -> Iterator[str]:
    """Limits that are never met, since another is met before."""
    broker, share = config.broker, config.broker.max_transactions_percent
    mine, room = config.acceptor.max_transaction_bytes, broker.global_max_size * share // 100
    if (
        _value(given, "acceptor.max-transaction-bytes")
        and _value(given, "broker.global-max-size")
        and mine > room
    ):
        yield (
            f"acceptor.max-transaction-bytes is {mine}, and all transactions together may have {room}"
            f" ({share} percent of broker.global-max-size): the first may not be above the second"
        )
    for name in ("broker.max-messages", "broker.max-connections"):
        if _value(given, name) == 0:
            yield f"{name} is 0: nobody could use the broker; -1 is no limit"
    for entry in config.address_settings:
        for name, most in (("max-messages", entry.max_messages), ("max-producers", entry.max_producers)):
            if most == 0:
                yield f"address-settings of {entry.match!r}: {name} is 0: nobody could send; -1 is no limit"
    for lower, upper in _BOTH_GIVEN:
        one, other = _value(given, lower), _value(given, upper)
        if one is not None and other is not None and one > other > 0:
            yield f"{lower} is {one}, and {upper} is {other}: the first may not be above the second"


def _tables(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Tables of one list that have the same name."""
    for section, key, names in (
        ("address-settings", "match", [entry.match for entry in config.address_settings]),
        ("security-settings", "match", [entry.match for entry in config.security_settings]),
        ("broadcast-groups", "name", [group.name for group in config.broadcast_groups]),
        ("discovery-groups", "name", [group.name for group in config.discovery_groups]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{section} has {count} tables with {key} = {name!r}: only one of them could hold"


def _queues(config: BrokerConfig, given: Mapping[str, Any]) -> Iterator[str]:
    """Settings of queues that cannot both hold."""
    for entry, table in zip(config.address_settings, given.get("address-settings", ()), strict=True):
        where = f"address-settings of {entry.match!r}"
        if "page-size-bytes" in table and 0 <= table.get("max-size-bytes", -1) < 2 * entry.page_size_bytes:
            yield (
                f"{where}: page-size-bytes is {entry.page_size_bytes}, and max-size-bytes is "
                f"{entry.max_size_bytes}: the first may not be above half of the second"
            )
        balancing = None if config.cluster is None else config.cluster.message_load_balancing
        if entry.redistribution_delay >= 0 and balancing not in (None, "ON_DEMAND"):
            yield (
                f"{where}: redistribution-delay is {entry.redistribution_delay}, and "
                f"cluster.message-load-balancing is {balancing}: redistribution is for ON_DEMAND"
            )
        removes = entry.limit_behavior.startswith("REMOVE")
        if removes and table.get("address-full-policy") == "PAGE":
            yield (
                f"{where}: limit-behavior is {entry.limit_behavior}, and address-full-policy is PAGE: what "
                "is on the disk could not be removed; use BLOCK"
            )
        if "limit-behavior" in table and "max-messages" not in table and config.broker.max_messages < 0:
            yield (
                f"{where}: limit-behavior is given, and neither max-messages nor broker.max-messages: "
                "nothing would be limited"
            )
        if entry.auto_delete_queues_delay and not entry.auto_delete_queues:
            yield (
                f"{where}: auto-delete-queues-delay is given, and auto-delete-queues is false: no "
                "queue would be deleted"
            )


CONNECTOR_MAX: Final = 256
"""The most characters of a connector that is broadcast: a datagram has little room."""


def _discovery(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Groups that no datagram can reach, and addresses of brokers from two sources."""
    cluster = config.cluster
    for section, groups in (
        ("broadcast-groups", config.broadcast_groups),
        ("discovery-groups", config.discovery_groups),
    ):
        if groups and cluster is None:
            yield f"{section} is given, and [cluster] is not: only brokers of a cluster look for each other"
        for group in groups:
            where = f"{section} of {group.name!r}"
            yield _kind_problem(group, where)
            if group.group_address and not _is_class_d(group.group_address):
                yield (
                    f"{where}: group-address is {group.group_address!r}: it must be a multicast address, "
                    "224.0.0.1 to 239.255.255.255"
                )
            if group.local_bind_address and not _is_ipv4(group.local_bind_address):
                yield (
                    f"{where}: local-bind-address is {group.local_bind_address!r}: it must be the IPv4 "
                    "address of a network interface"
                )
    if cluster is None:
        return
    if config.broadcast_groups and len(cluster.connector) > CONNECTOR_MAX:
        yield (
            f"cluster.connector has {len(cluster.connector)} characters: broadcast-groups can broadcast "
            f"{CONNECTOR_MAX} at the most"
        )
    chosen, names = cluster.discovery_group_ref, [group.name for group in config.discovery_groups]
    if chosen and chosen not in names:
        yield f"cluster.discovery-group-ref is {chosen!r}: discovery-groups has no group of that name"
    if chosen and cluster.static_connectors:
        yield (
            "cluster.discovery-group-ref and cluster.static-connectors are both given: a cluster connection "
            "finds other brokers in the one way or the other; leave one of them out"
        )
    for name in names:
        if name != chosen:
            yield (
                f"discovery-groups of {name!r}: cluster.discovery-group-ref is {chosen!r}: nothing would "
                "listen to this group"
            )


def _topology(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Clusters that are not symmetric, and could not work."""
    cluster, policy = config.cluster, config.ha_policy
    if cluster is None or not cluster.allow_direct_connections_only:
        return
    if not cluster.static_connectors:
        yield (
            "cluster.allow-direct-connections-only is true, and cluster.static-connectors is empty: this "
            "broker would be linked with no other; name its neighbours"
        )
    if policy.replication is not None:
        yield (
            "cluster.allow-direct-connections-only is true, and ha-policy.replication needs votes: a vote "
            "crosses one link only, so brokers of a chain could not vote; use ha-policy.shared-store"
        )
    if policy.ha_database is not None:
        yield (
            "cluster.allow-direct-connections-only is true, and brokers of ha-policy.ha-database find and "
            "watch each other by their database, all of them; leave it out"
        )


def _kind_problem(group: GroupSection, where: str) -> str:
    """Return why a group is neither one of multicast nor one of files; "" if it is one of them."""
    multicast, files = (group.group_address, group.group_port), (group.jgroups_file, group.jgroups_channel)
    if any(multicast) and any(files):
        return (
            f"{where}: it has group-address or group-port, and jgroups-file or jgroups-channel: a group is "
            "one of multicast or one of files; leave out the one or the other"
        )
    if not all(multicast) and not all(files):
        return f"{where}: it needs group-address and group-port, or jgroups-file and jgroups-channel"
    return ""


def _is_ipv4(address: str) -> bool:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return True


def _is_class_d(address: str) -> bool:
    """Return whether it is a multicast address that may be used: 224.0.0.0 is reserved."""
    return _is_ipv4(address) and ipaddress.IPv4Address(address).is_multicast and address != "224.0.0.0"


def _conventional(config: BrokerConfig, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what contradicts a conventional cluster, in which messages stay at their homes."""
    balancing = given.get("cluster", {}).get("message-load-balancing", "OFF")
    if config.ha_policy.conventional is not None and balancing != "OFF":
        yield (
            f"cluster.message-load-balancing is {balancing}, and in a conventional cluster no message moves "
            "to another broker: leave it out, or use another policy"
        )


def _moved_messages(config: BrokerConfig, _: Mapping[str, Any]) -> Iterator[str]:
    """Dead letters and expired messages that others may read than their origin."""
    yield moved_messages.problem(config)


_JUDGES: Final[tuple[Callable[[BrokerConfig, Mapping[str, Any]], Iterator[str]], ...]] = (
    _names,
    _tls,
    _strangers,
    _origins,
    _addresses,
    _limits,
    _tables,
    _queues,
    _discovery,
    _topology,
    _conventional,
    _moved_messages,
)


def _value(given: Mapping[str, Any], name: str) -> int | None:
    section, _, key = name.partition(".")
    value: int | None = given.get(section, {}).get(key)
    return value
