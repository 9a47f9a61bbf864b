"""The decision whether a live that lost its backup may go on.

The others vote on it, and the backup itself may say that it took over.

Why separate from the live: this module has the whole decision and nothing else; it changes nothing
but what voters remember.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from broker.cluster.membership import Membership
from broker.cluster.quorum import vote, votes_needed, withdraw
from broker.ha_policy import ReplicationRole
from broker.policies.replication.feed import ReplicaFeed
from broker.policies.replication.probe import probe
from broker.seams import Seams

_log = logging.getLogger(__name__)

ROUND_S: Final = 0.1
"""The pause between two rounds of a live vote."""

POLL_S: Final = 0.05
"""The pause between two questions to a backup whose vote is under way."""


class LiveVote:
    """The live vote about one interruption (``vote-on-replication-failure``).

    It has rounds within ``quorum-vote-wait``.

    Why more than one round: what cut the backup off may have reset the links to the voters, too,
    which are dialled again. And a voter may have granted the backup a round that fails.
    """

    def __init__(self, membership: Membership, section: ReplicationRole, node_id: str, session: str) -> None:
        self._membership = membership
        self._section = section
        self._node_id = node_id
        self._session = session
        self._round = 0

    async def passes(self) -> bool:
        """Ask until a majority agrees or the time is over; return whether it agreed."""
        section, membership = self._section, self._membership
        reasons: dict[str, str] | None = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + section.quorum_vote_wait / 1000
        while True:
            self._round += 1
            needed = votes_needed(membership.directory.live_nodes_seen, section.quorum_size)
            timeout_s = max(0.001, deadline - loop.time())
            result = await vote(
                membership,
                self._node_id,
                self._session,
                self._round,
                stays=True,
                needed=needed,
                timeout_s=timeout_s,
            )
            last = loop.time() + ROUND_S >= deadline
            news = result.passed or last or result.refused != reasons
            _log.log(logging.INFO if news else logging.DEBUG, "live vote, round %d: %s", self._round, result)
            if result.passed or last:
                break
            reasons = result.refused
            await asyncio.sleep(ROUND_S)
        if not result.passed:
            _log.error(
                "the live vote was lost (%d votes of other live brokers needed, %d live brokers seen):"
                " this broker stops without answering any client, because its backup may be live",
                needed,
                membership.directory.live_nodes_seen,
            )
        return result.passed

    def give_up(self) -> None:
        """Let the backup have what we were granted.

        Call this only when this broker certainly answers no client any more.
        """
        withdraw(self._membership, self._node_id, self._session, self._round)


async def partner_took_over(membership: Membership, seams: Seams, node_id: str, feed: ReplicaFeed) -> bool:
    """Return whether the backup says that it is live in our place, after we did not run.

    This waits for the end of the backup's vote, however long that takes. The rounds of the vote are
    bounded, and a backup that has won says "voting" until its journal is open, which a slow disk
    makes long.
    """
    member = feed.link.member
    assert member is not None
    while True:
        answer = await probe(membership, seams, member.connector, stalled=True)
        if answer is None or answer.node_id != node_id or answer.role != "voting":
            return answer is not None and answer.node_id == node_id and answer.role == "live"
        await asyncio.sleep(POLL_S)
