"""The times of RabbitMQ that tests shorten; its own are those of its documents."""

from __future__ import annotations

from typing import Final

from harness.systems.shortened import Group, Time

GROUPS: Final = (
    Group(
        "how nodes find each other silent",
        12,
        (
            Time("net_ticktime", 60, 5),
            Time("cluster_keepalive_interval", 10_000, 833),
            Time("consumer_disconnected_timeout", 60_000, 5000),
        ),
    ),
)
