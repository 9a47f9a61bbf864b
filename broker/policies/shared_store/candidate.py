"""The candidates for the live lock, and the rules by which they may take it.

A slave waits behind the other backups, a master for its place.

state of the lock        a slave                                  a master "L"  the live was lost
takes over                               is live "P"  stopped on purpose  waits; live, if it was the
stopped one   live, if started since; else waits "F"  failing back        waits, unless no master
waits any more   is live none: a new store        waits for a master                       is live
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.ha_policy import SharedStoreMaster, SharedStoreRole, SharedStoreSlave
from broker.policies.ownership.candidacy import Candidacy, Granted
from broker.policies.shared_store import store
from broker.policies.shared_store.store import Places, StoreMark

_log = logging.getLogger(__name__)


class StoreCandidate(Candidacy):
    """A wait for the live lock."""

    def __init__(
        self,
        places: Places,
        section: SharedStoreMaster | SharedStoreSlave,
        name: str,
        waits: Callable[[StoreMark], None],
    ) -> None:
        super().__init__(section.lock_poll_period, section.lock_expiration)
        self._places = places
        self._section = section
        self._name = name
        self._waits = waits
        self._seen_live = False
        self._said = ""
        self._place = ""
        self._returns = False

    @property
    def _master(self) -> bool:
        return isinstance(self._section, SharedStoreMaster)

    async def _prepare(self) -> None:
        await self._places.prepare()

    async def _attempt(self) -> Granted | None:
        may_try = self._master or self._waiting is not None or self._returns
        granted = await self._try_live() if may_try else None
        if granted is None:
            await self._queue()
        self._trouble = ""
        return granted

    async def _queue(self) -> None:
        """Take the place of the next one, if it is free; report that we wait."""
        if self._waiting is None:
            self._waiting = await self._places.take("master" if self._master else "backup")
        else:
            await self._check_place(self._waiting)
        self.next_in_line = self._waiting is not None
        mark = await self._places.read()
        self._seen_live |= mark.state in (store.LIVE, store.FAILING_BACK)
        place = "next in line" if self.next_in_line else "behind another backup"
        if place != self._place:
            self._place = place
            _log.info("waiting for the live lock, %s", place)
        # A broker that was stopped on purpose and is started again does not wait behind backups
        # that stay passive for its sake.
        self._returns = mark.state == store.PAUSED and mark.name == self._name and not self._seen_live
        self._waits(mark)

    async def _try_live(self) -> Granted | None:
        lock = await self._places.take("live")
        if lock is None:
            return None
        kept = False
        try:
            mark = await self._places.read()
            if await self._may_take(mark):
                asked_s = await self._confirmed(lock)
                kept = True
                return Granted(lock, asked_s, self._waiting)
        finally:
            if not kept:
                await self._releases.retry(lock)
        return None

    async def _may_take(self, mark: StoreMark) -> bool:
        if mark.state == store.PAUSED:
            may = not self._seen_live and (self._master or mark.name == self._name)
            why = f"{mark.name} was stopped without failover"
        elif mark.state == store.FAILING_BACK and not self._master:
            may = not await self._places.held("master")
            why = "the live broker is giving its place back to the master"
        else:
            may = self._master or mark.state != store.NOT_STARTED
            why = "no master has ever been live on this store"
        if not may and why != self._said:
            self._said = why
            _log.info("staying passive: %s", why)
        return may


async def master_is_back(places: Places, section: SharedStoreRole) -> None:
    """Return when a master waits for its place and no backup waits for ours (AMQ 17.3.2.2)."""
    said = False
    while True:
        await asyncio.sleep(section.lock_poll_period / 1000)
        if not await places.held("master"):
            continue
        if not await places.held("backup"):
            return
        if not said:
            said = True
            _log.info("no failback: this broker has a backup already")
