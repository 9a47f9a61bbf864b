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
    "consumer_disconnected_timeout": int,
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

WITHOUT_EFFECT: Final[Mapping[str, tuple[int, ...]]] = {
    "queue.x-max-in-memory-length": (4, 0),
    "cluster_partition_handling": (4, 3),
    "mnesia_table_loading_retry_limit": (4, 3),
    "mnesia_table_loading_retry_timeout": (4, 3),
}
"""The properties that have no effect any more, each with the first release in which it has none."""

NEW: Final[Mapping[str, tuple[int, ...]]] = {"consumer_disconnected_timeout": (4, 3)}
"""The properties that older releases refuse, each with the first release that has it."""

LIMITED: Final = (4, 0)
"""The first release in which a queue without a delivery limit has one, ``USUAL_LIMIT``."""
USUAL_LIMIT: Final = 20
_LIMIT: Final = "x-delivery-limit"

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


def effective(settings: Mapping[str, Any], release: tuple[int, ...]) -> dict[str, Any]:
    """Return the settings that have an effect in a release."""
    return {name: value for name, value in settings.items() if not releases_without_effect(name, release)}


def releases_without_effect(name: str, release: tuple[int, ...]) -> str:
    """Return the releases in which a property has no effect, if this is one of them; else ""."""
    if name in WITHOUT_EFFECT and release >= WITHOUT_EFFECT[name]:
        return f"since RabbitMQ {'.'.join(map(str, WITHOUT_EFFECT[name]))}"
    if name in NEW and release < NEW[name]:
        return f"before RabbitMQ {'.'.join(map(str, NEW[name]))}"
    return ""


def queue_arguments(
    assigned: Mapping[str, Mapping[str, Any]], release: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return the optional arguments of queues that a spec asks for.

    No limit of deliveries (-1) is what a queue without that argument has in older releases, which
    refuse -1.
    """
    named = {
        name.removeprefix(QUEUE): value
        for name, value in effective(chosen(assigned), release).items()
        if name.startswith(QUEUE)
    }
    if release < LIMITED and named.get(_LIMIT, 0) < 0:
        del named[_LIMIT]
    return named


def delivery_limit(arguments: Mapping[str, Any], release: tuple[int, ...]) -> int | None:
    """Return how often a queue delivers a message again that is given back; None: for ever."""
    limit = arguments.get(_LIMIT, USUAL_LIMIT if release >= LIMITED else -1)
    return None if limit < 0 else limit


def _checked(where: str, name: str, value: Any) -> Any:
    kind = KNOWN[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {bool: "true or false", int: "a whole number", str: "text"}
        raise UsageError(f"{where}={value}: it must be {words[kind]}")
    if name == "cluster_partition_handling" and value not in _PARTITION_HANDLING:
        raise UsageError(f"{where}={value}: it must be one of {', '.join(_PARTITION_HANDLING)}")
    return value
