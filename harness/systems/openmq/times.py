"""The times of Open MQ that tests shorten; its own are those of its manual, in seconds."""

from __future__ import annotations

from typing import Final

from harness.systems.shortened import Group, Time

GROUPS: Final = (
    Group(
        "the brokers of a cluster on a database",
        2,
        (
            Time("imq.cluster.heartbeat.interval", 2, 1),
            Time(
                "imq.cluster.monitor.interval",
                30,
                4,
                "in proportion, each takeover would take 30 s; missed heartbeats only begin a suspicion, "
                "which this interval decides: after 8 s here and after 60 s by default",
            ),
        ),
    ),
)
