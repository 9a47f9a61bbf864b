"""The properties that a test may set: those of Open MQ's manual, by their names there.

They are in its units: seconds for the times of a cluster. A word of our own is ``jvm.heap``. The
value of ``imq.cluster.masterbroker`` is a node's name, which the module replaces by its address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.interface import NodePlan, TestSpec, UsageError
from harness.interface.errors import near
from harness.systems.properties import checked

STANDALONE: Final = "standalone"
CONVENTIONAL: Final = "conventional"
HA_DATABASE: Final = "ha-database"

ACTIVE_CONSUMERS: Final = "imq.autocreate.queue.maxNumActiveConsumers"
BACKUP_CONSUMERS: Final = "imq.autocreate.queue.maxNumBackupConsumers"
FLOW_LIMIT: Final = "imq.autocreate.queue.consumerFlowLimit"
MASTER_BROKER: Final = "imq.cluster.masterbroker"
STORE: Final = "imq.persist.store"
JDBC: Final = "jdbc"
HEAP: Final = "jvm.heap"

Kind = type | tuple[str, ...]

_EVERY: Final[Mapping[str, Kind]] = {
    HEAP: str,
    ACTIVE_CONSUMERS: int,
    BACKUP_CONSUMERS: int,
    FLOW_LIMIT: int,
    "imq.autocreate.destination.limitBehavior": (
        "FLOW_CONTROL",
        "REMOVE_OLDEST",
        "REJECT_NEWEST",
        "REMOVE_LOW_PRIORITY",
    ),
    "imq.autocreate.queue.localDeliveryPreferred": bool,
    "imq.autocreate.destination.maxNumMsgs": int,
    "imq.autocreate.destination.maxNumProducers": int,
    "imq.autocreate.destination.useDMQ": bool,
    "imq.bridge.stomp.consumerFlowLimit": int,
    "imq.message.expiration.interval": int,
    "imq.system.max_count": int,
}
_OWN_STORE: Final[Mapping[str, Kind]] = {
    STORE: ("file", JDBC),
    "imq.persist.file.newTxnLog.enabled": bool,
    "imq.persist.file.sync.enabled": bool,
    "imq.persist.file.txnLog.nonTransactedMsgSend.enabled": bool,
}
KNOWN: Final[Mapping[str, Mapping[str, Kind]]] = {
    STANDALONE: {**_EVERY, **_OWN_STORE},
    CONVENTIONAL: {**_EVERY, **_OWN_STORE, MASTER_BROKER: str},
    HA_DATABASE: {
        **_EVERY,
        "imq.cluster.ha.takeoverWaitTimeout": int,
        "imq.cluster.takeover.delay.interval": int,
        "imq.cluster.heartbeat.interval": int,
        "imq.cluster.heartbeat.threshold": int,
        "imq.cluster.monitor.interval": int,
        "imq.cluster.monitor.threshold": int,
        "imq.persist.jdbc.connection.limit": int,
        "imq.persist.jdbc.max_connections": int,
        "imq.persist.jdbc.min_connections": int,
    },
}
"""Policy -> property -> its type or possible words."""


def uses_database(spec: TestSpec, name: str) -> bool:
    """Return whether that node's broker has its store in a database, alone or with others."""
    values = {**spec.properties.get("*", {}), **spec.properties.get(name, {})}
    return spec.policy == HA_DATABASE or values.get(STORE) == JDBC


def chosen(
    assigned: Mapping[str, Mapping[str, Any]], node: NodePlan, policy: str, names: Sequence[str]
) -> dict[str, Any]:
    """Return a spec's properties of one node.

    Raises UsageError that names the wrong property and the nearest known one.
    """
    types = KNOWN[policy]
    values: dict[str, Any] = {}
    for whose in ("*", node.name):
        for name, value in assigned.get(whose, {}).items():
            if name not in types:
                raise UsageError(
                    f"--set {name}: unknown property of openmq with policy {policy}: {near(name, [*types])}"
                )
            values[name] = checked(f"--set {whose}:{name}", value, types[name])
    master = values.get(MASTER_BROKER)
    if master is not None and master not in names:
        raise UsageError(f'--set {MASTER_BROKER}={master}: no node "{master}": {near(master, [*names])}')
    return values
