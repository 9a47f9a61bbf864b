"""The arenas that mutants share: clusters, loads and kinds of faults, nothing that knows a bug."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Arena

CLUSTER: Final = ("partition", "pause", "kill")
"""What happens to clusters."""

THREE_PAIRS: Final = Arena(CLUSTER)
"""Three pairs, both votes on.

Where the documents promise that nothing is lost and nobody is live twice.
"""

VOTES: Final = Arena(
    ("partition", "pause"),
    {
        "properties": {
            "*": {
                "ha-policy.replication.vote-retries": 2,
                "ha-policy.replication.backup-vote": "reachability",
            }
        },
        "time_limit_s": 10.0,
    },
)
"""The same without what ends brokers, and with few votes: faults that outlast all of them.

A voter that looks whether it has the live itself would hide most bugs of the rest.
"""

ONE_PAIR: Final = Arena(("kill", "pause", "stop"), {"pairs": 1, "producers": 3, "consumers": 3})
"""One pair, without partitions: those it cannot survive, as documented (RP4)."""

PAIR_ON_SLOW_DISKS: Final = Arena(
    ("kill", "power-loss", "disk-slow"), {"pairs": 1, "producers": 3, "consumers": 3, "rate": 100.0}
)

FORWARDING: Final = Arena(
    CLUSTER, {"workload": "queue", "ordered": False, "pairs": 2, "producers": 4, "consumers": 4}
)
"""Messages without groups, which brokers forward to each other."""

FORWARDING_ALONE: Final = Arena(
    ("kill", "power-loss", "disk-slow", "partition"),
    {
        "policy": "standalone",
        "workload": "queue",
        "ordered": False,
        "pairs": 2,
        "producers": 4,
        "consumers": 4,
    },
)
"""The same without backups: what a broker has not stored itself nobody has."""

REDISTRIBUTION: Final = Arena(
    ("kill", "power-loss", "pause", "partition"),
    {
        "policy": "standalone",
        "workload": "queue,groups",
        "ordered": False,
        "pairs": 3,
        "producers": 4,
        "consumers": 4,
        "produce_at": ("a1",),
        "consume_at": ("b1", "c1"),
        "properties": {"*": {"address-settings.#.redistribution-delay": 0}},
    },
)
"""Producers at one broker, and consumers at two others."""

CHAIN: Final = Arena(
    ("kill", "power-loss", "pause", "partition"),
    {
        "policy": "standalone",
        "workload": "queue",
        "ordered": False,
        "pairs": 4,
        "producers": 4,
        "consumers": 4,
        "produce_at": ("a1",),
        "consume_at": ("d1",),
        "drain_at": ("d1",),
        "chain": True,
        "properties": {"*": {"address-settings.#.redistribution-delay": 0}},
    },
)
"""A chain with producers at one end, and consumers at the other."""

ROUND_CUTS: Final = Arena(
    ("partition", "pause", "kill"),
    {
        "policy": "standalone",
        "workload": "queue",
        "ordered": False,
        "pairs": 3,
        "producers": 4,
        "consumers": 4,
        "consume_at": ("c1",),
        "shapes": ("link",),
        "rate": 200.0,
        "properties": {"*": {"cluster.max-hops": 3, "cluster.connection-ttl": 1000}},
    },
)
"""Three brokers that pass messages on round a cut link, of which many are cut."""

_BY_MULTICAST: Final = {
    "cluster.static-connectors": [],
    "cluster.discovery-group-ref": "lan",
    "broadcast-groups.lan.group-address": "231.7.7.7",
    "broadcast-groups.lan.group-port": 9876,
    "broadcast-groups.lan.broadcast-period": 300,
    "discovery-groups.lan.group-address": "231.7.7.7",
    "discovery-groups.lan.group-port": 9876,
    "discovery-groups.lan.refresh-timeout": 1000,
}

DISCOVERY: Final = Arena(
    ("partition", "kill", "stop", "datagram-loss"),
    {
        "policy": "standalone",
        "workload": "queue",
        "ordered": False,
        "properties": {
            "*": {
                **_BY_MULTICAST,
                "cluster.connection-ttl": 1000,
                "cluster.message-load-balancing": "OFF",
            }
        },
    },
)
"""Brokers that find each other by multicast, and links that end before a partition does.

They keep their messages: those for a broker that is never found again could not be drained.
"""

DISCOVERY_OF_PAIRS: Final = Arena(("kill", "partition"), {"properties": {"*": _BY_MULTICAST}})
"""Three pairs that find each other by multicast."""

TRANSACTIONS: Final = Arena(
    ("kill", "power-loss", "disk-slow"),
    {
        "policy": "standalone",
        "workload": "transactions",
        "pairs": 1,
        "queues": 3,
        "producers": 3,
        "consumers": 4,
    },
)
"""One broker and its disk, and messages that move in transactions."""

BANK: Final = Arena(
    ("kill", "power-loss", "disk-slow"),
    {
        "policy": "standalone",
        "workload": "bank",
        "ordered": False,
        "pairs": 1,
        "producers": 2,
        "consumers": 4,
    },
)
"""The same with money."""

SUBSCRIPTIONS: Final = Arena(
    ("kill", "power-loss", "disk-slow"),
    {"policy": "standalone", "workload": "subscriptions", "pairs": 1, "producers": 3, "consumers": 6},
)
"""One broker and its disk, and subscriptions that come, go, and are made again."""

SHARED_TOPICS: Final = Arena(
    ("kill", "partition", "slow"), {**SUBSCRIPTIONS.fields, "pairs": 2, "share_topics": True}
)
"""Two brokers, and subscriptions at each to topics whose producers are at the other."""

SHARED_TOPICS_HEARD: Final = Arena(
    ("clock-step", "clock-skew"), {**SHARED_TOPICS.fields, "churn": 4.0, "queues": 6, "rate": 150.0}
)
"""The same without a fault that can keep the news of a subscription from a broker."""

REMADE_SUBSCRIPTIONS: Final = Arena(SUBSCRIPTIONS.kinds, {**SUBSCRIPTIONS.fields, "change_selectors": True})
"""The same, some of them with another selector."""

REFUSALS: Final = Arena(
    ("kill", "power-loss", "disk-slow"),
    {"policy": "standalone", "workload": "refusals", "pairs": 1, "producers": 3, "consumers": 4},
)
"""One broker and its disk, and messages that are refused, expire, or wait for their time."""

REQUESTS: Final = Arena(
    ("kill", "power-loss", "disk-slow"),
    {"policy": "standalone", "workload": "request-reply", "pairs": 1, "producers": 3, "consumers": 3},
)
"""One broker and its disk, and replies to queues that end with their connections."""

_REPLIES: Final = {
    "workload": "request-reply",
    "ordered": False,
    "producers": 4,
    "consumers": 4,
    "share_replies": True,
}

REPLIES: Final = Arena(
    ("kill", "power-loss", "pause", "partition"), {**_REPLIES, "policy": "standalone", "pairs": 2}
)
"""Two brokers, and replies at each to clients of the other."""

REPLIES_AT_HOMES: Final = Arena(REPLIES.kinds, {**_REPLIES, "policy": "conventional", "pairs": 3})
"""A conventional cluster, and replies at each broker to clients of the others."""

SUBSCRIPTIONS_OF_A_PAIR: Final = Arena(
    ("kill", "pause", "stop"), {"workload": "subscriptions", "pairs": 1, "producers": 3, "consumers": 6}
)
"""The same with a backup."""

SELECTORS: Final = Arena(
    ("kill", "pause", "stop"), {"workload": "selectors", "pairs": 1, "producers": 3, "consumers": 4}
)
"""A pair, and consumers of its queues who want some messages each."""

DISK: Final = Arena(
    ("kill", "power-loss", "disk-slow"),
    {
        "policy": "standalone",
        "pairs": 1,
        "producers": 3,
        "consumers": 3,
        "rate": 150.0,
        "prefetch": 2,
        "hold_s": 0.05,
    },
)
"""One broker and its disk, and consumers that do not keep up.

What is lost must not have been delivered before.
"""

_CONVENTIONAL: Final = {"policy": "conventional", "pairs": 3, "master": "a1", "producers": 4, "consumers": 4}

HOMES: Final = Arena(
    ("kill", "power-loss", "pause", "partition"),
    {
        **_CONVENTIONAL,
        "workload": "queue",
        "ordered": False,
        "produce_at": ("a1",),
        "consume_at": ("b1", "c1"),
    },
)
"""A conventional cluster with producers at one broker, and consumers at the two others."""

HELD_OF_HOMES: Final = Arena(
    ("pause", "partition"),
    {
        **HOMES.fields,
        "produce_at": ("a1", "b1"),
        "hold_s": 3.0,
        "prefetch": 100,
        "rate": 40.0,
        "time_limit_s": 12.0,
    },
)
"""The same with producers at two brokers, and consumers that hold messages for longer."""

EXPIRING_AT_HOMES: Final = Arena(
    HOMES.kinds,
    {
        **HOMES.fields,
        "workload": "refusals",
        "produce_at": ("a1", "b1"),
        "consume_at": ("c1",),
        "hold_s": 0.2,
        "prefetch": 5,
    },
)
"""Producers at two brokers whose messages are refused, expire, or wait for their time.

Consumers at the third are slow, so that messages wait for them there.
"""

TRANSACTIONS_OVER_HOMES: Final = Arena(
    HOMES.kinds,
    {
        **_CONVENTIONAL,
        "workload": "transactions",
        "queues": 3,
        "produce_at": ("a1", "b1"),
        "consume_at": ("c1",),
    },
)
"""The same with producers at two brokers, and messages that move in transactions."""

RECORDED_SUBSCRIPTIONS: Final = Arena(
    ("kill", "power-loss", "pause", "partition", "disk-slow"),
    {**_CONVENTIONAL, "workload": "subscriptions", "consumers": 6, "share_topics": True, "churn": 4.0},
)
"""A conventional cluster with durable subscriptions that come, go, and are made again."""
