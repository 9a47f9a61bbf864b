"""The properties of AMQ's documents that a test may set, and their names in Artemis.

Names are those of the documents, as with every system: ``ha-policy.replication.slave.vote-retries``
(or without the role, for whichever role the node has), ``cluster.connection-ttl``,
``address-settings.redistribution-delay``, ``acceptor.connection-ttl``, ``broker.max-disk-usage``.
Artemis calls a master primary, a slave backup and a live active.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness.interface import NodePlan, UsageError
from harness.interface.errors import near
from harness.systems.properties import checked

MASTER: Final = "master"
SLAVE: Final = "slave"
STANDALONE: Final = "standalone"
Kind = type | tuple[str, ...]
"""The type of a property, or the words that it may be."""

SIDES: Final = {MASTER: "primary", SLAVE: "backup"}
REPLICATION: Final = "replication"
LOCK_MANAGER: Final = "lock-manager"
SHARED_STORE: Final = "shared-store"
SECTIONS: Final = {LOCK_MANAGER: REPLICATION}
"""The section of ``ha-policy`` and of names for a policy that is called otherwise there."""

MANAGER: Final = "manager."
"""The prefix of the names of the lock manager's properties."""


HA: Final = "ha-policy."
FAILBACK: Final = "allow-failback"
ON_SHUTDOWN: Final = "failover-on-shutdown"
SECONDS: Final = ("quorum-vote-wait",)
"""The properties in milliseconds, in AMQ's documents and here, that Artemis has in seconds."""

_TIMES: Final = {"initial-replication-sync-timeout": int, "retry-replication-wait": int}
_PAIRING: Final = {**_TIMES, "group-name": str, "max-saved-replicated-journals-size": int}
_MANAGER: Final = {
    "connect-string": str,
    "namespace": str,
    **dict.fromkeys(("session-ms", "session-percent", "connection-ms", "retries", "retries-ms"), int),
}
_LOCKED: Final = {**_PAIRING, **{f"{MANAGER}{key}": kind for key, kind in _MANAGER.items()}}
_VOTES: Final = {
    "vote-on-replication-failure": bool,
    "vote-retries": int,
    "vote-retry-wait": int,
    "quorum-vote-wait": int,
    "quorum-size": int,
}
_BOTH: Final = {**_PAIRING, **_VOTES}
_BACKUP: Final = {FAILBACK: bool, "restart-backup": bool, "failback-delay": int}

ROLE: Final[Mapping[str, Mapping[str, Mapping[str, type]]]] = {
    REPLICATION: {MASTER: {**_BOTH, "check-for-live-server": bool}, SLAVE: {**_BOTH, **_BACKUP}},
    LOCK_MANAGER: {MASTER: _LOCKED, SLAVE: {**_LOCKED, FAILBACK: bool}},
    SHARED_STORE: {
        MASTER: {ON_SHUTDOWN: bool, "wait-for-activation": bool, "failback-delay": int},
        SLAVE: {ON_SHUTDOWN: bool, **_BACKUP},
    },
}
"""Policy -> role -> property of the role's own section -> type."""

PLAIN: Final[Mapping[str, Mapping[str, Kind]]] = {
    "cluster": {
        "message-load-balancing": str,
        "check-period": int,
        "connection-ttl": int,
        "call-timeout": int,
        "call-failover-timeout": int,
        "retry-interval": int,
        "retry-interval-multiplier": float,
        "max-retry-interval": int,
        "initial-connect-attempts": int,
        "reconnect-attempts": int,
        "max-hops": int,
        "notification-interval": int,
        "notification-attempts": int,
        "min-large-message-size": int,
    },
    "address-settings": {
        "max-delivery-attempts": int,
        "dead-letter-address": str,
        "redelivery-delay": int,
        "redistribution-delay": int,
        "max-size-bytes": int,
        "page-size-bytes": int,
        "address-full-policy": str,
        "default-group-rebalance": bool,
        "default-group-buckets": int,
        "default-consumers-before-dispatch": int,
    },
    "broker": {
        "max-disk-usage": int,
        "disk-scan-period": int,
        "global-max-size": int,
        "journal-file-size": int,
        "journal-type": ("NIO", "ASYNCIO", "MAPPED"),
        "journal-min-files": int,
        "journal-compact-min-files": int,
        "journal-compact-percentage": int,
        "journal-buffer-timeout": int,
        "persist-delivery-count-before-delivery": bool,
        "transaction-timeout": int,
        "network-check-list": str,
        "network-check-period": int,
        "network-check-timeout": int,
        "critical-analyzer": bool,
    },
    "acceptor": {"connection-ttl": int, "min-large-message-size": int},
    "jvm": {"heap": str},
}
"""Section -> property -> type."""

Chosen = dict[str, dict[str, Any]]
"""Section (``HA`` for the role's own) -> property -> value."""


def chosen(assigned: Mapping[str, Mapping[str, Any]], node: NodePlan, policy: str) -> Chosen:
    """Return a spec's properties of one node, by section.

    Raises UsageError that names the wrong property and the nearest known one.
    """
    by_section: Chosen = {}
    for whose in ("*", node.name):
        for name, value in assigned.get(whose, {}).items():
            for section, key, kind in _place(name, node, policy, everywhere=whose == "*"):
                by_section.setdefault(section, {})[key] = checked(f"--set {whose}:{name}", value, kind)
    return by_section


def in_artemis(key: str, value: Any) -> tuple[str, str]:
    """Return the element and its text for a property of a section."""
    if key in SECONDS:
        value = math.ceil(value / 1000)
    name = "check-for-active-server" if key == "check-for-live-server" else key
    return name, str(value).lower() if isinstance(value, bool) else str(value)


def _place(name: str, node: NodePlan, policy: str, *, everywhere: bool) -> Iterator[tuple[str, str, Kind]]:
    """Yield section, property and type for a name; nothing if it belongs to another role."""
    roles = ROLE.get(policy, {})
    section = f"{HA}{SECTIONS.get(policy, policy)}."
    if name.startswith(section) and roles:
        rest = name.removeprefix(section)
        role, dot, key = rest.partition(".")
        if dot and role in roles and role != node.configured:
            if everywhere and key in roles[role]:
                return
            raise UsageError(
                f"--set {node.name}: {name} is for a {role}, and {node.name} is a {node.configured}"
            )
        key = rest.removeprefix(f"{node.configured}.")
        if key in roles[node.configured]:
            yield HA, key, roles[node.configured][key]
            return
        if everywhere and any(rest in names for names in roles.values()):
            return
    plain, _, key = name.partition(".")
    if key in PLAIN.get(plain, {}):
        yield plain, key, PLAIN[plain][key]
        return
    names = [f"{section}{role}.{key}" for role, keys in roles.items() for key in keys]
    names += [f"{section}.{key}" for section, keys in PLAIN.items() for key in keys]
    raise UsageError(f"--set {name}: unknown property of artemis with policy {policy}: {near(name, names)}")
