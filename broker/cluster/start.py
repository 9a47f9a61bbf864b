"""The question that a broker which was live asks before it becomes live again.

It asks whether another broker has been voted into its place, or is about to be.

Why it asks the voters and not the other broker: that broker may be behind a slow or cut link, and
voters know before it does. Why the question binds the voter that answers it: a vote that is given
between the answer and the start would make two lives. So a voter that has answered "nobody" gives
no vote for an earlier life of that node ID for as long as its link to the asker stands.
"""

from __future__ import annotations

import asyncio

from broker.cluster import messages as m
from broker.cluster.membership import Membership


async def voted_in(membership: Membership, node_id: str, activation: int) -> str | None:
    """Return the broker that holds a vote to be live as ``node_id``; None if none does.

    The vote is about the life before ``activation`` or a later one, as any other live broker knows.

    A broker that does not answer within ``call-timeout`` knows of no vote.
    """
    asked = [
        link.call(m.StartRequest(link.number(), node_id, activation))
        for node, (_, link) in membership.directory.lives().items()
        if node != node_id
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    return next(
        (answer.claimant for answer in answers if isinstance(answer, m.StartAnswer) and answer.claimant), None
    )
