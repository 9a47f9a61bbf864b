"""A broker from which others may take over through a store: it waits for its turn, and reigns.

This is common to all policies of that kind; their own rules say who owns what.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import Any

from broker.cluster.membership import Membership
from broker.policies.ownership.candidacy import Candidacy, Granted, bounded
from broker.policies.ownership.lease import Lease
from broker.policies.policy import BrokerPolicy, LiveReign
from broker.policies.stop import until

_log = logging.getLogger(__name__)


class LeasedReign(LiveReign, abc.ABC):
    """A reign for as long as ``lease`` is held; in doubt the role is "verifying".

    In that role no client is answered.
    """

    lease: Lease

    def look(self) -> None:
        """Change the role if the lease is in doubt; see ``LiveReign``."""
        self.lease.certain()

    def _hold_by(self, lease: Lease) -> None:
        self.lease = lease
        lease.on_doubt = self._doubt
        lease.on_certain = self._trust

    def _begin_to_serve(self) -> None:
        """Take the live's role at once: a broker that serves must not call itself a backup."""
        self._serving = True
        self._become("live" if self.lease.certain() else "verifying")

    def _doubt(self) -> None:
        if self._serving:
            self._become("verifying")

    def _trust(self) -> None:
        if self._serving:
            self._become("live")
        if self.live is not None:
            self.live.gate.release()


class Contender(BrokerPolicy, abc.ABC):
    """A policy with a ``candidate`` while it waits to own a store, and a ``reign`` after that."""

    membership: Membership
    candidate: Candidacy | None = None

    @property
    def replicating(self) -> bool:
        """True for a waiting broker that is next; it lacks nothing to become live.

        False for a live, because all data are in one place.
        """
        return self.candidate is not None and self.candidate.next_in_line

    def become(self, role: str, **said: Any) -> None:
        """Take a role, and log it; see ``BrokerPolicy``."""
        if role != self._role:
            _log.debug("the role of this broker is now %s", role)
        super().become(role, **said)

    def _waits(self, node_id: str | None) -> None:
        """Wait as a backup of these data; ``node_id`` is None while they are not known yet."""
        if node_id is not None and node_id != self.node_id:
            self.membership.announce(node_id=node_id)
        self.become("backup")

    async def _compete(self, candidate: Candidacy, stopping: asyncio.Event) -> Granted | None:
        """Wait until the live lock is ours; None when the broker is to stop."""
        self.candidate = candidate
        waiting = asyncio.create_task(candidate.run(), name="wait for the live lock")
        granted: Granted | None = None
        try:
            await until(stopping, waiting)
            if waiting.done():
                granted = waiting.result()
            return granted
        finally:
            waiting.cancel()
            await bounded(asyncio.gather(waiting, return_exceptions=True))
            if granted is None:
                await bounded(candidate.give_up())
            self.candidate = None
