"""What every broker is that competes for one store, whichever policy's rules say who gets it.

Its role, its place in the cluster, and the wait for its turn.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.cluster.membership import Membership
from broker.config import BrokerConfig
from broker.core.engine import Engine
from broker.policies.shared_store.candidate import Granted
from broker.policies.shared_store.live import LiveRole, bounded
from broker.seams import Seams


class Candidacy(Protocol):
    """One wait for the live lock."""

    async def run(self) -> Granted | None:
        """Wait, however long it takes; None where there is nothing more to wait for."""
        ...

    async def give_up(self) -> None:
        """Give the place in the line back."""
        ...


class Contender:
    """See ``policy.Policy`` for what is public. ``live`` is there while it reigns."""

    def __init__(self, config: BrokerConfig, seams: Seams) -> None:
        assert config.cluster is not None
        self.config = config
        self.epoch = int(seams.wall_clock() * 1000)
        """Begins with the clock, so that two lives of one broker never show the same number."""
        self.live: LiveRole | None = None
        self.membership = Membership(config, config.cluster, seams)
        self._role = "starting"
        self._seams = seams

    @property
    def role(self) -> str:
        """The role at this moment.

        A live that may have lost its lock while it did not run says "verifying", not "live".
        """
        if self._role == "live" and self.live is not None:
            self.live.lease.certain()  # becomes "verifying" when the clock says so
        return self._role

    @property
    def node_id(self) -> str | None:
        """That of the store's data, once they have been seen."""
        return self.membership.own.node_id

    @property
    def engine(self) -> Engine | None:
        """None unless live."""
        role = self.live
        return role.live.engine if role is not None and role.live is not None else None

    async def _compete(self, candidate: Candidacy, stopping: asyncio.Event) -> Granted | None:
        """Until the live lock is ours; None when the broker is to stop."""
        stop = asyncio.create_task(stopping.wait(), name="wait for stop")
        waiting = asyncio.create_task(candidate.run(), name="wait for the live lock")
        granted: Granted | None = None
        try:
            await asyncio.wait({stop, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                granted = waiting.result()
            return granted
        finally:
            for task in (stop, waiting):
                task.cancel()
            await bounded(asyncio.gather(stop, waiting, return_exceptions=True))
            if granted is None:
                await bounded(candidate.give_up())
