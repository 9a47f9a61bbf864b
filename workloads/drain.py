"""The drain: consume what is left.

So that what was never delivered can be told from what was not delivered yet.

Every broker that serves is drained, for after a split brain a pair has two lives with a journal
each. It ends when, with a consumer attached on every pair, nothing has arrived for the quiet period
and no acknowledgement is under way. Two things prolong it. A pair on which nobody can be attached
is tried for as long as the recovery bound; then the drain ends without it (its failed ``connect``
rows tell). A broker that still believes in a dead connection of ours keeps that connection's
messages until its own time-out: so the quiet period counts at the earliest from the dialect's
``unnoticed_s`` after the latest such loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from harness.interface import WorkloadContext
from workloads.consumer import Consumer
from workloads.sessions import Sessions

PREFETCH: Final = 1000
_POLL_S: Final = 0.02


def everywhere(
    context: WorkloadContext, pairs: Mapping[str, Sequence[str]], queues: Sequence[str], sessions: Sessions
) -> list[tuple[str, Consumer]]:
    """A consumer of all queues on each broker, with the name of its pair."""
    nodes = [(pair, node) for pair, members in pairs.items() for node in members]
    return [
        (
            pair,
            Consumer(
                context,
                context.zones[place % len(context.zones)],
                (node,),
                queues,
                sessions,
                prefetch=PREFETCH,
                hold_s=0.0,
                seed=context.random.getrandbits(64),
            ),
        )
        for place, (pair, node) in enumerate(nodes)
    ]


async def drain(
    context: WorkloadContext, stations: Sequence[tuple[str, Consumer]], unclean_at: float | None
) -> None:
    """Consume on every live broker until it is quiet.

    ``stations`` are the consumers, each with the name of what is drained by it: a pair, say, of
    which one broker is live. ``unclean_at`` is the loop time of the latest loss a broker may not
    have noticed.
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
