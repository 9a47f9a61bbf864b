"""A broker that others may take over from through a store.

What each is, whichever policy's rules say who owns what.

Its role, its place in the cluster, the wait for its turn, and its reign.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, TypeVar

from broker.cluster.membership import Membership
from broker.config import BrokerConfig
from broker.core.engine import Engine
from broker.policies.live import Live
from broker.policies.ownership.candidacy import Candidacy, Granted, bounded
from broker.policies.ownership.lease import Lease
from broker.policies.policy import Succession
from broker.seams import Seams

_log = logging.getLogger(__name__)


class Reign(Protocol):
    """What is served under one lease, from its beginning to its end."""

    failover_on_shutdown: bool

    @property
    def lease(self) -> Lease:
        """Says whether it is certain."""
        ...

    @property
    def live(self) -> Live | None:
        """The broker that serves, once there is one."""
        ...

    @property
    def succession(self) -> Succession:
        """Under which number it serves; without one while nothing is served."""
        ...


R = TypeVar("R", bound=Reign)


class Contender:
    """See ``policy.Policy`` for what is public.

    ``reign`` is there while it owns something, ``candidate`` while it waits for that.
    """

    def __init__(self, config: BrokerConfig, seams: Seams, membership: Membership | None = None) -> None:
        assert config.cluster is not None
        self.config = config
        self.epoch = int(seams.wall_clock() * 1000)
        """Begins with the clock, so that two lives of one broker never show the same number."""
        self.reign: Reign | None = None
        self.candidate: Candidacy | None = None
        self.membership = membership or Membership(config, config.cluster, seams)
        self._failover: bool | None = None
        """For the stop that is under way: overrides failover-on-shutdown."""
        self._role = "starting"
        self._seams = seams

    @property
    def role(self) -> str:
        """The role at this moment.

        An owner that may have been replaced while it did not run says "verifying", not "live".
        """
        if self._role == "live" and self.reign is not None:
            self.reign.lease.certain()  # becomes "verifying" when the clock says so
        return self._role

    @property
    def node_id(self) -> str | None:
        """That of the store's data, once they have been seen."""
        return self.membership.own.node_id

    @property
    def engine(self) -> Engine | None:
        """None unless live."""
        reign = self.reign
        return reign.live.engine if reign is not None and reign.live is not None else None

    @property
    def replicating(self) -> bool:
        """A live: never, all data are in one place.

        Who waits: it is next to be live, and lacks nothing.
        """
        return self.candidate is not None and self.candidate.next_in_line

    @property
    def succession(self) -> Succession:
        """Each life, and each takeover of another's data, has a number above all before."""
        return Succession() if self.reign is None else self.reign.succession

    def request_stop(self, *, failover: bool | None = None) -> None:
        """What the stop to come shall do about failover."""
        if failover is not None:
            self._failover = failover
            if self.reign is not None:
                self.reign.failover_on_shutdown = failover

    def _own(self, reign: R) -> R:
        """As it is to be ours from now on."""
        if self._failover is not None:
            reign.failover_on_shutdown = self._failover
        return reign

    def _waits(self, node_id: str | None) -> None:
        """Wait as a backup of these data, None where they are not known yet."""
        if node_id is not None and node_id != self.membership.own.node_id:
            self.membership.announce(node_id=node_id)
        self._become("backup")

    def _become(self, role: str) -> None:
        if role != self._role:
            _log.debug("role %s", role)
            self._role = role
            self.epoch += 1
            self.membership.announce(role=role)

    async def _compete(self, candidate: Candidacy, stopping: asyncio.Event) -> Granted | None:
        """Until the live lock is ours; None when the broker is to stop."""
        self.candidate = candidate
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
            self.candidate = None
