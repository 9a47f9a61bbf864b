"""The times of Artemis that tests shorten; its own are those of ``artemis-configuration.xsd``."""

from __future__ import annotations

from typing import Final

from harness.systems.shortened import Group, Time

_FEWER: Final = "more attempts than these would keep a busy machine from its work"

GROUPS: Final = (
    Group(
        "links and votes",
        30,
        (
            Time("cluster.check-period", 30_000, 1000),
            Time("cluster.connection-ttl", 60_000, 2000),
            Time("broker.connection-ttl-check-interval", 2000, 67),
            Time(
                "cluster.call-timeout",
                30_000,
                2000,
                "a busy machine may need a second to answer, and a backup whose registration gets no answer "
                "ends for good",
            ),
            Time("cluster.retry-interval", 500, 100, _FEWER),
            Time("cluster.max-retry-interval", 2000, 500, _FEWER),
            Time("ha-policy.replication.vote-retry-wait", 5000, 167),
            Time("ha-policy.replication.quorum-vote-wait", 30_000, 1000),
            Time("ha-policy.replication.retry-replication-wait", 2000, 200, _FEWER),
            Time(
                "ha-policy.replication.manager.session-ms",
                18_000,
                8000,
                "the manual demands more than the time in which brokers notice a lost peer, and the default "
                "is less",
            ),
        ),
    ),
)
