"""The drain, which consumes the messages that are left at the end of a test.

Why: after it, a message that was never delivered differs from one that is not delivered yet.

Every broker that serves is drained, because after a split brain a pair has two live brokers with a
journal each. The drain ends when a consumer is attached on every pair, nothing has arrived for the
quiet period and no acknowledgement is under way. Two things prolong it. A pair on which no consumer
can be attached is tried for as long as the recovery bound; then the drain ends without it (its
failed ``connect`` rows show that). A broker that has not noticed the end of a connection keeps that
connection's messages until its own time-out. So the quiet period counts at the earliest from the
dialect's ``unnoticed_s`` after the latest such loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from harness.interface import WorkloadContext
from workloads import placement
from workloads.consumer import Consumer
from workloads.sessions import Sessions

PREFETCH: Final = 1000
Draining = TypeVar("Draining", bound=Consumer)
_POLL_S: Final = 0.02


def draining(
    context: WorkloadContext, queues: Sequence[str], sessions: Sessions, kind: type[Draining]
) -> list[tuple[str, Draining]]:
    """Return a consumer of all queues for each station, with the name of the station's pair."""
    return [
        (
            station.pair,
            kind(
                context,
                station.zone,
                (station.node,),
                queues,
                sessions,
                prefetch=PREFETCH,
                hold_s=0.0,
                seed=context.random.getrandbits(64),
            ),
        )
        for station in placement.stations(context)
    ]


async def drain(
    context: WorkloadContext, stations: Sequence[tuple[str, Consumer]], unclean_at: float | None
) -> None:
    """Consume on every live broker until nothing arrives any more.

    ``stations`` are the consumers, each with the name of what it drains: a pair, of which one
    broker is live, or a subscription. ``unclean_at`` is the loop time of the latest loss of a
    connection that a broker may not have noticed.
    """
    loop = asyncio.get_running_loop()
    consumers = [consumer for _, consumer in stations]
    names = {name for name, _ in stations}
    async with asyncio.TaskGroup() as group:
        stays = [group.create_task(consumer.run()) for consumer in consumers]
        patience_end = loop.time() + context.spec.recovery_bound_s
        quiet_since = loop.time()
        quiet_s = context.dialect.quiet_s(context.spec.quiet_period_s)
        while loop.time() - quiet_since < quiet_s:
            await asyncio.sleep(_POLL_S)
            now = loop.time()
            missing = names - {name for name, consumer in stations if consumer.attached.is_set()}
            if any(consumer.acks_open for consumer in consumers) or (missing and now < patience_end):
                quiet_since = now
            latest = [consumer.delivered_at for consumer in consumers]
            lost = [consumer.unclean_at for consumer in consumers] + [unclean_at]
            latest += [at + context.dialect.unnoticed_s for at in lost if at is not None]
            quiet_since = max(quiet_since, *latest)
        await asyncio.gather(*(consumer.leave("unsubscribe") for consumer in consumers))
        for stay in stays:
            stay.cancel()
