"""The properties that a test may set, by the names of RabbitMQ's own documents.

They are keys of ``rabbitmq.conf`` as written there (``cluster_partition_handling``,
``net_ticktime``); ``queue.`` and an optional argument of a queue
(``queue.x-single-active-consumer``), the same for all queues; ``erl.`` and a flag of the virtual
machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.interface import NodePlan, UsageError
from harness.interface.errors import near

QUEUE: Final = "queue."
SCHEDULERS: Final = "erl.schedulers"
TICK: Final = "net_ticktime"
TIMEOUT: Final = "consumer_timeout"
"""The time after which a consumer that does not acknowledge loses its channel (ms)."""

KNOWN: Final[Mapping[str, type]] = {
    "cluster_keepalive_interval": int,
    "cluster_partition_handling": str,
    TIMEOUT: int,
    "disk_free_limit.absolute": str,
    "mnesia_table_loading_retry_limit": int,
    "mnesia_table_loading_retry_timeout": int,
    TICK: int,
    "raft.segment_max_entries": int,
    "raft.wal_max_batch_size": int,
    "raft.wal_max_size_bytes": int,
    "vm_memory_high_watermark.absolute": str,
    SCHEDULERS: int,
    "queue.x-delivery-limit": int,
    "queue.x-max-in-memory-length": int,
    "queue.x-max-length": int,
    "queue.x-message-ttl": int,
    "queue.x-overflow": str,
    "queue.x-single-active-consumer": bool,
}
"""Property -> type."""

_PARTITION_HANDLING: Final = ("pause_minority", "ignore", "autoheal")


def chosen(assigned: Mapping[str, Mapping[str, Any]], node: NodePlan | None = None) -> dict[str, Any]:
    """Return a spec's properties of one node, or of all alike.

    Raises UsageError that says what is wrong.
    """
    values: dict[str, Any] = {}
    for whose in ("*",) if node is None else ("*", node.name):
        for name, value in assigned.get(whose, {}).items():
            if name not in KNOWN:
                raise UsageError(f"--set {name}: unknown property of rabbitmq: {near(name, KNOWN)}")
            if whose != "*" and name.startswith(QUEUE):
                raise UsageError(
                    f"--set {whose}:{name}: a queue is the same on all nodes: --set *:{name}=..."
                )
            values[name] = _checked(f"--set {whose}:{name}", name, value)
    return values


def queue_arguments(assigned: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the optional arguments of queues that a spec asks for."""
    return {
        name.removeprefix(QUEUE): value for name, value in chosen(assigned).items() if name.startswith(QUEUE)
    }


def _checked(where: str, name: str, value: Any) -> Any:
    kind = KNOWN[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {bool: "true or false", int: "a whole number", str: "text"}
        raise UsageError(f"{where}={value}: it must be {words[kind]}")
    if name == "cluster_partition_handling" and value not in _PARTITION_HANDLING:
        raise UsageError(f"{where}={value}: it must be one of {', '.join(_PARTITION_HANDLING)}")
    return value
