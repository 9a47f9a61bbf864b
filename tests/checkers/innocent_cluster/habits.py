"""What one history is of: how its brokers are set and what its clients do, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from checkers.verdict import Promises
from innocent_cluster.timeline import MS, S

KILLS = ("kill", "power-loss", "stop", "late-start")
STORES = (
    "disk-slow", "disk-stall", "nfs-stall", "nfs-disconnect", "nfs-restart", "database-stall",
    "database-restart", "database-disconnect",
)  # fmt: skip
ORDERLY = ("takeover", "quiesce", "switch-over")
LINKS = ("partition", "slow", "stall")
CLOCKS = ("clock-skew", "clock-step", "clock-strobe")
ADMINISTER = "administer"
"""Commands that disturb nobody; not among the kinds that every history draws."""
FAULTS = (*KILLS, "pause", *STORES, *LINKS, *CLOCKS, *ORDERLY)


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How brokers are set, and what clients do."""

    pairs: int
    brokers: int
    faults: tuple[str, ...]
    workloads: frozenset[str]
    selectors: bool
    groups: int
    priorities: bool
    expiry: bool
    delays: bool
    large: bool
    prefetch: int
    hold: int
    send_again: bool
    detects_duplicates: bool
    reuse_transactions: bool
    churn: bool
    headers: bool
    slow_network: bool
    routes_at_commit: bool
    late_drain: bool
    page: int | None
    keeps_expired: bool
    redelivery: int
    nack: Literal["requeue", "dead-letter", "consume"]
    attempts: Literal["refused", "given back"]
    most_attempts: int
    counts_attempts_durably: bool
    marks: Literal["always", "same-process", "never"]
    ack_wait: int
    tells_time_outs: bool
    random_refusals: bool
    reads_twice: bool
    marks_found: bool
    fails_back: bool
    closes_groups: bool
    compares: bool
    redistributes: bool
    joins: bool
    leaves: bool
    shares_topics: bool
    deletes: bool
    deletes_together: bool
    administers: bool

    @property
    def promises(self) -> Promises:
        """What brokers that are set so promise."""
        return Promises(
            nack=self.nack,
            delivery_attempts=1 if self.nack == "dead-letter" else self.most_attempts,
            most_attempts=self.most_attempts,
            attempts=self.attempts,
            redelivery_s=self.redelivery / S,
            keeps_expired=self.keeps_expired,
            marks_redeliveries=self.marks,
            ack_wait_s=self.ack_wait / S if self.ack_wait and not self.tells_time_outs else None,
            counts="given back" if self.marks == "always" else "never",
            durable_counts=self.counts_attempts_durably,
            fifo=self.pairs == 1,
        )


def drawn(
    chance: random.Random,
    *,
    redistributes: bool,
    joins: bool,
    leaves: bool,
    shares_topics: bool,
    deletes: bool,
    deletes_together: bool,
    administers: bool,
) -> Habits:
    """Most of everything is left out of every history."""

    def often(share: float) -> bool:
        return chance.random() < share

    workloads = {name for name in WORKLOADS if often(0.35)} or {chance.choice(WORKLOADS)}
    brokers = chance.choice([1, 2, 2])
    if brokers > 1:
        workloads.discard("receives")  # when it was acknowledged, its receiver cannot tell
    workloads = workloads or {"queue"}
    faulty = often(0.6)
    kinds = [*FAULTS, *KILLS, "pause"]
    some = chance.sample(kinds, chance.randint(1, 3)) if faulty else []
    return Habits(
        pairs=chance.choice([1, 1, 2, 3]),
        brokers=brokers,
        faults=tuple(some),
        workloads=frozenset(workloads),
        selectors=often(0.3),
        groups=chance.choice([0, 1, 2, 4]),
        priorities=often(0.25),
        expiry=often(0.25),
        delays=often(0.2),
        large=often(0.15),
        prefetch=chance.choice([1, 2, 4, 10]),
        hold=chance.choice([0, 0, 100 * MS, 500 * MS]),
        send_again=often(0.4),
        detects_duplicates=often(0.7),
        reuse_transactions=often(0.4),
        churn=often(0.4),
        headers=often(0.3),
        slow_network=often(0.4),
        routes_at_commit=often(0.5),
        late_drain=often(0.2),
        page=chance.choice([2, 5]) if often(0.2) else None,
        keeps_expired=often(0.5),
        redelivery=chance.choice([0, 0, 700 * MS]),
        nack=chance.choice(["requeue", "requeue", "requeue", "dead-letter", "consume"]),
        attempts=chance.choice(["refused", "refused", "given back"]),
        most_attempts=chance.choice([-1, 1, 2, 3, 4]),
        counts_attempts_durably=often(0.5),
        marks=chance.choice(["always", "always", "always", "same-process", "never"]),
        ack_wait=chance.choice([0, 0, 0, 800 * MS]),
        tells_time_outs=often(0.5),
        random_refusals=often(0.3),
        reads_twice=often(0.3),
        marks_found=often(0.5),
        fails_back=often(0.5),
        closes_groups=often(0.3),
        compares=often(0.3),
        redistributes=redistributes,
        joins=joins,
        leaves=leaves,
        shares_topics=shares_topics,
        deletes=deletes,
        deletes_together=deletes_together,
        administers=administers,
    )


WORKLOADS = ("queue", "topics", "transactions", "refusals", "request-reply", "receives", "bank")
