"""The events in the logs of RabbitMQ's nodes; only this module knows their wording."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harness.interface import Event

_LINES: Final[Mapping[str, tuple[str, str]]] = {
    "broker/served": ("a node began to serve clients", "started STOMP TCP listener"),
    "broker/stopped-cleanly": ("a node ended as it was asked to", "Successfully stopped RabbitMQ"),
    "node/down": ("a node was found down by another", r"node \S+ down(?:$|:)"),
    "node/up": ("a node was found up by another", r"node \S+ up$"),
    "minority/paused": ("a node in the minority paused itself", "Cluster minority/secondary status detected"),
    "partition/noted": ("nodes noted a partition", "Partial partition detected|running_partitioned_network"),
    "queue/led": ("a member of a queue became its leader", r"queue '[^']*' in vhost '[^']*': .*-> leader"),
}
"""Name -> (meaning, pattern of the log line)."""

EVENTS: Final[Mapping[str, Event]] = {
    name: Event(meaning, re.compile(line)) for name, (meaning, line) in _LINES.items()
}
