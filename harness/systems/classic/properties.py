"""The properties that a test may set: attributes of Classic's own XML, by element and attribute.

``kahaDB.lockKeepAlivePeriod``, ``lease-database-locker.lockAcquireSleepInterval``,
``policyEntry.strictOrderDispatch``: as in Classic's manual, units too (milliseconds). Words of our
own are ``jvm.heap``, and those that choose one of several elements:
``jdbcPersistenceAdapter.locker``, ``broker.ioExceptionHandler``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.interface import NodePlan, UsageError
from harness.interface.errors import near
from harness.systems.properties import checked

SHARED_STORE: Final = "shared-store"
JDBC: Final = "jdbc"
NETWORK: Final = "network"
STANDALONE: Final = "standalone"
MASTER: Final = "master"
SLAVE: Final = "slave"

LEASE: Final = "lease-database-locker"
LOCK: Final = "database-locker"
HANDLERS: Final = ("defaultIOExceptionHandler", "jDBCIOExceptionHandler", "leaseLockerIOExceptionHandler")

Kind = type | tuple[str, ...]

_BROKER: Final[Mapping[str, Kind]] = {
    "advisorySupport": bool,
    "restartAllowed": bool,
    "schedulePeriodForDestinationPurge": int,
    "ioExceptionHandler": HANDLERS,
}
_HANDLER: Final[Mapping[str, Kind]] = {
    "ignoreAllErrors": bool,
    "ignoreNoSpaceErrors": bool,
    "ignoreSQLExceptions": bool,
    "resumeCheckSleepPeriod": int,
    "stopStartConnectors": bool,
}
_POLICY: Final[Mapping[str, Kind]] = {
    "consumersBeforeDispatchStarts": int,
    "enableAudit": bool,
    "lazyDispatch": bool,
    "maxAuditDepth": int,
    "maxPageSize": int,
    "optimizedDispatch": bool,
    "persistJMSRedelivered": bool,
    "prioritizedMessages": bool,
    "producerFlowControl": bool,
    "queuePrefetch": int,
    "sendDuplicateFromStoreToDLQ": bool,
    "strictOrderDispatch": bool,
    "timeBeforeDispatchStarts": int,
    "useCache": bool,
    "useConsumerPriority": bool,
}
_KAHADB: Final[Mapping[str, Kind]] = {
    "checkForCorruptJournalFiles": bool,
    "checkpointInterval": int,
    "checksumJournalFiles": bool,
    "cleanupInterval": int,
    "concurrentStoreAndDispatchQueues": bool,
    "enableIndexWriteAsync": bool,
    "ignoreMissingJournalfiles": bool,
    "indexWriteBatchSize": int,
    "journalDiskSyncInterval": int,
    "journalDiskSyncStrategy": ("always", "periodic", "never"),
    "journalMaxFileLength": str,
    "journalMaxWriteBatchSize": str,
    "lockKeepAlivePeriod": int,
    "preallocationStrategy": ("sparse_file", "os_kernel_copy", "zeros", "chunked_zeros"),
}
_ADAPTER: Final[Mapping[str, Kind]] = {
    "changeAutoCommitAllowed": bool,
    "cleanupPeriod": int,
    "enableAudit": bool,
    "lockKeepAlivePeriod": int,
    "locker": (LEASE, LOCK),
    "maxRows": int,
    "networkTimeout": int,
    "queryTimeout": int,
    "stopOnError": bool,
}
_LOCKER: Final[Mapping[str, Kind]] = {"lockAcquireSleepInterval": int, "queryTimeout": int}
_BRIDGE: Final[Mapping[str, Kind]] = {
    "alwaysSyncSend": bool,
    "conduitSubscriptions": bool,
    "consumerTTL": int,
    "decreaseNetworkConsumerPriority": bool,
    "dispatchAsync": bool,
    "dynamicOnly": bool,
    "messageTTL": int,
    "networkTTL": int,
    "prefetchSize": int,
    "suppressDuplicateQueueSubscriptions": bool,
    "wireFormat.maxInactivityDuration": int,
}
_CONNECTOR: Final[Mapping[str, Kind]] = {
    "auditNetworkProducers": bool,
    "disableAsyncDispatch": bool,
    "transport.hbGracePeriodMultiplier": float,
}

_EVERY: Final[Mapping[str, Mapping[str, Kind]]] = {
    "broker": _BROKER,
    "policyEntry": _POLICY,
    "transportConnector": _CONNECTOR,
    "jvm": {"heap": str},
    **dict.fromkeys(HANDLERS, _HANDLER),
}
ELEMENTS: Final[Mapping[str, Mapping[str, Mapping[str, Kind]]]] = {
    STANDALONE: {**_EVERY, "kahaDB": _KAHADB},
    SHARED_STORE: {**_EVERY, "kahaDB": _KAHADB, "shared-file-locker": {"lockAcquireSleepInterval": int}},
    NETWORK: {**_EVERY, "kahaDB": _KAHADB, "networkConnector": _BRIDGE},
    JDBC: {
        **_EVERY,
        "jdbcPersistenceAdapter": _ADAPTER,
        LOCK: _LOCKER,
        LEASE: {**_LOCKER, "handleStartException": bool, "maxAllowableDiffFromDBTime": int},
    },
}
"""Policy -> element -> attribute -> its type or possible words."""

Chosen = dict[str, dict[str, Any]]
"""Element -> attribute -> value."""


def chosen(assigned: Mapping[str, Mapping[str, Any]], node: NodePlan, policy: str) -> Chosen:
    """Return a spec's properties of one node, by element.

    Raises UsageError that names the wrong property and the nearest known one.
    """
    elements = ELEMENTS[policy]
    by_element: Chosen = {}
    for whose in ("*", node.name):
        for name, value in assigned.get(whose, {}).items():
            element, _, attribute = name.partition(".")
            kind = elements.get(element, {}).get(attribute)
            if kind is None:
                names = [f"{element}.{key}" for element, keys in elements.items() for key in keys]
                raise UsageError(
                    f"--set {name}: unknown property of classic with policy {policy}: {near(name, names)}"
                )
            by_element.setdefault(element, {})[attribute] = checked(f"--set {whose}:{name}", value, kind)
    return by_element
